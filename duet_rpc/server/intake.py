"""Messages that have arrived: decoded, in order, cancelled before their turn or not.

The loop takes one message after the other. While it is busy with one, the supervisor feeds
what arrives and has it decoded at once, because a cancel among it concerns what is ahead of
it. Cancelling costs one look into a table, however many requests wait.
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Union

from duet_rpc.jsonrpc.limits import INTAKE_MAX
from duet_rpc.jsonrpc.messages import InvalidMessage, Notification, Request, exact_member
from duet_rpc.peer import Incoming

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.jsonrpc.messages import Id, Message
    from duet_rpc.jsonrpc.reader import MessageReader
    from duet_rpc.log import Log

    Item = Union["Arrival", list["Arrival"]]


class CancelForm:
    """How a client takes a request back: a notification, and its member with the id."""

    def __init__(self, method: str, key: str) -> None:
        self.method = method
        self.key = key


class Arrival:
    """A message that waits for its turn, or has it."""

    __slots__ = ("body", "cancelled", "message")

    def __init__(self, message: Message | InvalidMessage, body: bytes) -> None:
        self.message = message
        self.body = body  # its text, for numbers that must be echoed exactly
        self.cancelled = False


class Intake:
    """The queue between the input and the loop."""

    def __init__(
        self, reader: MessageReader, read_timeout: float, cancel: CancelForm, log: Log
    ) -> None:
        self.reader = reader
        self._read_timeout = read_timeout
        self._cancel_form = cancel
        self._log = log
        self._queue: deque[Item] = deque()
        self._waiting: Incoming[Arrival] = Incoming()
        self._ahead = 0  # bytes that arrived ahead of their turn
        self.running: Id | object = self  # the id of the request that has its turn
        self.cancel_running: Callable[[], object] = bool
        self.frame_deadline: float | None = None  # for the frame that is arriving
        self.ended = False

    @property
    def is_full(self) -> bool:
        """True where no more is read ahead."""
        return self._ahead >= INTAKE_MAX

    # From the input.

    def feed(self, chunk: bytes) -> None:
        """Add a chunk of input; an empty one is its end."""
        if chunk:
            self.reader.feed(chunk)
        else:
            self.ended = True
            self.reader.finish()

    def read_ahead(self, chunk: bytes) -> None:
        """Add a chunk while a request has its turn."""
        self.feed(chunk)
        self._ahead += len(chunk)
        self.decode_ahead()

    def decode_ahead(self) -> None:
        """Queue all that has arrived, and apply the cancels among it at once."""
        while True:
            item = self._decode()
            if item is None:
                break
            self._queue.append(item)
            for arrival in item if isinstance(item, list) else (item,):
                if self.is_cancel(arrival.message):
                    self._cancel(arrival)
                elif isinstance(arrival.message, Request):
                    self._waiting.add(arrival.message.id, arrival)
        self._time_frame()

    def _decode(self) -> Item | None:
        reader = self.reader
        parsed = reader.next()
        if parsed is None:
            return None
        self.frame_deadline = None  # what is arriving now began later
        if isinstance(parsed, list):
            return [Arrival(each, b"") for each in parsed]
        return Arrival(parsed, reader.body)

    def _time_frame(self) -> None:
        """Limit the time from the first byte of a frame to its last."""
        if not self.reader.partial:
            self.frame_deadline = None
        elif self.frame_deadline is None:
            self.frame_deadline = monotonic() + self._read_timeout

    def expire(self, now: float) -> None:
        """Discard a frame that did not arrive in time."""
        if self.frame_deadline is None or now < self.frame_deadline:
            return
        self.frame_deadline = None
        self.reader.expire()
        seconds = f"{self._read_timeout:g} s"
        self._log.warn(f"a frame was not complete after {seconds}: discarded")

    # To the loop.

    def next(self) -> Item | None:
        """Return what is to be served next, or None."""
        if not self._queue:
            self._ahead = 0
            item = self._decode()
            if item is None:
                self._time_frame()
            elif isinstance(item, list):
                self._register(item)
            return item
        item = self._queue.popleft()
        if isinstance(item, Arrival) and isinstance(item.message, Request):
            self.forget(item)
        return item

    def _register(self, batch: list[Arrival]) -> None:
        for arrival in batch:
            if isinstance(arrival.message, Request):
                self._waiting.add(arrival.message.id, arrival)

    def forget(self, arrival: Arrival) -> None:
        """Note that a request no longer waits."""
        message = arrival.message
        if isinstance(message, Request) and self._waiting.get(message.id) is arrival:
            self._waiting.pop(message.id)

    # Cancel.

    def is_cancel(self, message: object) -> bool:
        """Return True for the notification that takes a request back."""
        return isinstance(message, Notification) and message.method == self._cancel_form.method

    def cancelled_id(self, arrival: Arrival) -> tuple[bool, Id]:
        """Return whether a cancel names a request, and its id."""
        message = arrival.message
        params = message.params if isinstance(message, Notification) else None
        wanted = params.get(self._cancel_form.key) if isinstance(params, dict) else None
        if type(wanted) not in (str, int, float):
            return False, None
        return True, exact_member(arrival.body, ("params", self._cancel_form.key), wanted)

    def _cancel(self, arrival: Arrival) -> None:
        named, id = self.cancelled_id(arrival)
        if not named:
            return  # the loop says so in its turn
        if id == self.running:
            self.cancel_running()
            return
        waiting = self._waiting.get(id)
        if waiting is not None:
            waiting.cancelled = True
