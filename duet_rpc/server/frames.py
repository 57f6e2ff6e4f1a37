"""The input, frame by frame: messages as they are complete, each within its time.

Whoever reads the input feeds it here, the loop or the supervisor; `next` decodes it.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from collections.abc import Iterable

    from duet_rpc.jsonrpc.errors import Error
    from duet_rpc.jsonrpc.messages import InvalidMessage, Message
    from duet_rpc.jsonrpc.reader import MessageReader
    from duet_rpc.log import Log

    Item = Union["Arrival", "Batch"]


class Arrival:
    """A message that waits for its turn, or has it."""

    __slots__ = ("body", "message", "refusal")

    def __init__(self, message: Message | InvalidMessage, body: bytes) -> None:
        self.message = message
        self.body = body  # its text, for numbers that must be echoed exactly
        self.refusal: Error | None = None  # it is not served: cancelled, or too much


class Batch(list[Arrival]):
    """An array of messages."""

    def __init__(self, messages: Iterable[Message | InvalidMessage], body: bytes) -> None:
        super().__init__(Arrival(each, b"") for each in messages)
        self.body = body


class Frames:
    """Decodes the input, and limits the time from the first byte of a frame to its last."""

    def __init__(self, reader: MessageReader, read_timeout: float, log: Log) -> None:
        self._reader = reader
        self._read_timeout = read_timeout
        self._log = log
        self.deadline: float | None = None  # for the frame that is arriving
        self.ended = False  # no more will come

    def feed(self, chunk: bytes) -> None:
        """Add a chunk of input; an empty one is its end."""
        if chunk:
            self._reader.feed(chunk)
        else:
            self.ended = True
            self._reader.finish()

    def next(self) -> Item | None:
        """Return the next message or batch, or None where more input is needed."""
        reader = self._reader
        parsed = reader.next()
        if parsed is None:
            if not reader.partial:
                self.deadline = None
            elif self.deadline is None:
                self.deadline = monotonic() + self._read_timeout
            return None
        self.deadline = None  # what is arriving now began later
        if isinstance(parsed, list):
            return Batch(parsed, reader.body)
        return Arrival(parsed, reader.body)

    @property
    def partial(self) -> bool:
        """True where part of a frame has arrived."""
        return self._reader.partial

    def expire(self, now: float) -> None:
        """Discard a frame that did not arrive in time."""
        if self.deadline is None or now < self.deadline:
            return
        self.deadline = None
        self._reader.expire()
        seconds = f"{self._read_timeout:g} s"
        self._log.warn(f"a frame was not complete after {seconds}: discarded")

    def encode(self, item: Item) -> bytes:
        """Return a message or a batch as the frame that it came in."""
        return self._reader.framing.encode(item.body)
