"""What stands in `Annotated` beside the type: a description, and limits of the value.

Limits are those of `annotated_types` and of pydantic's `Field`. They are known by the names of
their attributes, which annotated_types documents, so that neither package is imported here.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from duet_rpc.methods.method import Mismatch
from duet_rpc.methods.schema.shape import Shape, Unsupported

BOUNDS: dict[str, tuple[str, str, Callable[[Any, Any], bool], str]] = {
    "ge": (">=", "<", operator.ge, "minimum"),
    "gt": (">", "<=", operator.gt, "exclusiveMinimum"),
    "le": ("<=", ">", operator.le, "maximum"),
    "lt": ("<", ">=", operator.lt, "exclusiveMaximum"),
}
LENGTHS = {"min_length": "at least", "max_length": "at most"}
UNITS = {
    "string": ("character", "Length"),
    "array": ("item", "Items"),
    "object": ("member", "Properties"),
    "base64": ("byte", ""),
}
ATTRIBUTES = (*BOUNDS, "multiple_of", *LENGTHS, "pattern")

ORDERED = ("decimal", "date", "date-time", "time", "duration")
"""Formats of strings whose values have an order in Python, but none in JSON Schema."""


class Constraint(NamedTuple):
    """One limit: the attribute that stands for it, and its value."""

    word: str
    value: Any


class Extras(NamedTuple):
    """What `Annotated` says beside the type."""

    description: str | None
    constraints: list[Constraint]


def read_extras(extras: Iterable[Any]) -> Extras:
    """Find the description and the limits; what is neither is no matter of ours."""
    description = None
    constraints: list[Constraint] = []
    for extra in extras:
        said = extra if isinstance(extra, str) else _described(extra)
        if said is not None and description is None:
            description = str.__str__(said)
        constraints += _constraints_of(extra)
    return Extras(description, constraints)


def _described(extra: Any) -> str | None:
    """Return the text of pydantic's `Field`, or of PEP 727's `Doc`."""
    for name in ("description", "documentation"):
        said = getattr(extra, name, None)
        if isinstance(said, str):
            return said
    return None


def _constraints_of(extra: Any) -> Iterator[Constraint]:
    inner = getattr(extra, "metadata", None)  # of a `Field`
    if isinstance(inner, list):
        for each in inner:
            yield from _constraints_of(each)
        return
    known = False
    for name in ATTRIBUTES:
        value = getattr(extra, name, None)
        if value is not None and not callable(value):
            known = True
            if (name, value) != ("min_length", 0):
                yield Constraint(name, value)
    if _is_of(extra, "annotated_types") and not known:
        kind = type(extra).__name__
        if kind == "Predicate":
            yield Constraint("predicate", extra.func)
        elif kind not in ("Unit", "DocInfo"):  # which limit nothing
            raise Unsupported(f"{kind} of annotated_types can't be checked here")


def _is_of(extra: Any, package: str) -> bool:
    return str(type(extra).__module__).partition(".")[0] == package


def needs_pydantic(extra: Any) -> bool:
    """Return True for what only pydantic can apply, such as a validator."""
    inner = getattr(extra, "metadata", None)
    if isinstance(inner, list):
        discriminated = getattr(extra, "discriminator", None) is not None
        return discriminated or any(needs_pydantic(each) for each in inner)
    if hasattr(extra, "__get_pydantic_core_schema__"):
        return True
    if not _is_of(extra, "pydantic"):
        return False
    # What Field makes of `pattern` alone is checked here. Strict is what all checks are.
    return not set(getattr(extra, "__dict__", ())) <= {"pattern", "strict"}


# Applying them.


def constrain(shape: Shape, constraints: list[Constraint]) -> Shape:
    """Add limits to a shape; raise `Unsupported` where one has no meaning for it."""
    for constraint in constraints:
        shape = _add(shape, constraint)
    return shape


def applies(shape: Shape, constraint: Constraint) -> bool:
    """Return True where a limit has a meaning for a shape."""
    try:
        _add(shape, constraint)
    except Unsupported:
        return False
    return True


def _add(shape: Shape, constraint: Constraint) -> Shape:
    word, value = constraint
    if word in BOUNDS:
        return _bound(shape, word, value)
    if word in LENGTHS:
        return _length(shape, word, value)
    if word == "multiple_of":
        return _multiple(shape, value)
    if word == "pattern":
        return _pattern(shape, value)
    name = getattr(value, "__name__", None) or type(value).__name__
    expected = f"{shape.name} for which {name} is true"
    return _limited(shape, {}, value, lambda _: Mismatch(expected, shape.name, of_value=True))


def _limited(
    shape: Shape,
    schema: dict[str, object],
    holds: Callable[[Any], object],
    refuse: Callable[[Any], Mismatch],
) -> Shape:
    def check(value: Any) -> Any:
        made = shape.check(value)
        if not holds(made):
            raise refuse(made)
        return made

    def dump(value: Any) -> Any:
        made = shape.dump(value)
        seen = made
        if "format" in shape.schema or "contentEncoding" in shape.schema:
            seen = shape.check(made)  # the limit is one of Python's value, not of the text
        elif shape.schema.get("type") == "object":
            seen = value
        if not holds(seen):
            raise refuse(seen)
        return made

    return Shape(shape.name, {**shape.schema, **schema}, check, dump)


def _refuse(shape: Shape, what: str) -> Unsupported:
    return Unsupported(f"{what} has no meaning for {shape.name}")


def _is_number(shape: Shape) -> bool:
    return shape.schema.get("type") in ("integer", "number") and "enum" not in shape.schema


def _bound(shape: Shape, word: str, bound: Any) -> Shape:
    sign, opposite, compare, keyword = BOUNDS[word]
    schema: dict[str, object] = {}
    if _is_number(shape):
        if type(bound) not in (int, float):
            raise Unsupported(f"the limit {word} of {shape.name} must be a number")
        schema = {keyword: bound}
    elif shape.schema.get("format") not in ORDERED:
        raise _refuse(shape, f"the limit {word}")

    def holds(value: Any) -> bool:
        try:
            return compare(value, bound)
        except TypeError:  # a date with a time zone and one without
            return False

    wrong = Mismatch(f"{shape.name} {sign} {bound}", f"{shape.name} {opposite} {bound}")
    return _limited(shape, schema, holds, lambda _: _copy(wrong))


def _copy(wrong: Mismatch) -> Mismatch:
    return Mismatch(wrong.expected, wrong.received, of_value=True)


def _length(shape: Shape, word: str, limit: Any) -> Shape:
    kind = shape.schema.get("type")
    if "contentEncoding" in shape.schema:
        kind = "base64"
    odd = {"format", "enum", "properties"} & set(shape.schema)
    if kind not in UNITS or odd:
        raise _refuse(shape, f"the limit {word}")
    if type(limit) is not int:
        raise Unsupported(f"the limit {word} of {shape.name} must be an integer")
    unit, keyword = UNITS[str(kind)]
    prefix = "min" if word == "min_length" else "max"

    def holds(value: Any) -> bool:
        return len(value) >= limit if prefix == "min" else len(value) <= limit

    def count(number: int) -> str:
        return f"{number} {unit}" if number == 1 else f"{number} {unit}s"

    expected = f"{shape.name} with {LENGTHS[word]} {count(limit)}"
    return _limited(
        shape,
        {prefix + keyword: limit} if keyword else {},
        holds,
        lambda made: Mismatch(expected, f"{shape.name} with {count(len(made))}", of_value=True),
    )


def _multiple(shape: Shape, divisor: Any) -> Shape:
    is_number = _is_number(shape)
    if not is_number and shape.schema.get("format") != "decimal":
        raise _refuse(shape, "the limit multiple_of")
    if not divisor or (is_number and type(divisor) not in (int, float)):
        raise Unsupported("the limit multiple_of must be a number other than 0")

    def holds(value: Any) -> bool:
        if isinstance(value, float) or isinstance(divisor, float):
            return float(round(value / divisor, 9)).is_integer()  # 0.3 is a multiple of 0.1
        return not value % divisor

    wrong = Mismatch(f"{shape.name} that is a multiple of {divisor}", shape.name)
    schema: dict[str, object] = {"multipleOf": divisor} if is_number else {}
    return _limited(shape, schema, holds, lambda _: _copy(wrong))


def _pattern(shape: Shape, pattern: Any) -> Shape:
    odd = {"format", "enum", "contentEncoding", "pattern"} & set(shape.schema)
    if shape.schema.get("type") != "string" or odd:
        raise _refuse(shape, "a pattern")
    text = getattr(pattern, "pattern", pattern)
    try:
        compiled = re.compile(text)
    except (re.error, TypeError) as error:
        raise Unsupported(f"the pattern {text!r} can't be read: {error}") from None
    wrong = Mismatch(f"{shape.name} that matches {text}", shape.name)
    return _limited(shape, {"pattern": text}, compiled.search, lambda _: _copy(wrong))
