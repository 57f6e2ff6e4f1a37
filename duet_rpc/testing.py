"""Tests of methods without a daemon: the checks, the function and its result, in this process.

    from duet_rpc.testing import call
    from words import word_count

    def test_counts_words() -> None:
        assert call(word_count, text="a b a", top=1).result == {"a": 2}
        assert call(word_count, text=5).error.data["param"] == "text"

A call is what a caller would have got: parameters go through JSON and are checked, the result
goes through JSON, and an exception is an error.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from duet_rpc.failures import describe, explain
from duet_rpc.jsonrpc.errors import REQUEST_CANCELLED, Error, RpcError
from duet_rpc.jsonrpc.jsontext import dumps, loads
from duet_rpc.methods.asking import Unsupported
from duet_rpc.methods.context import Cancelled, Context
from duet_rpc.methods.emacs import to_lisp
from duet_rpc.methods.notify import connect
from duet_rpc.methods.signature import ENCODE, method_from
from duet_rpc.methods.stream import join

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from duet_rpc.methods.asking import Question
    from duet_rpc.methods.method import Method, Params

__all__ = ["Asked", "Outcome", "Progress", "call"]


class Progress(NamedTuple):
    """What `ctx.progress` was called with."""

    done: float
    total: float | None
    message: str | None


class Asked(NamedTuple):
    """A question of the function: its kind (`ask`, `choose`, …), its text, and all of it."""

    kind: str
    prompt: str
    params: dict[str, Any]


class Answers:
    """A caller that answers as a test says."""

    def __init__(self, outcome: Outcome, answers: Mapping[str, Any]) -> None:
        self._outcome = outcome
        self._answers = answers

    def answer(self, question: Question) -> object:
        """Return the answer to a prompt, a function of Lisp, or a kind of question."""
        label = question.label
        self._outcome.asked.append(Asked(question.kind, label, question.params))
        for key in (label, question.kind):
            if key in self._answers:
                answer = self._answers[key]
                if isinstance(answer, BaseException) or (
                    isinstance(answer, type) and issubclass(answer, BaseException)
                ):
                    raise answer
                return to_lisp(answer) if question.needs == "emacs" else answer
        raise Unsupported(f"the test has no answer to {label!r}; give it in answers={{...}}")

    def say(self, text: str) -> None:
        """Keep a text."""
        self._outcome.said.append(text)


class Outcome:
    """What a call has led to: a result or an error, and what was said on the way."""

    def __init__(self) -> None:
        self.error: Any = None  # an Error; tests want to look into it without asking first
        self.exception: BaseException | None = None  # that the function has raised
        self.progress: list[Progress] = []
        self.log: list[tuple[str, str]] = []  # level and text of each `ctx.log`
        self.partial: list[Any] = []  # what a generator has yielded
        self.asked: list[Asked] = []
        self.said: list[str] = []  # each `ctx.say`
        self.notified: list[tuple[str, Any]] = []  # topic and params of each `notify`
        self._result: Any = None

    @property
    def result(self) -> Any:
        """The result as the caller gets it; a failed call raises what went wrong."""
        if self.error is not None:
            raise AssertionError(f"the call failed: {self._describe()}") from self.exception
        return self._result

    def _describe(self) -> str:
        if self.exception is not None:
            return describe(self.exception)
        data = "" if self.error.data is None else f" {dumps(self.error.data)}"
        return f"{self.error.message}{data}"

    def __repr__(self) -> str:
        if self.error is not None:
            return f"Outcome(error={self.error!r})"
        return f"Outcome(result={self._result!r})"


def call(
    function: Callable[..., object],
    /,
    *positional: object,
    cancel_after: float | None = None,
    answers: Mapping[str, Any] | None = None,
    **params: object,
) -> Outcome:
    """Call a function as a caller of its method would, and return what comes of it.

    Parameters are given by name, or all by position, as values of JSON. After `cancel_after`
    seconds the call is cancelled, as by C-g; that works on the main thread only. `answers` are
    those to the questions of the function, by their prompts; for `ctx.emacs`, by the name of the
    function or the text. An exception among them is raised, as in `{"Really?": Declined}`.
    """
    if positional and params:
        raise TypeError("parameters are given by name or by position, not both")
    given: Params = loads(dumps([*positional] if positional else params))
    outcome = Outcome()
    method = method_from(function, getattr(function, "__name__", "method"))
    with interruption(cancel_after) as cancel:
        try:
            context = _context(outcome, cancel, answers or {})
            outcome._result = loads(_call(method, given, context, outcome))
        except RpcError as error:
            outcome.error = Error(error.code, error.message, error.data)
        except Cancelled:
            outcome.error = Error.of(REQUEST_CANCELLED)
        except (Exception, SystemExit) as error:  # noqa: BLE001
            outcome.exception = error
            outcome.error = Error(-32603, "Internal error", explain(error))
    return outcome


def _call(method: Method, params: Params, context: Context, outcome: Outcome) -> str:
    """Call the method, and collect what it yields and what it sends at any time."""

    def keep(topic: str, params: object) -> None:
        outcome.notified.append((topic, loads(ENCODE(params))))

    disconnect = connect(keep)
    pieces: list[str] = []
    try:
        result = method.call(params, context, pieces.append if method.streams else None)
    finally:
        disconnect()
        outcome.partial = [loads(piece) for piece in pieces]
    return result if method.streams is None else join(pieces, method.streams)


def _context(outcome: Outcome, cancel: Interruption, answers: Mapping[str, Any]) -> Context:
    def add_progress(value: dict[str, Any]) -> None:
        outcome.progress.append(Progress(**value))

    def add_log_line(level: str, text: str) -> None:
        outcome.log.append((level, text))

    caller = Answers(outcome, answers)
    return Context(add_progress, add_log_line, lambda: cancel.requested, cancel.hold, caller)


class Interruption:
    """A cancel that is on its way, due, or put off."""

    def __init__(self) -> None:
        self.requested = False
        self._raised = False
        self._held = 0

    def on_signal(self, _number: int, _frame: object) -> None:
        """Raise Cancelled in the function, once."""
        self.requested = True
        self._raise()

    def _raise(self) -> None:
        if self.requested and not self._held and not self._raised:
            self._raised = True
            raise Cancelled

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Put it off to the end of a block."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        self._raise()


@contextmanager
def interruption(seconds: float | None) -> Iterator[Interruption]:
    """Cancel what runs in the block after some seconds, by the signal that the daemon uses."""
    cancel = Interruption()
    if seconds is None:
        yield cancel
        return
    here = threading.get_ident()
    timer = threading.Timer(seconds, signal.pthread_kill, [here, signal.SIGURG])
    before = signal.signal(signal.SIGURG, cancel.on_signal)
    timer.start()
    try:
        yield cancel
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGURG, before)
