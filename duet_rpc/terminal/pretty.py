"""JSON as a person likes to read it, on whatever terminal or pipe there is.

Not `json.dumps`: it knows no colour, recurses, and lets through the control characters
from U+007F to U+009F, which a terminal may obey. What comes out is JSON all the same.
"""

from __future__ import annotations

import os
import re
import sys
from json.encoder import encode_basestring, encode_basestring_ascii

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

COLORS = {
    "key": "34",
    "string": "32",
    "number": "36",
    "literal": "35",
    "good": "32",
    "bad": "31",
    "odd": "33",
    "faint": "2",
}

LITERALS = {True: "true", False: "false", None: "null"}
UNSAFE = re.compile("[\x7f-\x9f\ud800-\udfff]")


def wants_color(stream: TextIO | None, no_color: bool) -> bool:
    """Return True where colour is seen and not refused."""
    if no_color or os.environ.get("NO_COLOR") or not is_terminal(stream):
        return False
    return os.environ.get("TERM") != "dumb"


def is_terminal(stream: TextIO | None) -> bool:
    """Return True where a person looks at a stream; a closed one is None."""
    return stream is not None and stream.isatty()


def paint(text: str, what: str, color: bool) -> str:
    """Put a text into the colour of what it is."""
    return f"\x1b[{COLORS[what]}m{text}\x1b[0m" if color else text


def pretty(value: object, color: bool = False, ascii_only: bool = False) -> str:
    """Write a value as indented JSON."""
    pieces: list[str] = []
    # What is still to be written, last first: a value with its depth, or text with -1.
    rest: list[tuple[object, int]] = [(value, 0)]
    while rest:
        item, depth = rest.pop()
        if depth < 0:
            pieces.append(str(item))
        elif item and isinstance(item, (dict, list)):
            start, end = ("{", "}") if isinstance(item, dict) else ("[", "]")
            rest.append(("\n" + "  " * depth + end, -1))
            between = ",\n" + "  " * (depth + 1)
            members: list[tuple[str, object]]
            if isinstance(item, dict):
                members = [
                    (paint(_quote(key, ascii_only), "key", color) + ": ", each)
                    for key, each in item.items()
                ]
            else:
                members = [("", each) for each in item]
            for index in range(len(members) - 1, -1, -1):
                head, each = members[index]
                rest.append((each, depth + 1))
                rest.append(((between if index else start + between[1:]) + head, -1))
        else:
            pieces.append(_scalar(item, color, ascii_only))
    return "".join(pieces)


def _scalar(value: object, color: bool, ascii_only: bool) -> str:
    if isinstance(value, str):
        return paint(_quote(value, ascii_only), "string", color)
    if isinstance(value, (dict, list)):
        return "{}" if isinstance(value, dict) else "[]"
    if value is None or isinstance(value, bool):
        return paint(LITERALS[value], "literal", color)
    return paint(repr(value), "number", color)


def _quote(text: str, ascii_only: bool) -> str:
    if ascii_only:
        return encode_basestring_ascii(text).replace("\x7f", "\\u007f")
    return UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", encode_basestring(text))


def write_json(value: object, color: bool) -> None:
    """Write a value to stdout, in ASCII where stdout has no place for more."""
    if sys.stdout is None:  # closed by whoever started us
        return
    text = pretty(value, color)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        text = pretty(value, color, ascii_only=True)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def say(text: str, end: str = "\n") -> None:
    """Write a line to stderr, where it can be written: no exit code depends on that."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text + end)
        sys.stderr.flush()
    except OSError:
        # What stays in the buffer would fail once more at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
