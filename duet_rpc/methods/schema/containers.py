"""Shapes of arrays and objects whose members all have one type, and of tuples."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Set
from typing import TYPE_CHECKING, Any

from duet_rpc.methods.method import Mismatch, json_type
from duet_rpc.methods.schema.plain import plain, type_of
from duet_rpc.methods.schema.shape import ANY, Shape, Unsupported, anything, show, step_to

if TYPE_CHECKING:
    from duet_rpc.methods.schema.hints import Shapes

Arguments = tuple[Any, ...]


def list_shape(shapes: Shapes, arguments: Arguments) -> Shape:
    """Describe an array of any length."""
    return array_of(shapes.of(arguments[0]) if arguments else ANY)


def array_of(item: Shape) -> Shape:
    """Describe an array whose items all have one shape."""

    def check(value: Any) -> Any:
        if type(value) is not list:
            raise Mismatch("array", json_type(value))
        return value if item.check is anything else _each(item.check, value)

    def dump(value: Any) -> Any:
        value = _plain_array(value)
        return value if item.dump is anything else _each(item.dump, value)

    name = "array" if item.name == "any" else f"array of {item.name}"
    schema: dict[str, object] = {"type": "array"}
    if item.schema:
        schema["items"] = item.schema
    return Shape(name, schema, check, dump)


def _plain_array(value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        value = plain(value)
        if not isinstance(value, (list, tuple)):
            raise Mismatch("array", type_of(value))
    return value


def _each(convert: Callable[[Any], Any], values: Any) -> list[Any]:
    made: list[Any] = []
    try:
        for each in values:
            made.append(convert(each))  # noqa: PERF401 - the index is needed
    except Mismatch as mismatch:
        raise mismatch.under(f"[{len(made)}]") from None
    return made


def tuple_shape(shapes: Shapes, arguments: Arguments) -> Shape:
    """Describe an array of a fixed length, or of any length for `tuple[T, ...]`."""
    if not arguments or arguments[-1] is ...:
        whole = list_shape(shapes, arguments[:1])
        return whole._replace(check=lambda value: tuple(whole.check(value)))
    items = [shapes.of(each) for each in arguments]
    name = f"[{', '.join(item.name for item in items)}]"
    return fixed_array(name, items, len(items), lambda made: tuple(made))


def fixed_array(
    name: str, items: list[Shape], least: int, make: Callable[[list[Any]], Any]
) -> Shape:
    """Describe an array with a type for each place; the last ones may be absent."""
    count = len(items)
    expected = f"array of {count}" if least == count else f"array of {least} to {count}"

    def refuse_length(value: Any, kind: str) -> Mismatch:
        received = f"array of {len(value)}" if kind == "array" else kind
        return Mismatch(expected, received)

    def each(values: Any, dump: bool) -> list[Any]:
        made: list[Any] = []
        try:
            for item, value in zip(items, values):
                made.append((item.dump if dump else item.check)(value))
        except Mismatch as mismatch:
            raise mismatch.under(f"[{len(made)}]") from None
        return made

    def check(value: Any) -> Any:
        if type(value) is not list or not least <= len(value) <= count:
            raise refuse_length(value, json_type(value))
        return make(each(value, dump=False))

    def dump(value: Any) -> Any:
        value = plain(value)
        if not isinstance(value, (list, tuple)) or not least <= len(value) <= count:
            raise refuse_length(value, type_of(value))
        return each(value, dump=True)

    schema: dict[str, object] = {
        "type": "array",
        "items": [item.schema for item in items],
        "minItems": least,
        "maxItems": count,
    }
    return Shape(name, schema, check, dump)


def set_shape(shapes: Shapes, arguments: Arguments) -> Shape:
    """Describe an array in which nothing is twice."""
    return _set(shapes, arguments, set)


def frozenset_shape(shapes: Shapes, arguments: Arguments) -> Shape:
    """Describe an array in which nothing is twice, and which becomes a frozenset."""
    return _set(shapes, arguments, frozenset)


def _set(shapes: Shapes, arguments: Arguments, kind: Callable[[Any], Any]) -> Shape:
    if arguments and _never_hashable(arguments[0]):
        raise Unsupported(f"a set can't hold {show(arguments[0])}, which is not hashable")
    whole = list_shape(shapes, arguments)

    def make(items: Any) -> Any:
        try:
            made = kind(items)
        except TypeError:
            raise Mismatch("array of hashable values", "array", of_value=True) from None
        if len(made) != len(items):
            raise Mismatch("array without duplicates", "array with duplicates", of_value=True)
        return made

    def dump(value: Any) -> Any:
        made = whole.dump(value)
        if not isinstance(value, Set):
            make(made)
        return made

    schema = {**whole.schema, "uniqueItems": True}
    return Shape(whole.name, schema, lambda value: make(whole.check(value)), dump)


def _never_hashable(hint: Any) -> bool:
    kind = getattr(hint, "__origin__", hint)
    return isinstance(kind, type) and kind.__hash__ is None


def dict_shape(shapes: Shapes, arguments: Arguments) -> Shape:
    """Describe an object that has members of one type under any name."""
    key = ANY if not arguments or arguments[0] in (str, Any) else _key(shapes, arguments[0])
    item = shapes.of(arguments[1]) if arguments else ANY
    name = "object" if item.name == "any" else f"object of {item.name}"
    schema: dict[str, object] = {"type": "object"}
    if key.schema:
        schema["propertyNames"] = key.schema
    if item.schema:
        schema["additionalProperties"] = item.schema
    members = Members(key, item)
    return Shape(name, schema, members.check, members.dump)


class Members:
    """The checks of an object whose members all have one type."""

    def __init__(self, key: Shape, item: Shape) -> None:
        self._key = key
        self._item = item

    def check(self, value: Any) -> Any:
        """Make a dict of an object."""
        if type(value) is not dict:
            raise Mismatch("object", json_type(value))
        key, item = self._key.check, self._item.check
        if key is anything and item is anything:
            return value
        made = {}
        for name, each in value.items():
            try:
                made[key(name)] = item(each)
            except Mismatch as mismatch:
                raise mismatch.under(step_to(name)) from None
        return made

    def dump(self, value: Any) -> Any:
        """Check the dict that a method returned."""
        value = plain(value)
        if not isinstance(value, dict):
            raise Mismatch("object", type_of(value))
        key, item = self._key.dump, self._item.dump
        if key is anything and item is anything:
            return value
        made = {}
        for name, each in value.items():
            try:
                made[key(name)] = item(each)
            except Mismatch as mismatch:
                # A name that is data is not for the log.
                raise mismatch.under(step_to(str(name)), logged="[*]") from None
        return made


INTEGER_KEY = "^(?:0|-?[1-9][0-9]*)$"


def _key(shapes: Shapes, hint: Any) -> Shape:
    """Describe the names of an object's members: strings, whatever they are to Python."""
    inner = shapes.of(hint)
    kind = inner.schema.get("type")
    if kind not in ("string", "integer"):
        raise Unsupported(
            f"a dict in JSON has strings for its keys, not {show(hint)}; use str, int, an Enum, a "
            "Literal or a type that is written as a string"
        )
    choices = inner.schema.get("enum")
    schema: dict[str, object] = inner.schema
    if kind == "integer":
        schema = {"pattern": INTEGER_KEY}
        if isinstance(choices, list):
            schema = {"enum": [str(each) for each in choices]}

    def check(name: str) -> Any:
        value: Any = name
        if kind == "integer" and name[:20].removeprefix("-").isascii():
            try:
                value = int(name)
            except ValueError:
                value = name
            if str(value) != name:
                value = name
        try:
            return inner.check(value)
        except Mismatch as mismatch:
            expected = f"{mismatch.expected} as its name"
            raise Mismatch(expected, "string", mismatch.accepted, of_value=True) from None

    def dump(name: Any) -> str:
        return str(inner.dump(name))

    return Shape(inner.name, schema, check, dump)


CONTAINERS: dict[Any, Callable[[Shapes, Arguments], Shape]] = {
    list: list_shape,
    collections.abc.Sequence: list_shape,
    collections.abc.MutableSequence: list_shape,
    collections.abc.Iterable: list_shape,
    collections.abc.Collection: list_shape,
    tuple: tuple_shape,
    set: set_shape,
    collections.abc.Set: set_shape,
    collections.abc.MutableSet: set_shape,
    frozenset: frozenset_shape,
    dict: dict_shape,
    collections.abc.Mapping: dict_shape,
    collections.abc.MutableMapping: dict_shape,
}
