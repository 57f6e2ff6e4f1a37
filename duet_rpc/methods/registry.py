"""The methods by name, and what is said of each.

A `Method` is described once, by its parameters' and its result's JSON Schema; the lists
that clients ask for are made from that.
"""

from __future__ import annotations

from duet_rpc.protocol.errors import invalid_params
from duet_rpc.protocol.messages import to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Union

    Schema = dict[str, object]
    Params = Union[dict[str, object], list[object], None]


class Method:
    """One function that can be called from outside."""

    __slots__ = ("_result", "constant", "description", "function", "name", "params", "returns")

    def __init__(
        self,
        name: str,
        description: str,
        function: Callable[..., object],
        *,
        params: dict[str, Schema] | None = None,
        returns: Schema,
        constant: bool = False,
    ) -> None:
        self.name = name
        self.description = description
        self.function = function
        self.params = params or {}
        self.returns = returns
        self.constant = constant  # the result is always the same: encode it once
        self._result: bytes | None = None

    def call(self, params: Params) -> bytes:
        """Call the function; return its result as JSON."""
        arguments = bind(self.params, params) if params or self.params else ()
        if self._result is not None:
            return self._result
        result = to_json(self.function(*arguments))
        if self.constant:
            self._result = result
        return result


class Registry:
    """The methods of one server."""

    def __init__(self) -> None:
        self._methods: dict[str, Method] = {}
        self.hidden: dict[str, Method] = {}  # answered, but in no list

    def add(self, method: Method) -> None:
        """Add a method under its name."""
        self._methods[method.name] = method

    def find(self, name: str) -> Method | None:
        """Find a method by its name."""
        return self._methods.get(name) or self.hidden.get(name)

    def __iter__(self) -> Iterator[Method]:
        return iter(self._methods.values())


def bind(expected: dict[str, Schema], params: Params) -> list[object]:
    """Put parameters given by name or by position in the order of the signature."""
    if isinstance(params, dict):
        for name, value in params.items():
            if name not in expected and name != "_meta":  # what is said about the call itself
                raise invalid_params(name, "no parameter of this name", json_type(value))
        given = params
    else:
        names = list(expected)
        values = params or []
        if len(values) > len(names):
            most = len(names)
            expected_count = f"{most} parameters at most"
            raise invalid_params(f"[{most}]", expected_count, json_type(values[most]))
        given = dict(zip(names, values))
    for name, schema in expected.items():
        if name not in given:
            raise invalid_params(name, type_name(schema), "missing", accepted(schema))
    return [given[name] for name in expected]


def accepted(schema: Schema) -> list[str] | None:
    """Return the fixed set of values, where there is one."""
    values = schema.get("enum")
    return [str(value) for value in values] if isinstance(values, list) else None


def type_name(schema: Schema) -> str:
    """Name a schema's type for a person."""
    return str(schema.get("type", "any"))


def json_type(value: object) -> str:
    """Name the JSON type of a value that came as JSON."""
    if value is None:
        return "null"
    return {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}.get(
        type(value), "object"
    )
