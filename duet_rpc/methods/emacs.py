"""`ctx.emacs`: functions of the Emacs that has called, and the values that go there and back.

| Python | Lisp |
| --- | --- |
| `None`, `False` | `nil`; it comes back as `None` |
| `True` | `t` |
| a text, a number | a string, a number |
| a list | a vector; vectors and lists both come back as lists |
| a tuple | a list |
| a dict | a plist whose keys are keywords |
| `Symbol("x")`, `Keyword("x")` | `x`, `:x` |
| a `Handle` | the buffer, marker, window, … that it stands for |

How that is written in JSON is in docs/asking.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from duet_rpc.jsonrpc.errors import EMACS_ERROR, RpcError
from duet_rpc.methods.asking import Question

if TYPE_CHECKING:
    from duet_rpc.methods.asking import Caller

TAG = "lisp"
"""The member that says of an object what it is in Lisp."""


class EmacsError(Exception):
    """An error that was signalled in Lisp: its symbol, and its data."""

    def __init__(self, message: str, symbol: str, data: Any) -> None:
        super().__init__(message)
        self.symbol = symbol
        self.data = data


class Symbol(str):
    """A symbol of Lisp; equal to the text of its name."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class Keyword(Symbol):
    """A keyword of Lisp, without its colon."""

    __slots__ = ()


_dropped: list[int] = []
"""The ids of handles that nobody has any more, which Emacs has not been told yet."""


class Handle:
    """Something in Emacs that has no other form here, such as a buffer, a marker or a window.

    It stays what it is for as long as it exists there; used later, it raises EmacsError with the
    symbol `duet-rpc-gone`.
    """

    __slots__ = ("__weakref__", "id", "text", "type")

    def __init__(self, type: str, id: int, text: str) -> None:
        self.type = type
        self.id = id
        self.text = text  # as Lisp prints it

    def __repr__(self) -> str:
        return f"<Handle {self.text}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __del__(self) -> None:
        # In the middle of anything, on any thread: nothing is sent from here.
        _dropped.append(self.id)


class EmacsBuffer:
    """A buffer as it was when it was asked for; its text is fetched when it is wanted."""

    def __init__(self, emacs: Emacs, fields: dict[str, Any]) -> None:
        self._emacs = emacs
        self._text: str | None = None
        self.handle: Handle = fields["buffer"]
        self.name: str = fields["name"]
        self.file: str | None = fields.get("file")
        self.mode: str = str(fields["mode"])
        self.point: int = fields["point"]
        self.mark: int | None = fields.get("mark")

    @property
    def text(self) -> str:
        """The text, fetched once."""
        if self._text is None:
            self._text = self._emacs._buffer(self.handle)["text"]
        return self._text

    def __repr__(self) -> str:
        return f"<EmacsBuffer {self.name}>"


class Emacs:
    """The Emacs that called a method."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def call(self, function: str, *arguments: object) -> Any:
        """Call a function of Lisp and return its value; an error is an EmacsError."""
        if not isinstance(function, str):
            raise TypeError(f"function must be str, not {type(function).__name__}")
        args = [to_lisp(each) for each in arguments]
        return self._request("emacs/call", {"function": str(function), "args": args})

    def eval(self, text: str) -> Any:
        """Evaluate Lisp and return the value of the last form; an error is an EmacsError."""
        if not isinstance(text, str):
            raise TypeError(f"text must be str, not {type(text).__name__}")
        return self._request("emacs/eval", {"text": text})

    def buffer(self) -> EmacsBuffer:
        """Return the buffer from which the method was called."""
        return EmacsBuffer(self, self._buffer(None))

    def _buffer(self, buffer: Handle | None) -> dict[str, Any]:
        params = {} if buffer is None else {"buffer": to_lisp(buffer), "text": True}
        question = Question("emacs/buffer", params)
        fields = self._ask(question)
        if (
            not isinstance(fields, dict)
            or not EXPECTED.items() <= {name: type(value) for name, value in fields.items()}.items()
        ):
            raise question.wrong_answer("what a buffer is", None)
        if buffer is not None and not isinstance(fields.get("text"), str):
            raise question.wrong_answer("a buffer's text", fields.get("text"))
        return fields

    def _request(self, kind: str, params: dict[str, object]) -> Any:
        return self._ask(Question(kind, params))

    def _ask(self, question: Question) -> Any:
        released = [_dropped.pop() for _ in range(len(_dropped))]
        if released:
            question.params["release"] = released
        try:
            answer = self._caller.answer(question)
        except RpcError as error:
            if error.code != EMACS_ERROR:
                raise
            data = error.data if isinstance(error.data, dict) else {}
            symbol = data.get("symbol")
            symbol = symbol if isinstance(symbol, str) else "error"
            raise EmacsError(error.message, symbol, from_lisp(data.get("data"))) from None
        return from_lisp(answer)


EXPECTED = {"buffer": Handle, "name": str, "point": int}


def to_lisp(value: Any) -> Any:
    """Return the JSON that stands for an argument."""
    if isinstance(value, Symbol):
        kind = "keyword" if isinstance(value, Keyword) else "symbol"
        return {TAG: kind, "name": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Handle):
        return {TAG: "handle", "id": value.id, "type": value.type, "text": value.text}
    if isinstance(value, EmacsBuffer):
        return to_lisp(value.handle)
    if isinstance(value, tuple):
        return {TAG: "list", "items": [to_lisp(each) for each in value]}
    if isinstance(value, list):
        return [to_lisp(each) for each in value]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        if TAG in value:
            return {TAG: "plist", "members": [[n, to_lisp(v)] for n, v in value.items()]}
        return {name: to_lisp(each) for name, each in value.items()}
    raise TypeError(
        f"a value of type {type(value).__name__} has no form in Lisp; "
        "use None, bool, int, float, str, list, tuple, dict, Symbol, Keyword or a Handle"
    )


def from_lisp(value: Any) -> Any:
    """Return what the JSON of a Lisp value stands for; what is not known stays as it is."""
    if isinstance(value, list):
        return [from_lisp(each) for each in value]
    if not isinstance(value, dict):
        return value
    kind, name = value.get(TAG), value.get("name")
    if kind == "symbol" and isinstance(name, str):
        return Symbol(name)
    if kind == "keyword" and isinstance(name, str):
        return Keyword(name)
    if kind == "handle" and isinstance(value.get("id"), int):
        return Handle(str(value.get("type")), value["id"], str(value.get("text")))
    if kind == "cons" and "car" in value and "cdr" in value:
        return (from_lisp(value["car"]), from_lisp(value["cdr"]))
    if kind == "list" and isinstance(value.get("items"), list):
        return [from_lisp(each) for each in value["items"]]
    if kind == "plist" and isinstance(value.get("members"), list):
        return {str(each[0]): from_lisp(each[1]) for each in value["members"]}
    return {name: from_lisp(each) for name, each in value.items()}
