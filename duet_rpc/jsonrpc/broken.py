"""What can be told of a text that is broken: cut off, nested too deeply, wrong in any other way.

It may be broken on purpose, so every step forward is for good: no pattern here can run to
the end of the text and come back.
"""

from __future__ import annotations

import json.decoder  # the C half of json raises its error class  # noqa: F401
import re
from _json import encode_basestring_ascii, scanstring

from duet_rpc.jsonrpc.messages import SPACE, scan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = re.compile(r"[{,]\s*", re.ASCII)
COLON = re.compile(r"\s*:\s*", re.ASCII)
SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|null", re.ASCII)
AFTER = re.compile(r"\s*[,}]", re.ASCII)
MARK = re.compile(r'"[^"\\]*"?|[\[{]+|[\]}]+|,')
STOP = re.compile(r'["\\]')


def read_id(body: bytes | bytearray) -> str | None:
    """Find the top-level member `id` and return it as JSON, or None.

    The text may be cut off, nested too deeply or wrong in any other way: what counts is
    that the id itself is whole. Of several the last counts, as in the parser.
    """
    text, found = _decode(body), None
    for name, at in _members(text):
        if name == "id":
            plain = SCALAR.match(text, at)
            end = plain.end() if plain else _end_of_string(text, at)
            found = text[at:end] if end >= 0 and AFTER.match(text, end) else None
    if found is not None and found.startswith('"'):
        value_text = _string(found)
        # A byte that is not UTF-8 stands for itself as a low surrogate: no echo for it.
        raw = any("\udc80" <= character <= "\udcff" for character in found)
        return None if value_text is None or raw else encode_basestring_ascii(value_text)
    return found


def may_be_answer(body: bytes | bytearray) -> bool:
    """Return True unless it has, as far as it can be read, what only requests have."""
    return not any(name in ("method", "params") for name, _ in _members(_decode(body)))


def _decode(body: bytes | bytearray) -> str:
    return str(body, "utf-8", "surrogateescape").lstrip("\ufeff" + SPACE)


def _members(text: str) -> Iterator[tuple[str | None, int]]:
    """Yield the top-level members: the name of each, and where its value begins."""
    member = KEY.match(text) if text.startswith("{") else None
    while member is not None:
        end = _end_of_string(text, member.end())
        value = None if end < 0 else COLON.match(text, end)
        if value is None:
            return
        yield _string(text[member.end() : end]), value.end()
        comma = _end_of_value(text, value.end())
        member = None if comma < 0 else KEY.match(text, comma)


def _end_of_value(text: str, at: int) -> int:
    """Return where the comma behind a member's value stands, or -1."""
    depth = 0
    while at >= 0:
        for step in MARK.finditer(text, at):
            sign = step.group()
            if sign[0] == '"':
                if len(sign) == 1 or sign[-1] != '"':  # it holds an escape, or does not end
                    at = _end_of_string(text, step.start())
                    break
            elif sign == ",":
                if depth == 0:
                    return step.start()
            else:
                depth += len(sign) if sign[0] in "[{" else -len(sign)
                if depth < 0:
                    return -1
        else:
            return -1
    return -1


def _end_of_string(text: str, at: int) -> int:
    """Return where a string that begins here has ended, or -1. Its escapes may be wrong."""
    if text[at : at + 1] != '"':
        return -1
    try:
        return scanstring(text, at + 1, False)[1]
    except ValueError:
        pass
    step = STOP.search(text, at + 1)
    while step is not None and step.group() != '"':
        step = STOP.search(text, step.end() + 1)
    return -1 if step is None else step.end()


def _string(text: str) -> str | None:
    try:
        value = scan(text, 0)[0]
    except (ValueError, StopIteration, SystemError):
        return None
    return value if isinstance(value, str) else None
