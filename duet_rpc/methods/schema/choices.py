"""Shapes of fixed sets of values, and of alternatives."""

from __future__ import annotations

import enum
from typing import Any

from duet_rpc.jsonrpc.limits import RECEIVED_MAX
from duet_rpc.methods.method import Mismatch, accepted, json_type
from duet_rpc.methods.schema.plain import plain, type_of
from duet_rpc.methods.schema.shape import NONE, Shape, Unsupported


def literal_shape(values: list[Any]) -> Shape:
    """Describe a `Literal`."""
    if not all(type(value) in (str, int, bool, NONE) for value in values):
        raise Unsupported("a Literal in JSON holds strings, integers, booleans or None")
    return _fixed(values, {(type(value), value): value for value in values})


def enum_shape(kind: type[enum.Enum]) -> Shape:
    """Describe an `Enum` by the values of its members."""
    values = [member.value for member in kind]
    if not all(type(value) in (str, int) for value in values):
        raise Unsupported(f"the values of the Enum {kind.__name__} must be strings or integers")
    return _fixed(values, {(type(member.value), member.value): member for member in kind})


def _fixed(values: list[Any], by_value: dict[tuple[type, Any], Any]) -> Shape:
    kinds = {json_type(value) for value in values}
    schema: dict[str, object] = {"enum": values}
    if len(kinds) == 1:
        schema = {"type": kinds.pop(), "enum": values}
    words = accepted(schema) or []
    expected = "one of " + ", ".join(words)

    def check(value: Any) -> Any:
        try:
            return by_value[type(value), value]
        except (KeyError, TypeError):
            received = value[:RECEIVED_MAX] if isinstance(value, str) else json_type(value)
            raise Mismatch(expected, received, words) from None

    def dump(value: Any) -> Any:
        written = value.value if isinstance(value, enum.Enum) else plain(value)
        try:
            by_value[type(written), written]
        except (KeyError, TypeError):
            # What it is instead is data, and not for the log.
            raise Mismatch(expected, f"another {type_of(written)}") from None
        return written

    return Shape("|".join(words), schema, check, dump)


def union_shape(shapes: list[Shape]) -> Shape:
    """Describe alternatives, of which the first that fits is taken."""
    name = " or ".join(shape.name for shape in shapes)
    schema: dict[str, object] = {"anyOf": [shape.schema for shape in shapes]}
    words = accepted(schema)
    checks = [shape.check for shape in shapes]
    dumps = [shape.dump for shape in shapes]

    def check(value: Any) -> Any:
        closest = None
        for each in checks:
            try:
                return each(value)
            except Mismatch as mismatch:
                closest = _closer(closest, mismatch)
        assert closest is not None  # noqa: S101 - a Union has members
        if closest.path or closest.of_value:
            raise closest
        raise Mismatch(name, closest.received if words else json_type(value), words)

    def dump(value: Any) -> Any:
        closest = None
        for each in dumps:
            try:
                return each(value)
            except Mismatch as mismatch:
                closest = _closer(closest, mismatch)
        assert closest is not None  # noqa: S101 - a Union has members
        raise closest if closest.path or closest.of_value else Mismatch(name, closest.received)

    return Shape(name, schema, check, dump)


def _closer(one: Mismatch | None, other: Mismatch) -> Mismatch:
    """Return the mismatch of the alternative that got further into the value."""
    if one is None or (len(other.path), other.of_value) > (len(one.path), one.of_value):
        return other
    return one
