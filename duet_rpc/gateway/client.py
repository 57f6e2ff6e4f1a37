"""The connection to the client: read message by message, written without ever blocking.

Backpressure has two steps. A client that does not read stops the reading of the backends
first; where it goes on sending requests all the same, it is not read either.
"""

from __future__ import annotations

import os
from stat import S_ISFIFO, S_ISSOCK
from typing import TYPE_CHECKING

from duet_rpc.gateway.streams import MessageStream, WriteQueue
from duet_rpc.gateway.wire import to_frame
from duet_rpc.jsonrpc.errors import BATCH_NOT_SUPPORTED, INVALID_REQUEST, Error
from duet_rpc.jsonrpc.limits import CLIENT_QUEUE_MAX
from duet_rpc.jsonrpc.messages import InvalidMessage
from duet_rpc.jsonrpc.reader import MessageReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from duet_rpc.gateway.loop import Loop
    from duet_rpc.jsonrpc.framing import Framing
    from duet_rpc.jsonrpc.messages import Message

    class ClientHandler(Protocol):
        """Who is told what the client sends, and what becomes of the connection."""

        def handle_message(self, message: Message) -> None:
            """Handle a message."""

        def handle_invalid(self, message: InvalidMessage) -> None:
            """Handle input that is not a message."""

        def handle_expired_frame(self) -> None:
            """Handle a frame that was not complete in time."""

        def handle_end_of_input(self) -> None:
            """Handle the end of the client's input."""

        def handle_lost_client(self, error: OSError) -> None:
            """Handle that nothing can be written to the client."""

        def handle_flow(self) -> None:
            """Handle that `full` has changed."""


READ_STOP = 8 * CLIENT_QUEUE_MAX  # bytes not read by a client that still sends requests

BATCH = InvalidMessage(
    Error(INVALID_REQUEST, "Batch requests not supported", {"reason": BATCH_NOT_SUPPORTED})
)


class ClientConnection:
    """The two descriptors that lead to the client."""

    def __init__(
        self,
        descriptors: tuple[int, int],
        loop: Loop,
        framing: Framing,
        read_timeout: float,
        handler: ClientHandler,
    ) -> None:
        reading, self._writing = descriptors
        self._framing = framing
        self._handler = handler
        self._stream = MessageStream(
            loop,
            reading,
            MessageReader(framing, raw=True),
            read_timeout,
            self._handle_input,
            self._handle_timeout,
        )
        self._reading = True
        self._serving = True
        self.full = False  # of what the client does not read
        self.on_first_send: Callable[[], object] | None = None
        self.output = WriteQueue(loop, self._writing)
        self.output.on_drain = self._handle_drain
        self.output.on_error = handler.handle_lost_client
        # Only a pipe or a socket can be full for long, and only they are safe to switch: a
        # terminal is shared with the shell.
        mode = os.fstat(self._writing).st_mode
        can_switch = S_ISFIFO(mode) or S_ISSOCK(mode)
        self._switched = can_switch and os.get_blocking(self._writing)
        if self._switched:
            os.set_blocking(self._writing, False)

    def release(self) -> None:
        """Make the descriptor blocking again, if it was."""
        if self._switched:
            os.set_blocking(self._writing, True)

    # Reading.

    def update_reading(self) -> None:
        """Read, unless there is a reason not to."""
        self._stream.watch(self._reading and self.output.size < READ_STOP)

    def stop_reading(self) -> None:
        """Read no more; what was read is still served."""
        self._reading = False
        self.update_reading()

    def stop_serving(self) -> None:
        """Read no more, and do not serve what was read."""
        self._serving = False
        self.stop_reading()

    def _handle_input(self) -> None:
        got = self._stream.read()
        if got:
            self._handle_messages()
        elif got is False:
            self.stop_reading()
            self._stream.reader.finish()
            self._handle_messages()
            self._handler.handle_end_of_input()

    def _handle_messages(self) -> None:
        while self._serving:
            message = self._stream.next()
            if message is None:
                return
            if isinstance(message, InvalidMessage):
                self._handler.handle_invalid(message)
            elif isinstance(message, list):
                self._handler.handle_invalid(BATCH)
            else:
                self._handler.handle_message(message)

    def _handle_timeout(self) -> None:
        self._stream.reader.expire()
        self._handler.handle_expired_frame()
        self._handle_messages()

    # Writing.

    def send(self, message: Message) -> None:
        """Send a message, at the end of this turn of the loop."""
        output = self.output
        size = output.put(to_frame(message, self._framing))
        if self.on_first_send is not None:
            on_first_send, self.on_first_send = self.on_first_send, None
            on_first_send()
        if size > CLIENT_QUEUE_MAX:
            self._handle_backlog()

    def _handle_backlog(self) -> None:
        if not self.full:
            self.output.flush()
            if self.output.size > CLIENT_QUEUE_MAX:
                self.full = True
                self._handler.handle_flow()
        if self.output.size >= READ_STOP:
            self.update_reading()

    def _handle_drain(self) -> None:
        if self.full and self.output.size < CLIENT_QUEUE_MAX // 2:
            self.full = False
            self._handler.handle_flow()
        self.update_reading()
