"""What a method can say and ask while it runs.

A parameter annotated `Context` is not part of a method's signature; the server fills it
in. What it does is handed to it as functions, so that methods know no wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from duet_rpc.methods.asking import (
    Choice,
    Unsupported,
    read_text,
    read_truth,
    text_question,
    yes_or_no,
)
from duet_rpc.methods.emacs import Emacs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from typing import Literal

    from duet_rpc.methods.asking import Caller, Question

    T = TypeVar("T")


class Cancelled(BaseException):
    """The caller has lost interest. Not an Exception, so that `except Exception` lets it by."""


class MethodLog:
    """Lines of a method in the daemon's log."""

    __slots__ = ("_add",)

    def __init__(self, add: Callable[[str, str], None]) -> None:
        self._add = add

    def debug(self, message: object) -> None:
        """Log at level debug."""
        self._add("debug", str(message))

    def info(self, message: object) -> None:
        """Log at level info."""
        self._add("info", str(message))

    def warn(self, message: object) -> None:
        """Log at level warn."""
        self._add("warn", str(message))

    warning = warn  # what `logging` and loguru call it

    def error(self, message: object) -> None:
        """Log at level error."""
        self._add("error", str(message))


class Nobody:
    """A caller that can neither be asked nor told."""

    def answer(self, question: Question) -> object:
        """Refuse."""
        raise Unsupported(f"nobody can be asked here ({question.method})")

    def say(self, text: str) -> None:
        """Tell nobody."""


class Context:
    """The call that a method is answering."""

    __slots__ = ("_caller", "_is_cancelled", "_send_progress", "_uninterrupted", "emacs", "log")

    def __init__(
        self,
        send_progress: Callable[[dict[str, object]], None] | None,
        add_log_line: Callable[[str, str], None],
        is_cancelled: Callable[[], bool],
        uninterrupted: Callable[[], AbstractContextManager[None]],
        caller: Caller | None = None,
    ) -> None:
        self._send_progress = send_progress
        self._is_cancelled = is_cancelled
        self._uninterrupted = uninterrupted
        self._caller: Caller = caller or Nobody()
        self.log = MethodLog(add_log_line)
        self.emacs = Emacs(self._caller)

    # Telling.

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the caller how far it is, if the caller wants to know."""
        if self._send_progress is not None:
            self._send_progress({"done": done, "total": total, "message": message})

    def say(self, text: object) -> None:
        """Show a text to whoever called: in the echo area, on stderr, or else in the log."""
        self._caller.say(str(text))

    # Asking. Each waits for the answer, and raises Unsupported or Declined.

    def ask(self, prompt: str, default: str | None = None, secret: bool = False) -> str:
        """Ask for a text; a secret one is not shown while it is typed."""
        question = text_question(prompt, default, secret)
        return read_text(question, self._caller.answer(question))

    @overload
    def choose(
        self,
        prompt: str,
        choices: Iterable[T] | Mapping[T, str],
        multiple: Literal[False] = ...,
        default: T | None = ...,
    ) -> T: ...

    @overload
    def choose(
        self,
        prompt: str,
        choices: Iterable[T] | Mapping[T, str],
        multiple: Literal[True],
        default: Iterable[T] | None = ...,
    ) -> list[T]: ...

    def choose(
        self,
        prompt: str,
        choices: Iterable[Any] | Mapping[Any, str],
        multiple: bool = False,
        default: Any = None,
    ) -> Any:
        """Ask for one of some values, or for a list of them; a dict says something of each."""
        choice = Choice(prompt, choices, multiple, default)
        return choice.read(self._caller.answer(choice.question))

    def confirm(self, prompt: str) -> bool:
        """Ask a question that is answered by yes or no."""
        question = yes_or_no(prompt)
        return read_truth(question, self._caller.answer(question))

    # Being cancelled.

    @property
    def cancelled(self) -> bool:
        """True once the caller has cancelled the call; of use inside `uninterrupted`."""
        return self._is_cancelled()

    def uninterrupted(self) -> AbstractContextManager[None]:
        """Return a context in which a cancelled call goes on to the end of the block."""
        return self._uninterrupted()
