"""The requests that are sent: tiny ones, a long text, many records."""

from __future__ import annotations

import json

FIRST_ID = 1_000_000
"""Ids count from here, all of one width, so that all replies have one size."""

LINE = '    counts[word] = counts.get(word, 0) + 1  # "to be", or not\n'


def request(number: int = 0, method: str = "version", params: str = "{}") -> bytes:
    """Make one request, in its frame."""
    text = f'{{"jsonrpc":"2.0","id":{FIRST_ID + number},"method":"{method}","params":{params}}}'
    body = text.encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def requests(count: int) -> bytes:
    """Make many requests, each with an id of its own."""
    return b"".join(request(number) for number in range(count))


# Params stand below `_meta`, which a method without parameters takes too.


def long_text(size: int) -> bytes:
    """Make a request of about this many bytes: a buffer's text, as editors send it."""
    line = json.dumps(LINE)[1:-1]
    return request(params=f'{{"_meta":{{"text":"{line * (size // len(line))}"}}}}')


def many_records(size: int) -> bytes:
    """Make a request of about this many bytes: a list of small objects."""
    items: list[str] = []
    room = size - 200
    while room > 0:
        item = json.dumps(record(len(items)), separators=(",", ":"))
        items.append(item)
        room -= len(item) + 1
    return request(params=f'{{"_meta":{{"items":[{",".join(items)}]}}}}')


def record(number: int) -> dict[str, object]:
    """Make one record, a little different from the one before."""
    place = {"line": number, "character": 4}
    return {
        "label": f"count_words_{number}",
        "kind": 3,
        "detail": "def count_words(text: str, top: int = 10) -> dict[str, int]",
        "documentation": 'Count the words of a text.\n\n    >>> count_words("to be")\n',
        "score": number / 1024,
        "deprecated": False,
        "range": {"start": place, "end": {**place, "character": 15}},
        "tags": ["function", "text", None],
    }
