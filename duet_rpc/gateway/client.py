"""The connection to the client: read message by message, written without ever blocking.

Backpressure has two steps. A client that does not read stops the reading of the backends
first; where it goes on sending requests all the same, these are neither read nor served
until it has read some replies. The end of its input is noticed all the same: a client that
reads nothing and closes its side is not waited for.
"""

from __future__ import annotations

import os
import select
from enum import Enum
from stat import S_ISFIFO, S_ISSOCK
from typing import TYPE_CHECKING

from duet_rpc.gateway.streams import MessageStream, WriteQueue
from duet_rpc.gateway.wire import to_frame
from duet_rpc.jsonrpc.limits import CLIENT_QUEUE_MAX, CLIENT_READ_STOP
from duet_rpc.jsonrpc.messages import InvalidMessage
from duet_rpc.jsonrpc.reader import MessageReader
from duet_rpc.server.stdio import PEER_GONE

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from duet_rpc.gateway.loop import Loop
    from duet_rpc.jsonrpc.framing import Framing
    from duet_rpc.jsonrpc.messages import Message

    class ClientHandler(Protocol):
        """Who is told what the client sends."""

        def handle_message(self, message: Message) -> None:
            """Handle a message."""

        def handle_invalid(self, message: InvalidMessage) -> None:
            """Handle input that is not a message."""

        def handle_batch(self, messages: list[Message | InvalidMessage]) -> None:
            """Handle an array of messages."""

        def handle_expired_frame(self) -> None:
            """Handle a frame that was not complete in time."""

    class ClientOwner(Protocol):
        """Who is told what becomes of the connection."""

        def handle_end_of_input(self) -> None:
            """Handle the end of the client's input."""

        def handle_lost_client(self, error: OSError) -> None:
            """Handle that nothing can be written to the client."""

        def handle_flow(self) -> None:
            """Handle that `full` has changed."""


TURN = 64  # messages of the client before the backends and signals have their turn


class Intake(Enum):
    """What becomes of the client's input."""

    OPEN = "it is read and served"
    CLOSED = "the client has closed its side; what is left is read and served"
    ENDED = "nothing more is read; what was read is served"
    DISCARDED = "nothing more is read or served"


class ClientConnection:
    """The two descriptors that lead to the client."""

    def __init__(
        self,
        descriptors: tuple[int, int],
        loop: Loop,
        framing: Framing | None,
        read_timeout: float,
        handler: ClientHandler,
        owner: ClientOwner,
    ) -> None:
        reading, writing = descriptors
        self._loop = loop
        self._handler = handler
        self._owner = owner
        self._stream = MessageStream(
            loop,
            reading,
            MessageReader(framing, raw=True),
            read_timeout,
            self._handle_input,
            self._handle_timeout,
        )
        self._state = Intake.OPEN
        self._behind = False  # the stream holds messages, perhaps
        self._hang_up = HangUp(loop, reading, self._handle_closed)
        self.full = False  # of what the client does not read
        self.on_next_send: Callable[[], object] | None = None
        self.output = WriteQueue(loop, writing)
        self.output.on_drain = self._handle_drain
        self.output.on_error = owner.handle_lost_client
        self.release = make_nonblocking(writing)  # undoes it

    # Reading.

    def update_reading(self) -> None:
        """Read, unless there is a reason not to."""
        can_read = self.has_room and not self._behind
        if self._state is Intake.OPEN and not can_read:
            self._stream.watch(False)
            self._hang_up.watch(True)
        else:
            self._hang_up.watch(False)
            self._stream.watch(can_read and self._state in (Intake.OPEN, Intake.CLOSED))

    def feed(self, data: bytes) -> None:
        """Begin with what somebody else has read."""
        self._stream.reader.feed(data)
        self._behind = True
        self._loop.call_soon(self._resume)

    def stop_reading(self) -> None:
        """Read no more; what was read is still served."""
        if self._state is not Intake.DISCARDED:
            self._state = Intake.ENDED
        self.update_reading()

    def stop_serving(self) -> None:
        """Read no more, and do not serve what was read."""
        self._state = Intake.DISCARDED
        self.update_reading()

    @property
    def has_room(self) -> bool:
        """True unless so much waits for the client to read it that nothing more is added."""
        return self.output.size < CLIENT_READ_STOP

    @property
    def unserved(self) -> bool:
        """True while the client has sent messages that are not yet served, perhaps."""
        return self._state is not Intake.DISCARDED and (
            self._behind or self._state is Intake.CLOSED
        )

    def _handle_closed(self) -> None:
        self._state = Intake.CLOSED
        self._owner.handle_end_of_input()
        self.update_reading()

    def _handle_input(self) -> None:
        got = self._stream.read()
        if got:
            self._handle_messages()
        elif got is False:
            known = self._state is Intake.CLOSED
            self.stop_reading()
            self._stream.reader.finish()
            self._handle_messages()
            if not known:
                self._owner.handle_end_of_input()

    def _handle_messages(self) -> None:
        """Handle some of the messages that were read, as long as there is room for replies."""
        self._behind = True
        for _ in range(TURN):
            if self._state is Intake.DISCARDED or not self.has_room:
                break
            message = self._stream.next()
            if message is None:
                self._behind = False
                break
            if isinstance(message, InvalidMessage):
                self._handler.handle_invalid(message)
            elif isinstance(message, list):
                self._handler.handle_batch(message)
            else:
                self._handler.handle_message(message)
        else:
            self._loop.call_soon(self._resume)
        self.update_reading()

    def _handle_timeout(self) -> None:
        self._stream.reader.expire()
        self._handler.handle_expired_frame()
        self._handle_messages()

    # Writing.

    def send(self, message: Message | list[Message]) -> None:
        """Send a message, or an array of them, at the end of this turn of the loop."""
        output = self.output
        size = output.put(to_frame(message, self._stream.reader.framing))
        if self.on_next_send is not None:
            on_next_send, self.on_next_send = self.on_next_send, None
            on_next_send()
        if size > CLIENT_QUEUE_MAX:
            self._handle_backlog()

    def _handle_backlog(self) -> None:
        if not self.full:
            self.output.flush()
            if self.output.size > CLIENT_QUEUE_MAX:
                self.full = True
                self._owner.handle_flow()
        if not self.has_room:
            self.update_reading()

    def _handle_drain(self) -> None:
        if self.full and self.output.size < CLIENT_QUEUE_MAX // 2:
            self.full = False
            self._owner.handle_flow()
        if self._behind:  # not now: this may be called while a message is handled
            self._loop.call_soon(self._resume)
        self.update_reading()

    def _resume(self) -> None:
        if self._behind:
            self._handle_messages()


class HangUp:
    """Notices that the other side of a descriptor is closed, though there is more to read."""

    __slots__ = ("_descriptor", "_loop", "_on_closed", "_watched")

    def __init__(self, loop: Loop, descriptor: int, on_closed: Callable[[], object]) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._on_closed = on_closed
        self._watched = False

    def watch(self, wanted: bool) -> None:
        """Start or stop watching the descriptor, which nobody else watches meanwhile."""
        if wanted and not self._watched:
            self._loop.watch(self._descriptor, PEER_GONE, self._look)
        elif self._watched and not wanted:
            self._loop.unwatch(self._descriptor)
        self._watched = wanted

    def _look(self) -> None:
        """Look once more: in the turn in which the watch began, there may only be more to read."""
        waiting = select.poll()
        waiting.register(self._descriptor, PEER_GONE)
        if waiting.poll(0):
            self._on_closed()


def make_nonblocking(descriptor: int) -> Callable[[], None]:
    """Let a pipe or a socket never be waited for; return a function that undoes it.

    Only they can be full for long, and only they are safe to switch: a terminal is shared
    with the shell.
    """
    mode = os.fstat(descriptor).st_mode
    if not (S_ISFIFO(mode) or S_ISSOCK(mode)) or not os.get_blocking(descriptor):
        return lambda: None
    os.set_blocking(descriptor, False)
    return lambda: os.set_blocking(descriptor, True)
