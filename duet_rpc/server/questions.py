"""Questions that methods ask of the client, and what goes on while one waits for its answer.

A method runs on the main thread. When it asks, a request goes to the client, and the main thread
waits. The supervisor's thread reads on meanwhile, as it does while any method runs, and hands over
what concerns the wait. The main thread wakes up for four things:

| what has come | what it does |
| --- | --- |
| the answer | goes on with the method |
| a cancel of the call, or of one that it runs inside of | raises Cancelled |
| the end of input, or a signal to leave | the same: no answer can come any more |
| a call that must not wait | serves it, inside the wait, and waits on |

Calls that must not wait are those of built-in methods, which cost nothing, and those that the
client makes *in order to* answer: a function in Emacs that is called by a method may call a method
itself. Such a call says so, in `_meta.during`; if it were queued behind the method that waits, both
sides would wait for each other for good. All other calls are queued as always. The methods that
wait form a stack, on the main thread's own stack.

`_meta.during` names a question, but not the one that must be open: a client may be in the middle of
answering one that its method has given up, in the middle of answering another. tests/models/ask.pml
is a model of both sides, which is searched for deadlocks; it has found this one.

A thread that a method has started may ask, too, and waits by itself. The main thread may be busy
then, so a call that is made in order to answer such a question can't be served unless a method
waits as well: it is refused at once.

Reading goes on even where as much has been read ahead as may be kept, because the answer may be
behind it; then further requests are refused, and not kept.

A question ends with its answer, or it is withdrawn: the client is told so by a cancel, and an
answer that is on its way is dropped when it comes.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from queue import SimpleQueue
from threading import get_ident, main_thread
from typing import TYPE_CHECKING, Union

from duet_rpc.jsonrpc.errors import REQUEST_CANCELLED, REQUEST_FAILED, Error
from duet_rpc.jsonrpc.messages import (
    Failure,
    InvalidMessage,
    Notification,
    Request,
    Success,
)
from duet_rpc.methods.asking import Declined
from duet_rpc.peer import Outgoing

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.jsonrpc.messages import Id, Message
    from duet_rpc.server.cancellation import Cancellation, Turn
    from duet_rpc.server.frames import Arrival
    from duet_rpc.server.intake import Intake
    from duet_rpc.server.supervisor import Supervisor

    Reply = Union[Success, Failure, InvalidMessage]

FROM_A_THREAD = "this call can't be served: the question that it belongs to is asked by a thread"
QUEUE_FULL = "too many requests are waiting for a method that waits for an answer"


class Open:
    """A question without an answer."""

    __slots__ = ("answer", "events", "turn")

    def __init__(self, turn: Turn, events: SimpleQueue[Arrival | None]) -> None:
        self.turn = turn  # the call that asks
        self.answer: Reply | None = None
        self.events = events  # something has happened; for a thread also calls to be refused


class Questions:
    """The questions of all methods that run."""

    def __init__(
        self,
        intake: Intake,
        cancellation: Cancellation,
        supervisor: Supervisor,
        send: Callable[[Message], None],
        serve: Callable[[Arrival], None],
        is_over: Callable[[], bool],
        can_cancel: bool,
    ) -> None:
        self._intake = intake
        self._cancellation = cancellation
        self._supervisor = supervisor
        self._send = send
        self._serve = serve
        self._is_over = is_over  # no more answers can come
        self._can_cancel = can_cancel  # an answer can cancel the call, which is answered then
        self._open: Outgoing[Open] = Outgoing(lambda number: f"duet:{number}")
        self._events: SimpleQueue[Arrival | None] = SimpleQueue()  # of the main thread
        self._calls: deque[Arrival] = deque()  # to be served by the main thread, inside its wait
        self._on_main = 0  # questions of the main thread
        self._is_waiting = False  # the main thread

    # In the thread that asks.

    def ask(self, turn: Turn, method: str, params: dict[str, object]) -> Reply:
        """Send a request to the client and wait; raise Cancelled, or Declined without an answer."""
        if turn.over:
            raise Declined("the call was answered before; ask while the method runs")
        answer = None
        with self._cancellation.hold():
            if not turn.requested and not self._is_over():
                answer = self._ask(turn, method, params)
            if answer is None and self._is_over() and on_main_thread():
                self._cancellation.request()
        # On the main thread a cancel is raised where `hold` ends, except in `finally`, in
        # `uninterrupted`, and in a thread.
        if answer is None or turn.requested:
            why = "the call was cancelled" if turn.requested else "the call has ended"
            raise Declined(why)
        return answer

    def _ask(self, turn: Turn, method: str, params: dict[str, object]) -> Reply | None:
        on_main = on_main_thread()
        question = Open(turn, self._events if on_main else SimpleQueue())
        with self._supervisor.exclusive:
            id = self._open.add(question)
            if on_main:
                self._on_main += 1
                self._calls.extend(self._intake.take_immediate())
        try:
            self._send(Request(method, params, id))
            self._supervisor.watch_now()
            self._read_on()
            while question.answer is None and not (turn.requested or turn.over or self._is_over()):
                if on_main and self._calls:
                    self._is_waiting = False
                    self._serve(self._calls.popleft())
                else:
                    if on_main and not self._is_waiting:
                        self._is_waiting = True
                        self._read_on()
                    self._wait(question)
        finally:
            self._close(question, id, on_main)
        return question.answer

    def _read_on(self) -> None:
        """Read further than is kept, because somebody waits now."""
        if self._intake.is_full:
            self._supervisor.look_again()

    def _wait(self, question: Open) -> None:
        call = question.events.get()
        if call is not None and isinstance(call.message, Request):
            error = call.refusal or Error.of(REQUEST_FAILED, FROM_A_THREAD)
            self._send(Failure(call.message.id, error))

    def _close(self, question: Open, id: Id, on_main: bool) -> None:
        with self._supervisor.exclusive:
            self._open.pop(id)
            if on_main:
                self._on_main -= 1
                self._is_waiting = False
                if not self._on_main:  # they are served in their turn
                    self._intake.put_back(self._calls)
        if question.answer is None and not self._is_over():
            with suppress(OSError):  # the loop finds out
                self._send(self._intake.cancel_form.cancel(id))

    # On the supervisor's thread, which holds the lock.

    @property
    def need_input(self) -> bool:
        """True while somebody waits who would go on with an answer."""
        return self._is_waiting or len(self._open) > self._on_main

    def take(self, arrival: Arrival) -> bool:
        """Take what concerns a question; return whether it does."""
        if not self._open:
            return False
        message = arrival.message
        if isinstance(message, (Success, Failure)):
            return self._take_answer(message.id, message)
        if isinstance(message, InvalidMessage):
            return message.method is None and self._take_answer(message.failure.id, message)
        named = during(message)
        if self._on_main and (named is not None or self._intake.is_immediate(message)):
            return self._hand_over(arrival, None)
        question = self._open.get(named)
        if question is not None:
            return self._hand_over(arrival, question)
        if not self._intake.is_full:
            return False
        if isinstance(message, Request):
            arrival.refusal = Error.of(REQUEST_FAILED, QUEUE_FULL)
            arrival.message, arrival.body = Request(message.method, None, message.id), b""
            self._hand_over(arrival, next(iter(self._open)))
        return True

    def _hand_over(self, arrival: Arrival, question: Open | None) -> bool:
        if question is not None and question.events is not self._events:
            question.events.put(arrival)
        else:
            self._calls.append(arrival)
            self._events.put(None)
        return True

    def _take_answer(self, id: Id, answer: Reply) -> bool:
        question = self._open.pop(id)
        if question is None:
            return False
        question.answer = answer
        is_cancel = isinstance(answer, Failure) and answer.error.code == REQUEST_CANCELLED
        if is_cancel and self._can_cancel:
            self._cancellation.request_turn(question.turn)
            self.wake()
        question.events.put(None)
        return True

    def wake(self) -> None:
        """Let all who wait see what has changed: a cancel, or the end."""
        for question in self._open:
            question.events.put(None)


def on_main_thread() -> bool:
    """Return whether this is the thread on which methods run."""
    return get_ident() == main_thread().ident


def during(message: Request | Notification) -> str | None:
    """Return the id of the question in whose answering a call is made."""
    params = message.params
    meta = params.get("_meta") if isinstance(params, dict) else None
    named = meta.get("during") if isinstance(meta, dict) else None
    return named if isinstance(named, str) else None
