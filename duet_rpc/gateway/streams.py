"""Descriptors that are never waited for: messages in, bytes out."""

from __future__ import annotations

import os
from select import POLLIN, POLLOUT
from time import monotonic
from typing import TYPE_CHECKING

from duet_rpc.gateway.loop import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.gateway.loop import Loop
    from duet_rpc.jsonrpc.messages import Parsed
    from duet_rpc.jsonrpc.reader import MessageReader

CHUNK = 64 * 1024


class MessageStream:
    """Messages from a descriptor, each complete within the read timeout.

    While the descriptor is not watched (backpressure), no frame is timed: it is not the
    sender's fault then.
    """

    __slots__ = ("_deadline", "_descriptor", "_loop", "_on_input", "_timeout", "_watched", "reader")

    def __init__(
        self,
        loop: Loop,
        descriptor: int,
        reader: MessageReader,
        timeout: float,
        on_input: Callable[[], object],
        on_timeout: Callable[[], object],
    ) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._timeout = timeout
        self._on_input = on_input
        self._deadline = Deadline(loop, on_timeout)  # of the frame that is arriving
        self._watched = False
        self.reader = reader

    def watch(self, wanted: bool) -> None:
        """Start or stop watching the descriptor."""
        if wanted == self._watched:
            return
        self._watched = wanted
        if wanted:
            self._loop.watch(self._descriptor, POLLIN, self._on_input)
        else:
            self._loop.unwatch(self._descriptor)
        self._time_frame()

    def read(self) -> bool | None:
        """Read a chunk: True; None where there is none now, False at the end of input."""
        try:
            chunk = os.read(self._descriptor, CHUNK)
        except BlockingIOError:
            return None
        if not chunk:
            return False
        self.reader.feed(chunk)
        return True

    def next(self) -> Parsed | None:
        """Return the next message, or None: more input is needed."""
        message = self.reader.next()
        if message is None:
            self._time_frame()
        else:
            self._deadline.when = None  # what is arriving now began later
        return message

    def _time_frame(self) -> None:
        if not self._watched or not self.reader.partial:
            self._deadline.when = None
        elif self._deadline.when is None:
            self._deadline.set(monotonic() + self._timeout)


class WriteQueue:
    """Bytes that wait to be written to a descriptor."""

    __slots__ = (
        "_blocked", "_buffer", "_descriptor", "_loop", "_scheduled", "closed", "on_drain",
        "on_error",
    )  # fmt: skip

    def __init__(self, loop: Loop, descriptor: int) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._scheduled = False  # to be flushed at the end of the turn
        self._blocked = False  # waits for the descriptor to take more
        self.closed = False
        self.on_drain: Callable[[], object] = lambda: None  # some of it was written
        self.on_error: Callable[[OSError], object] = lambda _error: None

    @property
    def size(self) -> int:
        """The bytes not yet written."""
        return len(self._buffer)

    def put(self, data: bytes) -> int:
        """Write this at the end of the turn, or when there is room; return the new size."""
        if not self.closed:
            self._buffer += data
            if not self._scheduled and not self._blocked:
                self._scheduled = True
                self._loop.flush_later(self)
        return len(self._buffer)

    def flush(self) -> None:
        """Write as much as there is room for."""
        self._scheduled = False
        try:
            while self._buffer:
                del self._buffer[: os.write(self._descriptor, self._buffer)]
        except BlockingIOError:
            if not self._blocked:
                self._blocked = True
                self._loop.watch(self._descriptor, POLLOUT, self._handle_room)
            return
        except OSError as error:
            self.close()
            self.on_error(error)
            return
        if self._blocked:
            self._unblock()
            self.on_drain()

    def _handle_room(self) -> None:
        self.flush()
        if self._blocked:  # some of it was written, not all
            self.on_drain()

    def _unblock(self) -> None:
        if self._blocked:
            self._blocked = False
            self._loop.unwatch(self._descriptor)

    def close(self) -> None:
        """Discard what is not yet written, and all that is put here from now on."""
        self.closed = True
        self._buffer.clear()
        self._unblock()
