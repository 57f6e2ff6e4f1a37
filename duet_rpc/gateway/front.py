"""What the client sends, before it is routed: messages, arrays of them, and input that is neither.

The replies to an array go out together, so whatever is sent to the client passes here, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.failures import describe
from duet_rpc.gateway.batches import Batch, Batches
from duet_rpc.gateway.client import ClientConnection
from duet_rpc.gateway.client_requests import IN_FLIGHT
from duet_rpc.jsonrpc.errors import BATCH_NOT_SUPPORTED, INVALID_REQUEST, Error
from duet_rpc.jsonrpc.jsontext import write_id
from duet_rpc.jsonrpc.limits import BATCH_MAX
from duet_rpc.jsonrpc.messages import Failure, InvalidMessage, Notification, Request, Success

if TYPE_CHECKING:
    from typing import Protocol

    from duet_rpc.gateway.client import ClientOwner
    from duet_rpc.gateway.loop import Loop
    from duet_rpc.gateway.runtime import Setup
    from duet_rpc.jsonrpc.messages import Id, Message
    from duet_rpc.log import Log

    class FrontOwner(ClientOwner, Protocol):
        """Who routes what the client sends."""

        def route(self, message: Message) -> None:
            """Route a message."""

        def fail_question(self, id: Id) -> bool:
            """Fail a backend's request to the client; return False where there is none."""


BATCH = InvalidMessage(
    Error(INVALID_REQUEST, "Batch requests not supported", {"reason": BATCH_NOT_SUPPORTED})
)


class ClientFront:
    """Receives from the client and sends to it."""

    def __init__(self, setup: Setup, loop: Loop, owner: FrontOwner) -> None:
        self._log = setup.log
        self._owner = owner
        self._read_timeout = setup.times.read
        self.connection = ClientConnection(
            setup.descriptors, loop, setup.framing, setup.times.read, self, owner
        )
        self._batches = Batches(self.connection.send)
        self.accepts_batches = setup.batch

    def send(self, message: Message) -> None:
        """Send a message to the client, or keep it for the array that it belongs to."""
        if not isinstance(message, (Success, Failure)) or not self._batches.take(message):
            self.connection.send(message)

    def drop_reply(self, id: Id) -> None:
        """Wait no longer for a reply: its request was cancelled, and gets none."""
        self._batches.drop(id)

    def handle_message(self, message: Message) -> None:
        """Route a message that is not part of an array."""
        if isinstance(message, Request) and message.id in self._batches:
            self.connection.send(Failure(message.id, IN_FLIGHT))
        else:
            self._owner.route(message)

    def handle_invalid(self, message: InvalidMessage) -> None:
        """Reply to input that is not a message, unless it is itself a reply."""
        failure = message.failure
        id = write_id(failure.id) if message.id_known else None
        self._log.warn(failure.error.message, message.method, id)
        # The id of a reply is one of ours; the client would take it for one of its own.
        is_reply = message.method is None and self._owner.fail_question(failure.id)
        if not is_reply and not message.is_reply:
            self.send(failure)

    def handle_batch(self, messages: list[Message | InvalidMessage]) -> None:
        """Handle an array of messages, where the client may send one."""
        if not self.accepts_batches:
            self.handle_invalid(BATCH)
            return
        if not 0 < len(messages) <= BATCH_MAX:
            error = Error.invalid_request(f"a batch holds 1 to {BATCH_MAX} messages")
            self.handle_invalid(InvalidMessage(error))
            return
        batch = Batch()
        for message in messages:
            if isinstance(message, InvalidMessage):
                if not message.is_reply:
                    self._log.warn(message.failure.error.message, message.method)
                    self._batches.add(batch, message.failure)
            elif isinstance(message, Request) and message.id in self._batches:
                self._batches.add(batch, Failure(message.id, IN_FLIGHT))
            else:
                if isinstance(message, Request):
                    self._batches.expect(batch, message.id)
                self._owner.route(message)
        self._batches.count_down(batch)

    def handle_expired_frame(self) -> None:
        """Log that a frame of the client was discarded."""
        seconds = f"{self._read_timeout:g} s"
        self._log.warn(f"discarded a frame that was not complete after {seconds}")


def log_failure(log: Log, message: Message, error: Exception, source: str = "") -> Error:
    """Log why a message could not be handled; return the error for whoever sent it."""
    method = message.method if isinstance(message, (Request, Notification)) else None
    id = None if isinstance(message, Notification) else write_id(message.id)
    if isinstance(error, RecursionError):  # it could be read once, with a shallower stack
        failure = Error.parse_error("nested too deeply")
        log.warn(source + failure.message, method, id)
        return failure
    log.error(f"{source}internal error: {describe(error)}", method, id)
    return Error.internal_error()
