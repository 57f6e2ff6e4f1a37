"""Find the line of a key in a TOML text, so that an error can name it.

A TOML parser returns values without their lines. The text is known to be valid here, so it
is enough to split it into statements (one line, or several where a string or an array
continues) and to let the parser read the key of each.
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

Key = tuple[str, ...]


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
