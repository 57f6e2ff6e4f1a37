"""The methods by name, and the description of each.

A `Method` is described once, by its parameters and its result; the lists that clients
ask for are made from that. The user's methods are loaded when somebody asks for one or
for a list, or when there is nothing else to do, so that they do not delay the first
reply of the methods that are built in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from duet_rpc.failures import PACKAGE, SafeText, name_of, place_of
from duet_rpc.jsonrpc.errors import RpcError, invalid_params
from duet_rpc.jsonrpc.jsontext import dumps
from duet_rpc.jsonrpc.limits import RECEIVED_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Union

    from duet_rpc.methods.context import Context

    Schema = dict[str, object]
    Params = Union[dict[str, object], list[object], None]


class Mismatch(Exception):
    """A value does not fit: where, what was expected, and what came."""

    def __init__(self, expected: str, received: str, accepted: list[str] | None = None) -> None:
        super().__init__(expected)
        self.path = ""
        self.expected = expected
        self.received = received
        self.accepted = accepted

    def under(self, step: str) -> Mismatch:
        """Put one step in front of the path."""
        if self.path and not self.path.startswith("["):
            step += "."
        self.path = step + self.path
        return self

    def as_error(self) -> RpcError:
        """Say it to the caller."""
        return invalid_params(self.path, self.expected, self.received, self.accepted)


class BadResult(SafeText):
    """What a method returned has no form in JSON; its text says why and which method."""


class Param:
    """One parameter: its type's name for people, its JSON Schema, its check."""

    __slots__ = ("check", "label", "required", "schema")

    def __init__(
        self, label: str, schema: Schema, check: Callable[[Any], Any], required: bool = True
    ) -> None:
        self.label = label
        self.schema = schema
        self.check = check
        self.required = required


class Method:
    """One function that can be called from outside."""

    __slots__ = (
        "_required", "context", "description", "encode", "function",
        "hints", "label", "name", "params", "returns", "source", "title",
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
        self.encode: Callable[[object], str] = dumps
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

    def call(self, params: Params, context: Context | None = None) -> str:
        """Check the parameters, call the function and return its result as JSON text."""
        return self.run(self.bind(params), context)

    def run(self, arguments: dict[str, object], context: Context | None = None) -> str:
        """Call the function with what `bind` has made of the parameters."""
        if self.context is not None:
            arguments[self.context] = context
        value = self.function(**arguments)
        try:
            return self.encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            # Raised by the encoder, it says what is not JSON; by the user's code, anything.
            own = place_of(error, PACKAGE) is not None
            what = f"{name_of(error)} in it" if own else str(error)
            raise BadResult(f"{what} (returned by {self.place})") from None

    def bind(self, params: Params) -> dict[str, object]:
        """Check parameters given by name or by position."""
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
        return arguments


class Registry:
    """The methods of one server."""

    def __init__(self) -> None:
        self._methods: dict[str, Method] = {}
        self._hidden: dict[str, Method] = {}
        self.load_waits: Callable[[], None] | None = None  # there are methods to be loaded

    def add(self, method: Method, hidden: bool = False) -> None:
        """Add a method under its name; a hidden one is answered but stands in no list."""
        (self._hidden if hidden else self._methods)[method.name] = method

    def remove(self, name: str) -> None:
        """Forget a method."""
        self._methods.pop(name, None)

    def load_later(self, load: Callable[[], None]) -> None:
        """Take a function that adds more methods, for when they are needed."""
        self.load_waits = load

    def load(self) -> None:
        """Load what waits to be loaded."""
        load, self.load_waits = self.load_waits, None
        if load is not None:
            load()

    def get(self, name: str) -> Method | None:
        """Find a method among those that are there."""
        return self._methods.get(name) or self._hidden.get(name)

    def find(self, name: str) -> Method | None:
        """Find a method by its name, loading more where it must."""
        method = self.get(name)
        if method is None and self.load_waits is not None:
            self.load()
            method = self.get(name)
        return method

    def __iter__(self) -> Iterator[Method]:
        self.load()
        return iter(self._methods.values())


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
