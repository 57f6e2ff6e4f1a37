"""What methods return beyond JSON's own types, turned into those.

The conversion depends on the value alone, so that a result without a hint, or inside `Any`, has
the same form as one with a hint. Parameters of these types are read in the same form.
"""

from __future__ import annotations

import base64
import enum
import sys
from collections.abc import Mapping, Sequence, Set
from io import BytesIO
from typing import TYPE_CHECKING, Any

from duet_rpc.methods.results import Image

if TYPE_CHECKING:
    from collections.abc import Callable

ENCODED = (str, int, float, list, tuple, dict, type(None))
"""The types that the encoder writes by itself."""


def plain(value: Any) -> Any:
    """Turn a value into one that the encoder writes; what is inside it may still be any object."""
    while not isinstance(value, ENCODED):
        value = to_plain(value)
    return value


def to_plain(value: Any) -> object:
    """Take a value one step nearer to JSON; TypeError where there is no such step."""
    kind = type(value)
    if hasattr(kind, "__pydantic_serializer__"):
        serializer = kind.__pydantic_serializer__
        return serializer.to_python(value, mode="json", by_alias=True, warnings=False)
    if hasattr(kind, "__dataclass_fields__"):
        import dataclasses

        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    for module, name, write in LIBRARY:
        known = getattr(sys.modules.get(module), name, None)
        if known is not None and isinstance(value, known):
            return write(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, Set):
        return write_set(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"a value of type {kind.__name__} has no form in JSON")


def write_set(value: Set[Any]) -> list[Any]:
    """Return the items of a set, in order where they have one: the same set is the same text."""
    try:
        return sorted(value)
    except TypeError:
        return list(value)


def write_duration(value: Any) -> str:
    """Write a timedelta as ISO 8601 has it: `PT1H30M`, `-P1DT0.5S`."""
    sign = "-" if value.days < 0 else ""
    value = abs(value)
    hours, seconds = divmod(value.seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    fraction = f".{value.microseconds:06}".rstrip("0") if value.microseconds else ""
    text = "".join(f"{count}{unit}" for count, unit in ((hours, "H"), (minutes, "M")) if count)
    if seconds or fraction:
        text += f"{seconds}{fraction}S"
    days = f"{value.days}D" if value.days else ""
    if not days and not text:
        text = "0S"
    return f"{sign}P{days}{'T' if text else ''}{text}"


def write_figure(value: Any) -> Image:
    """Draw a figure of matplotlib as a PNG; pyplot no longer has to keep it."""
    drawn = BytesIO()
    value.savefig(drawn, format="png")
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(value)
    return Image(drawn.getvalue())


LIBRARY: tuple[tuple[str, str, Callable[[Any], object]], ...] = (
    ("duet_rpc.methods.results", "Result", lambda value: value.as_json()),
    ("datetime", "date", lambda value: value.isoformat()),  # a datetime is one
    ("datetime", "time", lambda value: value.isoformat()),
    ("datetime", "timedelta", write_duration),
    ("pathlib", "PurePath", str),
    ("uuid", "UUID", str),
    ("decimal", "Decimal", str),
    ("matplotlib.figure", "Figure", write_figure),
)


def type_of(value: object) -> str:
    """Name the JSON type that a plain value is written as."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for kind, name in NAMES:
        if isinstance(value, kind):
            return name
    return "object"


NAMES: tuple[tuple[Any, str], ...] = (
    (str, "string"),
    (int, "integer"),
    (float, "number"),
    ((list, tuple), "array"),
)
