"""On which line of a TOML text a key stands, so that an error can point at it.

A TOML parser gives values and forgets where they stood. The text is known to be valid
when this is asked, so it is enough to cut it into statements (a line, or several where a
string or an array goes on) and to let the parser read the key of each.
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
    """Return the line of a key, or of the innermost table that holds it."""
    table: Key = ()
    best, depth = None, 0
    for line, head in statements(text):
        found = read_key(parse(head if head.startswith("[") else f"{head} = 0"))
        if head.startswith("["):
            table = found
        else:
            found = table + found
        common = key[: len(found)]
        # A key is made by the first statement that goes into it.
        if found[: len(key)] == common and len(common) > depth:
            best, depth = line, len(common)
    return best


def statements(text: str) -> Iterator[tuple[int, str]]:
    """Cut a text into statements: the line of each, and its header or its key."""
    text += "\n"
    line, start, depth = 1, 0, 0
    end = -1  # of the header or the key
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
    """Return the one key that a statement makes, from the outermost table inward."""
    key: list[str] = []
    value: object = tables
    while isinstance(value, (dict, list)) and value:
        if isinstance(value, list):
            value = value[-1]
        else:
            name, value = next(iter(value.items()))
            key.append(name)
    return tuple(key)
