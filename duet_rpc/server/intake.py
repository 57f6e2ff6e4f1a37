"""Messages that have arrived: in order, cancelled before their turn or not.

The loop takes one message after the other. While it is busy with one, the supervisor feeds
what arrives and has it decoded at once, because a cancel among it concerns what is ahead of
it. Cancelling costs one look into a table, however many requests wait.
"""

from __future__ import annotations

from collections import deque
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
from duet_rpc.server.cancellation import NOBODY
from duet_rpc.server.dispatch import CANCELLED
from duet_rpc.server.frames import Arrival

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from duet_rpc.jsonrpc.messages import Id
    from duet_rpc.server.frames import Frames, Item

    Call = Union[Request, Notification]


class CancelForm:
    """How a client takes a request back: a notification, and its member with the id."""

    def __init__(self, method: str, key: str) -> None:
        self.method = method
        self.key = key

    def cancel(self, id: Id) -> Notification:
        """Return what takes a request of our own back."""
        return Notification(self.method, {self.key: id})


class Intake:
    """The queue between the input and the loop."""

    def __init__(
        self,
        frames: Frames,
        cancel: CancelForm,
        immediate: Collection[str],
    ) -> None:
        self.frames = frames
        self._immediate = immediate  # methods that are served while another one waits
        self._immediate_waiting = 0  # calls of these in the queue
        self.cancel_form = cancel
        self._queue: deque[Item] = deque()
        self._waiting: Incoming[Arrival] = Incoming()
        self._ahead = 0  # bytes that arrived ahead of their turn
        self.current: Arrival | None = None  # the message that has its turn
        self.cancel_running: Callable[[object], bool] = bool  # by its id, if it runs
        self.accepts_batches: Callable[[], bool] = bool
        self.take: Callable[[Arrival], bool] = lambda _: False  # what does not wait its turn

    @property
    def is_full(self) -> bool:
        """True where no more is read ahead."""
        return self._ahead >= INTAKE_MAX

    # From the input.

    def read_ahead(self, chunk: bytes) -> None:
        """Add a chunk while a request has its turn."""
        self.frames.feed(chunk)
        self._ahead += len(chunk)
        self.decode_ahead()

    def decode_ahead(self) -> None:
        """Queue all that has arrived, and apply the cancels among it at once."""
        while True:
            item = self.frames.next()
            if item is None:
                return
            for arrival in item if isinstance(item, list) else (item,):
                if self.is_cancel(arrival.message):
                    self._cancel(arrival)
                elif isinstance(arrival.message, Request):
                    self._waiting.add(arrival.message.id, arrival)
            if not self._take(item):
                self._queue.append(item)
                self._immediate_waiting += self._is_immediate(item)

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

    # To the loop.

    def next(self) -> Item | None:
        """Return what is to be served next, or None."""
        if not self._queue:
            self._ahead = 0
            item = self.frames.next()
            if isinstance(item, list):
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
        return b"".join(map(self.frames.encode, (*items, *self._queue)))

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

    def _cancel(self, arrival: Arrival) -> None:
        named, id = self.cancelled_id(arrival)
        if not named:
            return  # the loop says so in its turn
        if self.cancel_running(id):
            return
        waiting = self._waiting.get(id)
        if waiting is not None:
            waiting.refusal = CANCELLED
            self.cancel_running(NOBODY)  # work that nobody has asked for takes too long


def id_of(message: object) -> object:
    """Return a request's id; a notification has none."""
    return message.id if isinstance(message, Request) else message
