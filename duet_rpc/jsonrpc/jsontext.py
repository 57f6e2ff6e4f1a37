"""Strict JSON to Python values and back, and the parts of a JSON text.

The standard library's `json` does the work. What is added: NaN, Infinity and integers
that take quadratic time to convert are refused, members can be found as slices of the
text, and what is written is JSON that Emacs can read.
"""

from __future__ import annotations

import json
import sys
from json import decoder
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any

from duet_rpc.jsonrpc.limits import INTEGER_DIGITS_MAX
from duet_rpc.jsonrpc.values import ExactNumber, RawJson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Members = dict[str, tuple[object, int, int]]
    """The value of each member, and from where to where its text goes."""

SPACE = " \t\n\r"

NOT_JSON = (ValueError, IndexError, StopIteration, RecursionError)
"""What the functions here raise for a text that is not JSON."""

INTEGER_TOO_LONG = "integer too long"
"""How `explain` says that an integer has more digits than are converted."""


def _parse_int(digits: str) -> int:
    if len(digits) > INTEGER_DIGITS_MAX:
        raise ValueError(INTEGER_TOO_LONG)
    return int(digits)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


# Where the interpreter has the limit itself, `int` is called without a detour.
_has_limit = getattr(sys, "get_int_max_str_digits", int)() == INTEGER_DIGITS_MAX
_decoder = json.JSONDecoder(
    parse_int=int if _has_limit else _parse_int, parse_constant=_refuse_constant
)

# Two parts of the standard decoder that its stubs leave out.

scan: Callable[[str, int], tuple[Any, int]] = _decoder.scan_once  # type: ignore[attr-defined]
"""Read the value that begins at an index; return it and the index behind it."""

scan_string: Callable[[str, int, bool], tuple[str, int]]
scan_string = decoder.scanstring  # type: ignore[attr-defined]
"""Read the string whose first quote is before an index, strictly or not, in the same way."""


def loads(text: str) -> Any:
    """Return the value of a JSON text; raises one of `NOT_JSON`."""
    start = 0
    if text[:1] not in ("{", "["):
        start = len(text) - len(text.lstrip(SPACE))
    value, end = scan(text, start)
    if end != len(text) and text[end:].strip(SPACE):
        raise ValueError(f"more than one JSON value, the second at character {end}")
    return value


def explain(error: Exception) -> str:
    """Say why a text is not JSON, without quoting it."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, StopIteration):
        return f"no JSON value at character {error.value}"
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.removesuffix(' at')} at character {error.pos}"
    text = str(error)
    return INTEGER_TOO_LONG if text.startswith("Exceeds the limit") else text


# Writing.


def _refuse(value: object) -> object:
    raise TypeError(f"a value of type {type(value).__name__} is not JSON")


def make_encoder(default: Callable[[object], object] = _refuse) -> Callable[[object], str]:
    """Return a function like `dumps`, for which `default` turns other values into JSON's."""
    return json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=default
    ).encode


_encode = make_encoder()


def dumps(value: object) -> str:
    """Return a value as compact JSON; ValueError, TypeError or RecursionError where it is none."""
    return value.text if type(value) is RawJson else _encode(value)


def write_id(id: object) -> str:
    """Return an id as JSON text in which nothing but ASCII stands."""
    if isinstance(id, str):
        return encode_basestring_ascii(id)
    if isinstance(id, ExactNumber):
        return id.text
    return "null" if id is None else str(id)


def to_utf8(text: str) -> bytes:
    """Encode JSON text; a lone surrogate, which has no UTF-8, becomes U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


# Parts of a text.


def _skip_space(text: str, at: int) -> int:
    while text[at] in SPACE:
        at += 1
    return at


def split_object(text: str, at: int = 0) -> tuple[Members, int]:
    """Return the members of the object that begins at an index, and where it ends."""
    if text[at] != "{":
        raise ValueError("expected an object")
    found: Members = {}
    at = _skip_space(text, at + 1)
    if text[at] == "}":
        return found, at + 1
    while True:
        if text[at] != '"':
            raise ValueError("expected a name")
        key, at = scan_string(text, at + 1, True)
        at = _skip_space(text, at)
        if text[at] != ":":
            raise ValueError("expected a colon")
        at = _skip_space(text, at + 1)
        value, end = scan(text, at)
        found[key] = (value, at, end)
        at = _skip_space(text, end)
        if text[at] == "}":
            return found, at + 1
        if text[at] != ",":
            raise ValueError("expected a comma")
        at = _skip_space(text, at + 1)


def split_array(text: str) -> Iterator[str]:
    """Yield the elements of an array as they are written. The text must be a valid array."""
    at = _skip_space(text, _skip_space(text, 0) + 1)
    while text[at] != "]":
        end = scan(text, at)[1]
        yield text[at:end]
        at = _skip_space(text, end)
        if text[at] == ",":
            at = _skip_space(text, at + 1)


def member(text: str, name: str) -> str | None:
    """Return a member of an object as it is written. The text must be a valid object."""
    found = split_object(text)[0].get(name)
    return None if found is None else text[found[1] : found[2]]


def without(text: str, name: str) -> str:
    """Return an object without one of its members."""
    kept = [
        f"{encode_basestring_ascii(key)}:{text[start:end]}"
        for key, (_, start, end) in split_object(text)[0].items()
        if key != name
    ]
    return "{" + ",".join(kept) + "}"


def replace(text: str, path: tuple[str, ...], new: str) -> str:
    """Return an object with another text in the place of a member that it has."""
    _, start, end = split_object(text)[0][path[0]]
    inner = new if len(path) == 1 else replace(text[start:end], path[1:], new)
    return text[:start] + inner + text[end:]
