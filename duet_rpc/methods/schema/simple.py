"""Shapes of single values: JSON's own types, and those of Python that are written as a string.

Strict: a bool is no integer, and no string is a number.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable
from typing import Any

from duet_rpc.methods.method import Mismatch, json_type
from duet_rpc.methods.schema.plain import plain, type_of
from duet_rpc.methods.schema.shape import ANY, NONE, Shape


def _of_type(kind: type, name: str) -> Shape:
    """Describe one of JSON's own types."""

    def check(value: Any) -> Any:
        if type(value) is kind:
            return value
        raise Mismatch(name, json_type(value))

    def dump(value: Any) -> Any:
        if type(value) is kind:
            return value
        written = plain(value)
        if type_of(written) == name:
            return written
        raise Mismatch(name, type_of(written))

    return Shape(name, {"type": name}, check, dump)


def _dump_integer(value: Any) -> Any:
    if type(value) is int:
        return value
    written = plain(value)
    # JSON Schema counts 1.0 among the integers.
    if type_of(written) == "integer" or (isinstance(written, float) and written.is_integer()):
        return written
    raise Mismatch("integer", type_of(written))


def _check_number(value: Any) -> Any:
    if type(value) is float or type(value) is int:
        return value
    raise Mismatch("number", json_type(value))


def _dump_number(value: Any) -> Any:
    if type(value) is float or type(value) is int:
        return value
    written = plain(value)
    if type_of(written) in ("number", "integer"):
        return written
    raise Mismatch("number", type_of(written))


NULL = _of_type(NONE, "null")
INTEGER = _of_type(int, "integer")._replace(dump=_dump_integer)

SIMPLE: dict[Any, Shape] = {
    str: _of_type(str, "string"),
    int: INTEGER,
    float: Shape("number", {"type": "number"}, _check_number, _dump_number),
    bool: _of_type(bool, "boolean"),
    None: NULL,
    NONE: NULL,
    Any: ANY,
    object: ANY,
}


# Written as a string.


def _text(
    name: str, schema: dict[str, object], kind: type, read: Callable[[str], Any], expected: str
) -> Shape:
    def check(value: Any) -> Any:
        if type(value) is not str:
            raise Mismatch(expected, json_type(value))
        try:
            return read(value)
        except (ValueError, OverflowError):
            raise Mismatch(expected, "string", of_value=True) from None

    def dump(value: Any) -> Any:
        written = plain(value)
        if not isinstance(written, str):
            raise Mismatch(name, type_of(written))
        if type(value) is not kind:
            check(str(written))
        return written

    return Shape(name, {"type": "string", **schema}, check, dump)


def _date(kind: Any) -> Shape:
    return _text("date", {"format": "date"}, kind, kind.fromisoformat, "date such as 2026-01-31")


def _with_offset(text: str) -> str:
    # Python reads the Z of ISO 8601 only from 3.11 on.
    return text[:-1] + "+00:00" if text[-1:] in ("Z", "z") else text


def _datetime(kind: Any) -> Shape:
    expected = "date and time such as 2026-01-31T12:00:00Z"
    schema: dict[str, object] = {"format": "date-time"}
    return _text(
        "date and time", schema, kind, lambda text: kind.fromisoformat(_with_offset(text)), expected
    )


def _time(kind: Any) -> Shape:
    expected = "time such as 12:30:00"
    schema: dict[str, object] = {"format": "time"}
    return _text(
        "time", schema, kind, lambda text: kind.fromisoformat(_with_offset(text)), expected
    )


DURATION = (
    r"([-+]?)P(?=.)(?:(\d+)W)?(?:(\d+)D)?"
    r"(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,6})?)S)?)?"
)


def _timedelta(kind: Any) -> Shape:
    pattern = re.compile(DURATION, re.ASCII)

    def read(text: str) -> Any:
        found = pattern.fullmatch(text)
        if found is None:
            raise ValueError
        sign, weeks, days, hours, minutes, seconds = found.groups(default="0")
        whole, _, fraction = seconds.partition(".")
        value = kind(
            weeks=int(weeks), days=int(days), hours=int(hours), minutes=int(minutes),
            seconds=int(whole), microseconds=int(fraction.ljust(6, "0")),
        )  # fmt: skip
        return -value if sign == "-" else value

    return _text("duration", {"format": "duration"}, kind, read, "duration such as PT1H30M")


def _path(kind: Any) -> Shape:
    def read(text: str) -> Any:
        return kind(os.path.expanduser(text))

    return _text("path", {"format": "path"}, kind, read, "path")


def _uuid(kind: Any) -> Shape:
    def read(text: str) -> Any:
        value = kind(text)
        if str(value) != text.lower():  # it takes braces, and hyphens anywhere
            raise ValueError
        return value

    expected = "UUID such as 123e4567-e89b-12d3-a456-426614174000"
    return _text("UUID", {"format": "uuid"}, kind, read, expected)


DECIMAL = r"^[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?$"


def _decimal(kind: Any) -> Shape:
    pattern = re.compile(DECIMAL, re.ASCII)

    def read(text: str) -> Any:
        if pattern.search(text) is None or text.endswith("\n"):
            raise ValueError
        return kind(text)

    schema: dict[str, object] = {"format": "decimal", "pattern": DECIMAL.replace(r"\d", "[0-9]")}
    return _text("decimal", schema, kind, read, 'decimal number as a string, such as "12.50"')


LIBRARY: tuple[tuple[str, str, Callable[[Any], Shape]], ...] = (
    ("datetime", "date", _date),
    ("datetime", "datetime", _datetime),
    ("datetime", "time", _time),
    ("datetime", "timedelta", _timedelta),
    ("pathlib", "Path", _path),
    ("uuid", "UUID", _uuid),
    ("decimal", "Decimal", _decimal),
)
"""Where a type of the standard library is found, if anybody has imported it."""


def _read_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


SIMPLE[bytes] = _text(
    "base64", {"contentEncoding": "base64"}, bytes, _read_base64, "bytes in base64"
)
