"""JSON for a person to read: indented, coloured, and safe for a terminal.

`json.dumps` has no colour, recurses, and does not escape the control characters from U+007F
to U+009F, which a terminal may execute. Without colour the output is valid JSON.
"""

from __future__ import annotations

import re
import sys
from json.encoder import encode_basestring, encode_basestring_ascii

from duet_rpc.terminal.output import paint

INDENT_MAX = 1000
"""Levels that are indented. Python 3.14 parses 60,000, which would be gigabytes of spaces."""

LITERALS = {True: "true", False: "false", None: "null"}
UNSAFE = re.compile("[\x7f-\x9f\ud800-\udfff]")


def pretty(value: object, color: bool = False, ascii_only: bool = False) -> str:
    """Return a value as indented JSON."""
    chunks: list[str] = []
    # A stack of what is still to be written: a value with its depth, or text with -1.
    rest: list[tuple[object, int]] = [(value, 0)]
    while rest:
        item, depth = rest.pop()
        if depth < 0:
            chunks.append(str(item))
        elif item and isinstance(item, (dict, list)):
            start, end = ("{", "}") if isinstance(item, dict) else ("[", "]")
            rest.append((f"\n{_indent(depth)}{end}", -1))
            between = f",\n{_indent(depth + 1)}"
            members: list[tuple[str, object]]
            if isinstance(item, dict):
                members = [
                    (paint(quote(key, ascii_only), "key", color) + ": ", each)
                    for key, each in item.items()
                ]
            else:
                members = [("", each) for each in item]
            for index in range(len(members) - 1, -1, -1):
                head, each = members[index]
                rest.append((each, depth + 1))
                rest.append(((between if index else start + between[1:]) + head, -1))
        else:
            chunks.append(_scalar(item, color, ascii_only))
    return "".join(chunks)


def _indent(depth: int) -> str:
    return "  " * min(depth, INDENT_MAX)


def _scalar(value: object, color: bool, ascii_only: bool) -> str:
    if isinstance(value, str):
        return paint(quote(value, ascii_only), "string", color)
    if isinstance(value, (dict, list)):
        return "{}" if isinstance(value, dict) else "[]"
    if value is None or isinstance(value, bool):
        return paint(LITERALS[value], "literal", color)
    return paint(repr(value), "number", color)


def quote(text: str, ascii_only: bool = False) -> str:
    """Return a text as a JSON string."""
    if ascii_only:
        return encode_basestring_ascii(text).replace("\x7f", "\\u007f")
    return UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", encode_basestring(text))


def write_json(value: object, color: bool) -> None:
    """Print a value to stdout as JSON, in ASCII where the encoding of stdout needs that."""
    if sys.stdout is None:  # closed before the start
        return
    text = pretty(value, color)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        text = pretty(value, color, ascii_only=True)
    write_line(text)


def write_line(text: str) -> None:
    """Print a text to stdout, with a newline at its end."""
    if sys.stdout is None:
        return
    encoding = sys.stdout.encoding
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    sys.stdout.flush()
