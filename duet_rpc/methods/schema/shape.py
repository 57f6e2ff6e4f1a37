"""What a hint becomes, and what all kinds of shapes share."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

from duet_rpc.jsonrpc.limits import RECEIVED_MAX

Convert = Callable[[Any], Any]
NONE = type(None)


class Unsupported(Exception):
    """A hint that has no form in JSON; its text says what to write instead."""


class Shape(typing.NamedTuple):
    """What a hint means.

    `check` turns a JSON value into what the hint says; `dump` turns what a method returned into
    a value that the encoder knows. Both raise `Mismatch`.
    """

    name: str  # for people
    schema: dict[str, object]
    check: Convert
    dump: Convert


def anything(value: Any) -> Any:
    """Return any value as it is."""
    return value


ANY = Shape("any", {}, anything, anything)


def step_to(key: str) -> str:
    """Return the step of a path that leads to a member."""
    key = key[:RECEIVED_MAX]
    return key if key.isidentifier() else f'["{key}"]'


def show(hint: object) -> str:
    """Return a hint as people write it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is not None and arguments and hasattr(origin, "__name__"):
        return f"{origin.__name__}[{', '.join(show(each) for each in arguments)}]"
    name = getattr(hint, "__name__", None)
    return name if isinstance(name, str) else str(hint).replace("typing.", "")
