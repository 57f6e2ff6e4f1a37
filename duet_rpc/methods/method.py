"""One method: the parameters that it takes, the result that it returns, and how it is called.

A `Method` is described once, by its parameters and its result; checks and the lists that
clients ask for are made from that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from duet_rpc.failures import PACKAGE, SafeText, name_of, place_of
from duet_rpc.jsonrpc.errors import RpcError, invalid_params
from duet_rpc.jsonrpc.jsontext import dumps
from duet_rpc.jsonrpc.limits import RECEIVED_MAX
from duet_rpc.methods.stream import run_stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Union

    from duet_rpc.methods.commands import Source
    from duet_rpc.methods.context import Context
    from duet_rpc.methods.offers import Prompt, Resource
    from duet_rpc.methods.stream import Pieces

    Offer = Union[Resource, Prompt]
    Schema = dict[str, object]
    Params = Union[dict[str, object], list[object], None]


class Mismatch(Exception):
    """A value does not fit: where, what was expected, and what came."""

    def __init__(
        self,
        expected: str,
        received: str,
        accepted: list[str] | None = None,
        of_value: bool = False,
    ) -> None:
        super().__init__(expected)
        self.path = ""
        self.logged_path = ""  # without names that are data
        self.expected = expected
        self.received = received
        self.accepted = accepted
        self.of_value = of_value  # its type was right

    def under(self, step: str, logged: str | None = None) -> Mismatch:
        """Put one step in front of the path; into the log goes another, if there is one."""
        self.path = _join(step, self.path)
        self.logged_path = _join(step if logged is None else logged, self.logged_path)
        return self

    def as_error(self) -> RpcError:
        """Say it to the caller."""
        return invalid_params(self.path, self.expected, self.received, self.accepted)


def _join(step: str, path: str) -> str:
    return f"{step}.{path}" if path and not path.startswith("[") else step + path


class BadResult(SafeText):
    """What a method returned is not JSON, or not what its hint says; its text says why.

    The path leads to what is wrong, where the hint is not met.
    """

    def __init__(self, text: str, source: tuple[str, int] | None, path: str | None = None) -> None:
        super().__init__(text)
        self.source = source
        self.path = path


class Param:
    """One parameter: its type's name for people, its JSON Schema, its check."""

    __slots__ = ("check", "label", "required", "schema", "source")

    def __init__(
        self,
        label: str,
        schema: Schema,
        check: Callable[[Any], Any],
        required: bool = True,
        source: Source | None = None,
    ) -> None:
        self.label = label
        self.schema = schema
        self.check = check
        self.required = required
        self.source = source  # where Emacs takes the value from


class Method:
    """One function that can be called from outside."""

    __slots__ = (
        "_required", "command", "context", "description", "encode", "function",
        "hints", "label", "name", "offer", "params", "returns", "source", "streams", "title",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        description: str,
        function: Callable[..., object],
        *,
        params: dict[str, Param] | None = None,
        label: str = "any",
        returns: Schema,
    ) -> None:
        self.name = name
        self.description = description  # its first line stands in lists
        self.function = function
        self.params = params or {}
        self.label = label  # the name of what it returns, for people
        self.returns = returns
        self.context: str | None = None  # the parameter that takes the call's Context
        self.source: tuple[str, int] | None = None  # file and line, where it is the user's
        self.title: str | None = None  # what to show to a person instead of the name
        self.hints: dict[str, bool] = {}  # what it says of its effects
        self.command: dict[str, object] | None = None  # how Emacs calls it, as `x-command` says
        self.offer: Offer | None = None  # what it is to an AI client; None: a tool
        self.encode: Callable[[object], str] = dumps  # checks the result, too
        self.streams: Pieces | None = None  # an iterator's, which are encoded one by one
        self._required = [name for name, param in self.params.items() if param.required]

    @property
    def summary(self) -> str:
        """The first line of the description."""
        return self.description.strip().partition("\n")[0]

    @property
    def place(self) -> str:
        """File and line for the log, or the name where it has none."""
        if self.source is None:
            return self.name
        file, line = self.source
        return f"{file.rpartition('/')[2]}:{line}"

    def call(
        self,
        params: Params,
        context: Context | None = None,
        send: Callable[[str], None] | None = None,
    ) -> str:
        """Check the parameters, call the function and return its result as JSON text."""
        return self.write(self.function(**self.bind(params, context)), send)

    def write(self, value: Any, send: Callable[[str], None] | None = None) -> str:
        """Check what the function has returned and write it as JSON.

        The pieces of a method that streams go to `send`, as JSON text, if there is one.
        """
        if self.streams is not None:
            return run_stream(value, self.streams, self._encode, send)
        return self._encode(value)

    def _encode(self, value: object) -> str:
        try:
            return self.encode(value)
        except Mismatch as wrong:
            at = wrong.logged_path
            at = f"{at if at.startswith('[') else '.' + at}: " if at else ""
            what = f"{at}expected {wrong.expected}, got {wrong.received}"
            raise BadResult(f"returned by {self.place}: {what}", self.source, wrong.path) from None
        except (TypeError, ValueError, RecursionError) as error:
            # Raised by the encoder, it says what is not JSON; by the user's code, anything.
            own = place_of(error, PACKAGE) is not None
            what = f"{name_of(error)} in it" if own else str(error)
            raise BadResult(f"{what} (returned by {self.place})", self.source) from None

    def bind(self, params: Params, context: Context | None = None) -> dict[str, object]:
        """Check parameters given by name or by position; return the function's arguments."""
        expected = self.params
        given: dict[str, object]
        if isinstance(params, list):
            if len(params) > len(expected):
                at = len(expected)
                most = f"{at} parameters at most"
                raise invalid_params(f"[{at}]", most, json_type(params[at]))
            given = dict(zip(expected, params))
        else:
            given = params or {}
        arguments: dict[str, object] = {}
        for name, value in given.items():
            param = expected.get(name)
            if param is not None:
                try:
                    arguments[name] = param.check(value)
                except Mismatch as mismatch:
                    raise mismatch.under(name).as_error() from None
            elif name != "_meta":  # which says something about the call itself
                shown = name[:RECEIVED_MAX]
                raise invalid_params(shown, "no parameter of this name", json_type(value))
        for name in self._required:
            if name not in arguments:
                param = expected[name]
                raise (
                    Mismatch(param.label, "missing", accepted(param.schema)).under(name).as_error()
                )
        if self.context is not None:
            arguments[self.context] = context
        return arguments


def accepted(schema: Schema) -> list[str] | None:
    """Return the fixed set of values, as JSON or the text itself, where there is one."""
    values, branches = schema.get("enum"), schema.get("anyOf")
    if isinstance(values, list):
        return [value if isinstance(value, str) else dumps(value) for value in values]
    if isinstance(branches, list):
        return [word for branch in branches for word in accepted(branch) or ()] or None
    return None


def json_type(value: object) -> str:
    """Name the JSON type of a value that came as JSON."""
    if value is None:
        return "null"
    return {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}.get(
        type(value), "object"
    )
