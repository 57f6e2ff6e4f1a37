"""The id and the method of a text that is broken: cut off, nested too deeply, wrong anywhere else.

Emacs never shows an error whose id is null; its caller waits for a timeout. So an id that
can be read is worth reading. The text may be broken on purpose: every step goes forward
for good, and no pattern can run to the end of the text and come back.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.jsontext import NOT_JSON, SPACE, scan, scan_string
from duet_rpc.jsonrpc.values import JSON_NUMBER

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = re.compile(r"[{,]\s*", re.ASCII)
COLON = re.compile(r"\s*:\s*", re.ASCII)
AFTER = re.compile(r"\s*[,}]", re.ASCII)
MARK = re.compile(r'"[^"\\]*"?|[\[{]+|[\]}]+|,')
STOP = re.compile(r'["\\]')


def find_id(body: bytes | bytearray) -> str | None:
    """Return the text of the top-level member `id`, or None where none can be read.

    What counts is that the id itself is whole, whatever the rest is like. Of several the
    last counts, as in the parser.
    """
    text = _decode(body)
    place = _locate_id(text)
    found = None if place is None else text[slice(*place)]
    # A byte that is not UTF-8 stands for itself as a low surrogate: it can't be echoed.
    if found is None or (
        not found.isascii() and any("\udc80" <= character <= "\udcff" for character in found)
    ):
        return None
    return found


def replace_id(text: str, id: str) -> str | None:
    """Return a text with another id, or None where it has none that can be read."""
    text = text.lstrip(SPACE)
    place = _locate_id(text)
    return None if place is None else text[: place[0]] + id + text[place[1] :]


def _locate_id(text: str) -> tuple[int, int] | None:
    found = None
    for name, at in _members(text):
        if name == "id":
            end = _end_of_scalar(text, at)
            found = (at, end) if end >= 0 and AFTER.match(text, end) else None
    return found


def find_method(body: bytes | bytearray) -> str | None:
    """Return the top-level member `method`, where it is a string that can be read."""
    text = _decode(body)
    found = None
    for name, at in _members(text):
        if name == "method":
            end = _end_of_string(text, at)
            found = None if end < 0 else _string(text[at:end])
    return found


def may_be_reply(body: bytes | bytearray) -> bool:
    """Return True unless the text has, as far as it can be read, a member of requests only."""
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


def _end_of_scalar(text: str, at: int) -> int:
    """Return where a number, a string or null has ended, or -1."""
    number = JSON_NUMBER.match(text, at)
    if number is not None:
        return number.end()
    return at + 4 if text.startswith("null", at) else _end_of_string(text, at)


def _end_of_string(text: str, at: int) -> int:
    """Return where a string has ended, or -1. Its escapes may be wrong."""
    if text[at : at + 1] != '"':
        return -1
    try:
        return scan_string(text, at + 1, False)[1]
    except ValueError:
        pass
    step = STOP.search(text, at + 1)
    while step is not None and step.group() != '"':
        step = STOP.search(text, step.end() + 1)
    return -1 if step is None else step.end()


def _string(text: str) -> str | None:
    try:
        value = scan(text, 0)[0]
    except NOT_JSON:
        return None
    return value if isinstance(value, str) else None
