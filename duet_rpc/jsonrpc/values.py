"""Immutable values, and numbers that keep their spelling.

`dataclasses` would do for the first, but importing it takes 4.5 ms on CPython 3.11, a
quarter of the daemon's start.
"""

from __future__ import annotations

import re
from math import isinf

JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", re.ASCII)

set_field = object.__setattr__
"""What `__init__` of a `Value` sets its fields with."""


class Value:
    """Fields that are set once, by which instances are compared and shown."""

    __slots__: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: {name} can't be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: {name} can't be deleted")

    def _fields(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Value) or type(other) is not type(self):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((type(self), self._fields()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._fields()


class ExactNumber(float):
    """A number that is written as it was read: `1.0`, `1e2`, `-0`, `1e400`, 5,000 digits.

    Two of them are equal where their texts are, and none is equal to an integer, so that
    the ids `1` and `1.0` stay two ids.
    """

    __slots__ = ("text",)

    def __new__(cls, text: str) -> ExactNumber:
        """Take the number's JSON text."""
        if not JSON_NUMBER.fullmatch(text):
            raise ValueError(f"not a JSON number: {text[:80]!r}")
        number = super().__new__(cls, text)
        number.text = text
        return number

    text: str

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ExactNumber):
            return self.text == other.text
        return type(other) is float and float(self) == other and not isinf(self)

    def __hash__(self) -> int:
        # As many as one likes are too large for a float; they must not share one hash.
        return hash(self.text) if isinf(self) else float.__hash__(self)

    def __repr__(self) -> str:
        return f"ExactNumber({self.text!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.text,)


class RawJson:
    """JSON text that is passed on as it came, and the value that it has.

    Whoever decodes JSON and encodes it again changes it: `1.0`, thirty digits and a lone
    surrogate do not all survive.
    """

    __slots__ = ("text", "value")

    def __init__(self, text: str, value: object) -> None:
        self.text = text
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RawJson) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"RawJson({self.text!r})"
