"""What the TOML parser does not tell: the line of a key, and how deep a text is nested.

A TOML parser returns values without their lines. To find the line of a key in a valid text it
is enough to split the text into statements (one line, or several where a string or an array
continues) and to let the parser read the key of each.

The parser's time grows with the square of the number of parts of a dotted key: 64 kB of
`a.a.a…` took 28 s on CPython 3.11. So the depth is checked before anything is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""+|"(?:\\.|[^"\\\n])*"'
    r"|'''.*?'''+|'[^'\n]*'"
    r"|\#[^\n]*|[\[{]|[\]}]|=|\n",
    re.DOTALL,
)

# Each alternative matches all that it has looked at, so that a search takes linear time, also
# in a text that is not TOML. A string that does not end extends to the end of the text.
NESTING = re.compile(
    r'"""(?:[^"\\]+|\\.|"(?!""))*(?:"{3,5})?|"(?:[^"\\\n]+|\\.)*"?'
    r"|'''(?:[^']+|'(?!''))*(?:'{3,5})?|'[^'\n]*'?"
    r"|\#[^\n]*|[\[{]|[\]}]|[.,\n]",
    re.DOTALL,
)

DEPTH_MAX = 32
"""Tables and arrays inside one another, in one statement."""

Key = tuple[str, ...]


def line_too_deep(text: str) -> int | None:
    """Return the line of the first statement that is nested too deeply."""
    line = 1
    dots = [0]  # in the key at hand, one number for each bracket that is open
    for token in NESTING.finditer(text):
        sign = token.group()[0]
        if sign in "[{":
            dots.append(0)
        elif sign in "]}":
            if len(dots) > 1:
                dots.pop()
        elif sign == ".":
            dots[-1] += 1
        elif sign in ",\n":
            dots[-1] = 0
        if sum(dots) + len(dots) > DEPTH_MAX:
            return line
        line += token.group().count("\n")
    return None


def line_of(text: str, key: Key, parse: Callable[[str], dict[str, object]]) -> int | None:
    """Return the line of a key, or else of the innermost table that contains it."""
    table: Key = ()
    best, depth = None, 0
    for line, head in statements(text):
        found = read_key(parse(head if head.startswith("[") else f"{head} = 0"))
        if head.startswith("["):
            table = found
        else:
            found = table + found
        common = key[: len(found)]
        # The first statement that mentions a key creates it.
        if found[: len(key)] == common and len(common) > depth:
            best, depth = line, len(common)
            if depth == len(key):
                break
    return best


def statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each statement of a text, and its table header or its key."""
    text += "\n"
    line, start, depth = 1, 0, 0
    end = -1  # of the header or the key; -1 until it is found
    for token in TOKEN.finditer(text):
        sign = token.group()[0]
        if sign in "[{":
            depth += 1
        elif sign in "]}":
            depth -= 1
        elif depth == 0 and end < 0 and sign in "=#\n":
            end = token.start()
        if sign == "\n" and depth == 0:
            head = text[start:end].strip()
            if head:
                yield line, head
            line += text.count("\n", start, token.end())
            start, end = token.end(), -1


def read_key(tables: dict[str, object]) -> Key:
    """Return the one key that a parsed statement creates, from the outermost table inward."""
    key: list[str] = []
    value: object = tables
    while isinstance(value, (dict, list)) and value:
        if isinstance(value, list):
            value = value[-1]
        else:
            name, value = next(iter(value.items()))
            key.append(name)
    return tuple(key)
