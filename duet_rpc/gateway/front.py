"""The client's two pipes: read message by message, written without ever waiting.

A client that does not read slows down those who have something to say to it: first the
backends are not read any more, and a good deal later the client itself.
"""

from __future__ import annotations

import os
from stat import S_ISFIFO, S_ISSOCK

from duet_rpc.gateway.loop import Inlet, Loop, Outlet
from duet_rpc.jsonrpc.envelope import EnvelopeReader
from duet_rpc.jsonrpc.limits import CLIENT_QUEUE_MAX
from duet_rpc.jsonrpc.messages import Failure, encode_failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from duet_rpc.jsonrpc.envelope import Envelope
    from duet_rpc.jsonrpc.framing import Framing
    from duet_rpc.log import Log

    class Listener(Protocol):
        """Who hears what the client does."""

        def hear(self, message: Envelope) -> None:
            """Take a message."""

        def end_input(self) -> None:
            """Take note that no more will come."""

        def lose_client(self, error: OSError) -> None:
            """Take note that nobody reads any more."""

        def change_flow(self, full: bool) -> None:
            """Let the backends wait, or go on."""


PIECE = 64 * 1024
DEAF_MAX = 8 * CLIENT_QUEUE_MAX  # bytes not read by a client that still asks


class Front:
    """Where the client is."""

    def __init__(
        self,
        descriptors: tuple[int, int],
        loop: Loop,
        log: Log,
        framing: Framing,
        read_timeout: float,
        listener: Listener,
    ) -> None:
        self._input, self._output = descriptors
        self._loop = loop
        self._log = log
        self._encode = framing.encode
        self._read_timeout = read_timeout
        self._listener = listener
        self._reader = EnvelopeReader(framing)
        self._inlet = Inlet(
            loop, self._input, self._reader, self._read, read_timeout, self._drop_frame
        )
        self._open = True
        self._deaf = False
        self.full = False  # of what the client does not read
        mode = os.fstat(self._output).st_mode
        # Only a pipe or a socket can be full for long, and only they are safe to switch: a
        # terminal is shared with the shell.
        self._switched = (S_ISFIFO(mode) or S_ISSOCK(mode)) and os.get_blocking(self._output)
        if self._switched:
            os.set_blocking(self._output, False)
        self.outlet = Outlet(loop, self._output)
        self.outlet.on_room = self._has_room
        self.outlet.on_broken = listener.lose_client

    def release(self) -> None:
        """Give the descriptor back as it came."""
        if self._switched:
            os.set_blocking(self._output, True)

    # Reading.

    def update_reading(self) -> None:
        """Read, unless there is a reason not to."""
        self._inlet.watch(self._open and self.outlet.size < DEAF_MAX)

    def stop_reading(self, deaf: bool = False) -> None:
        """Read no more; deaf: nor serve what was read."""
        self._open = False
        self._deaf |= deaf
        self.update_reading()

    def _read(self) -> None:
        try:
            piece = os.read(self._input, PIECE)
        except BlockingIOError:
            return
        if piece:
            message = self._reader.take(piece)
            if message is not None:
                self._listener.hear(message)
            else:
                self._hand_on()
            return
        self.stop_reading()
        self._reader.finish()
        self._hand_on()
        self._listener.end_input()

    def _hand_on(self) -> None:
        self._loop.alone = False
        moved = False
        while not self._deaf:
            message = self._reader.next()
            if message is None:
                break
            moved = True
            if isinstance(message, Failure):
                self._log.warn(message.message, id=message.id)
                self.say(encode_failure(message))
            else:
                self._listener.hear(message)
            if not self._reader.more:
                break
        if moved:
            self._inlet.end_frame()
        self._inlet.time_frame()

    def _drop_frame(self) -> None:
        self._reader.expire()
        self._log.warn(f"a frame was not complete after {self._read_timeout:g} s: dropped")
        self._hand_on()

    # Writing.

    def say(self, body: bytes) -> None:
        """Write a message."""
        outlet = self.outlet
        outlet.put(self._encode(body))
        if outlet.size > CLIENT_QUEUE_MAX and not self.full:
            outlet.flush()
            if outlet.size > CLIENT_QUEUE_MAX:
                self.full = True
                self._listener.change_flow(True)
                self.update_reading()
        elif self.full and outlet.size >= DEAF_MAX:
            self.update_reading()

    def _has_room(self) -> None:
        if self.full and self.outlet.size < CLIENT_QUEUE_MAX // 2:
            self.full = False
            self._listener.change_flow(False)
        self.update_reading()
