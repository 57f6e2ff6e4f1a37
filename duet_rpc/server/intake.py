"""Messages that have arrived: decoded, in order, cancelled before their turn or not.

The loop takes one message after the other. While it is busy with one, the supervisor feeds
what arrives and has it decoded at once, because a cancel among it concerns what is ahead of
it. Cancelling costs one look into a table, however many requests wait.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Union

from duet_rpc.jsonrpc.limits import INTAKE_MAX
from duet_rpc.jsonrpc.messages import (
    Failure,
    InvalidMessage,
    Notification,
    Request,
    Success,
    exact_member,
)
from duet_rpc.peer import Incoming
from duet_rpc.server.dispatch import CANCELLED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from duet_rpc.jsonrpc.errors import Error
    from duet_rpc.jsonrpc.messages import Id, Message
    from duet_rpc.jsonrpc.reader import MessageReader
    from duet_rpc.log import Log

    Call = Union[Request, Notification]
    Item = Union["Arrival", "Batch"]


class CancelForm:
    """How a client takes a request back: a notification, and its member with the id."""

    def __init__(self, method: str, key: str) -> None:
        self.method = method
        self.key = key

    def cancel(self, id: Id) -> Notification:
        """Return what takes a request of our own back."""
        return Notification(self.method, {self.key: id})


class Arrival:
    """A message that waits for its turn, or has it."""

    __slots__ = ("body", "message", "refusal")

    def __init__(self, message: Message | InvalidMessage, body: bytes) -> None:
        self.message = message
        self.body = body  # its text, for numbers that must be echoed exactly
        self.refusal: Error | None = None  # it is not served: cancelled, or too much


NOBODY = object()
"""No request has its turn."""


class Batch(list[Arrival]):
    """An array of messages."""

    def __init__(self, messages: Iterable[Message | InvalidMessage], body: bytes) -> None:
        super().__init__(Arrival(each, b"") for each in messages)
        self.body = body


class Intake:
    """The queue between the input and the loop."""

    def __init__(
        self,
        reader: MessageReader,
        read_timeout: float,
        cancel: CancelForm,
        immediate: Collection[str],
        log: Log,
    ) -> None:
        self.reader = reader
        self._immediate = immediate  # methods that are served while another one waits
        self._immediate_waiting = 0  # calls of these in the queue
        self._read_timeout = read_timeout
        self.cancel_form = cancel
        self._log = log
        self._queue: deque[Item] = deque()
        self._waiting: Incoming[Arrival] = Incoming()
        self._ahead = 0  # bytes that arrived ahead of their turn
        # The ids of the requests that have their turn, each inside the one before it.
        self.running: list[Id | object] = [NOBODY]
        self.current: Arrival | None = None  # the message that has its turn
        self.cancel_running: Callable[[int], object] = bool  # from a depth on
        self.accepts_batches: Callable[[], bool] = bool
        self.take: Callable[[Arrival], bool] = lambda _: False  # what does not wait its turn
        self._everybody_waits = False
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
            for arrival in item if isinstance(item, list) else (item,):
                if self.is_cancel(arrival.message):
                    self._cancel(arrival)
                elif isinstance(arrival.message, Request):
                    self._waiting.add(arrival.message.id, arrival)
            if not self._take(item):
                self._queue.append(item)
                self._immediate_waiting += self._is_immediate(item)
        self._time_frame()

    def _take(self, item: Item) -> bool:
        """Hand over what does not wait its turn; return whether that was all of it."""
        if isinstance(item, Arrival):
            return not self.is_cancel(item.message) and self.take(item)
        if not self.accepts_batches():
            return False
        answers = [each for each in item if isinstance(each.message, (Success, Failure))]
        taken = [each for each in answers if self.take(each)]
        item[:] = [each for each in item if each not in taken]
        return bool(taken) and not item

    # What does not wait its turn.

    def is_immediate(self, message: object) -> bool:
        """Return True for a call that is served while another one waits for an answer."""
        is_call = isinstance(message, (Request, Notification))
        return is_call and message.method in self._immediate  # type: ignore[attr-defined]

    def _is_immediate(self, item: Item) -> bool:
        return isinstance(item, Arrival) and self.is_immediate(item.message)

    def take_immediate(self) -> list[Arrival]:
        """Take such calls out of the queue."""
        if not self._immediate_waiting:
            return []
        taken = [each for each in self._queue if self._is_immediate(each)]
        self._queue = deque(each for each in self._queue if not self._is_immediate(each))
        self._immediate_waiting = 0
        return [each for each in taken if isinstance(each, Arrival)]

    def put_back(self, arrivals: deque[Arrival]) -> None:
        """Let calls that were taken wait for their turn after all."""
        self._immediate_waiting += sum(map(self._is_immediate, arrivals))
        self._queue.extendleft(reversed(arrivals))
        arrivals.clear()

    def _decode(self) -> Item | None:
        reader = self.reader
        parsed = reader.next()
        if parsed is None:
            return None
        self.frame_deadline = None  # what is arriving now began later
        if isinstance(parsed, list):
            return Batch(parsed, reader.body)
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
        self._immediate_waiting -= self._is_immediate(item)
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

    def take_faults(self) -> list[Arrival]:
        """Remove what is invalid from the queue, and return it."""
        faults: list[Arrival] = []
        others: deque[Item] = deque()
        for each in self._queue:
            if isinstance(each, Arrival) and isinstance(each.message, InvalidMessage):
                faults.append(each)
            else:
                others.append(each)
        self._queue = others
        return faults

    def unanswered(self) -> bytes:
        """Return the frames of what has its turn, and of what waits for it."""
        items: list[Item] = [] if self.current is None else [self.current]
        encode = self.reader.framing.encode
        return b"".join(encode(each.body) for each in (*items, *self._queue))

    # Cancel.

    def is_cancel(self, message: object) -> bool:
        """Return True for the notification that takes a request back."""
        return isinstance(message, Notification) and message.method == self.cancel_form.method

    def cancelled_id(self, arrival: Arrival) -> tuple[bool, Id]:
        """Return whether a cancel names a request, and its id."""
        message = arrival.message
        params = message.params if isinstance(message, Notification) else None
        wanted = params.get(self.cancel_form.key) if isinstance(params, dict) else None
        if type(wanted) not in (str, int, float):
            return False, None
        return True, exact_member(arrival.body, ("params", self.cancel_form.key), wanted)

    @contextmanager
    def everybody_waits(self) -> Iterator[None]:
        """Enter work that no request has asked for: any cancel means that it takes too long."""
        self._everybody_waits = True
        try:
            yield
        finally:
            self._everybody_waits = False

    def _cancel(self, arrival: Arrival) -> None:
        named, id = self.cancelled_id(arrival)
        if not named:
            return  # the loop says so in its turn
        if id in self.running:
            self.cancel_running(self.running.index(id))
            return
        waiting = self._waiting.get(id)
        if waiting is not None:
            waiting.refusal = CANCELLED
            if self._everybody_waits:
                self.cancel_running(0)


def id_of(message: object) -> object:
    """Return a request's id; a notification has none."""
    return message.id if isinstance(message, Request) else message
