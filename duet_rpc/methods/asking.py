"""What a method asks of whoever called it, and what can come of that.

A question is a value: its kind, and what the caller needs to know to answer it. Who answers is a
`Caller`: a client at the other end of a wire, a terminal, or a test. It returns the answer as a
value of JSON, or raises; the answer is checked here, whoever gave it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.errors import (
    DECLINED,
    METHOD_NOT_FOUND,
    REQUEST_FAILED,
    TITLES,
    UNSUPPORTED,
    RpcError,
)
from duet_rpc.methods.method import json_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, NoReturn, Protocol

    from duet_rpc.jsonrpc.errors import Error

    class Caller(Protocol):
        """Whoever called a method, as far as it can be asked and told."""

        def answer(self, question: Question) -> object:
            """Return the answer, a value of JSON; raise Unsupported, Declined or RpcError."""

        def say(self, text: str) -> None:
            """Tell a text."""


class Unsupported(RpcError):
    """The caller can't do what the method asks of it; the text says what that is."""

    def __init__(self, what: str) -> None:
        super().__init__(UNSUPPORTED, f"{TITLES[UNSUPPORTED]}: {what}")


class Declined(RpcError):
    """The caller does not answer a question."""

    def __init__(self, why: str = "the question was not answered") -> None:
        super().__init__(DECLINED, f"{TITLES[DECLINED]}: {why}")


class Question:
    """One question: `ask`, `choose`, `confirm`, or one of those for Emacs."""

    __slots__ = ("kind", "params")

    def __init__(self, kind: str, params: dict[str, Any]) -> None:
        self.kind = kind
        self.params = params

    @property
    def needs(self) -> str:
        """What a caller must be able to do."""
        return "emacs" if self.kind.startswith("emacs/") else self.kind

    @property
    def method(self) -> str:
        """The method that asks a client."""
        return self.kind if self.needs == "emacs" else f"client/{self.kind}"

    @property
    def label(self) -> str:
        """What is asked, in the words of whoever wrote the method."""
        params = self.params
        return str(
            params.get("prompt") or params.get("function") or params.get("text") or self.kind
        )

    def wrong_answer(self, expected: str, answer: object) -> RpcError:
        """Return what is raised for an answer that is none."""
        got = "another text" if isinstance(answer, str) else f"of type {json_type(answer)}"
        detail = f"{self.method}: expected {expected}, the answer is {got}"
        return RpcError(REQUEST_FAILED, f"{TITLES[REQUEST_FAILED]}: {detail}")


def raise_error(error: Error) -> NoReturn:
    """Raise what an answer that is an error means."""
    if error.code in (UNSUPPORTED, METHOD_NOT_FOUND):
        raise Unsupported(_detail(error, "the caller does not offer this"))
    if error.code == DECLINED:
        raise Declined(_detail(error, "the question was not answered"))
    raise RpcError(error.code, error.message, error.data)


def _detail(error: Error, otherwise: str) -> str:
    return error.message.partition(": ")[2] or otherwise


# The three kinds of questions to a person.


def text_question(prompt: str, default: str | None, secret: bool) -> Question:
    """Ask for a text."""
    params: dict[str, object] = {"prompt": _checked("prompt", prompt)}
    if default is not None:
        params["default"] = _checked("default", default)
    if secret:
        params["secret"] = True
    return Question("ask", params)


def read_text(question: Question, answer: object) -> str:
    """Return the text that was given."""
    if not isinstance(answer, str):
        raise question.wrong_answer("a text", answer)
    return answer


def yes_or_no(prompt: str) -> Question:
    """Ask whether."""
    return Question("confirm", {"prompt": _checked("prompt", prompt)})


def read_truth(question: Question, answer: object) -> bool:
    """Return yes or no."""
    if not isinstance(answer, bool):
        raise question.wrong_answer("true or false", answer)
    return answer


class Choice:
    """Ask for one of some values, or several; they are shown as `str` writes them."""

    def __init__(
        self,
        prompt: str,
        choices: Iterable[Any] | Mapping[Any, str],
        multiple: bool,
        default: Any,
    ) -> None:
        notes: Any = choices if hasattr(choices, "keys") else {}
        values = list(choices)
        self._by_text: dict[str, Any] = {str(each): each for each in values}
        if not values:
            raise ValueError("choose: there are no choices")
        if len(self._by_text) < len(values):
            raise ValueError("choose: two choices look the same")
        self._multiple = multiple
        shown = []
        for text, value in self._by_text.items():
            note = notes[value] if notes else None
            shown.append({"text": text} if note is None else {"text": text, "note": str(note)})
        params: dict[str, object] = {"prompt": _checked("prompt", prompt), "choices": shown}
        if multiple:
            params["multiple"] = True
        if default is not None:
            texts = [str(each) for each in default] if multiple else [str(default)]
            for text in texts:
                if text not in self._by_text:
                    raise ValueError(f"choose: the default {text!r} is not among the choices")
            params["default"] = texts if multiple else texts[0]
        self.question = Question("choose", params)

    def read(self, answer: object) -> Any:
        """Return the value that was chosen, or the list of them."""
        if not self._multiple:
            return self._value(answer)
        if not isinstance(answer, list):
            raise self.question.wrong_answer("a list of choices", answer)
        return [self._value(each) for each in answer]

    def _value(self, text: object) -> Any:
        if not isinstance(text, str) or text not in self._by_text:
            raise self.question.wrong_answer("one of the choices", text)
        return self._by_text[text]


def _checked(name: str, text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{name} must be str, not {type(text).__name__}")
    return text
