"""The requests that are sent. No two are the same: ids, texts and sizes all differ.

Each round has a seed of its own, so that all programs of a round get the same traffic and
the next round gets other traffic.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WORDS = [
    *("count", "word", "text", "top", "line", "buffer", "region", "point", "mark", "window"),
    *("für", "naïve", "東京", "def", "return", "import", '"quoted"', "back\\slash", "line\nbreak"),
]


@dataclass(frozen=True)
class Call:
    """One request, and the result that is expected (None: any)."""

    id: int
    method: str
    params: Mapping[str, object]
    result: object

    @cached_property
    def body(self) -> bytes:
        """The request as JSON."""
        members = {"jsonrpc": "2.0", "id": self.id, "method": self.method, "params": self.params}
        return encode(members)


def encode(value: object) -> bytes:
    """Return a value as JSON, without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def average_size(values: Sequence[object]) -> int:
    """Return how many bytes each value takes in a list."""
    return len(encode(values)) // len(values)


class Traffic:
    """A source of calls that all differ."""

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self._random = Random(seed)  # noqa: S311 - no secret
        self._id = self._random.randrange(1000)

    def next_id(self) -> int:
        """Return an id greater than all before."""
        self._id += self._random.randrange(1, 100)
        return self._id

    def text(self, words: int) -> str:
        """Return some words, in any order."""
        return " ".join(self._random.choices(WORDS, k=words))

    def version(self) -> Call:
        """Call the built-in method that every program has."""
        return Call(self.next_id(), "version", {}, None)

    def count(self, words: int | None = None) -> Call:
        """Call the user's method with its three parameters."""
        text = self.text(words or self._random.randrange(3, 60))
        word, limit = self._random.choice(WORDS), self._random.randrange(1, 1000)
        params = {"text": text, "word": word, "limit": limit}
        return Call(self.next_id(), "count", params, min(text.count(word), limit))

    def mixed(self, count: int) -> Iterator[Call]:
        """Yield many calls: of the user's method most of the time."""
        for _ in range(count):
            yield self.version() if self._random.random() < 0.2 else self.count()

    def long_text(self, size: int) -> Call:
        """Call the user's method with a text of about this many bytes."""
        lines = [self.text(12) for _ in range(2000)]
        text = "\n".join(self._random.choices(lines, k=size // average_size(lines)))
        params = {"text": text, "word": "buffer", "limit": 1 << 30}
        return Call(self.next_id(), "count", params, text.count("buffer"))

    def many_records(self, size: int) -> Call:
        """Call the user's other method with about this many bytes of small objects."""
        average = average_size([self._record() for _ in range(2000)])
        records = [self._record() for _ in range(size // average)]
        return Call(self.next_id(), "tally", {"records": records}, len(records))

    def _record(self) -> dict[str, object]:
        line, column = self._random.randrange(10_000), self._random.randrange(80)
        start = {"line": line, "character": column}
        return {
            "label": f"count_{line}",
            "kind": self._random.randrange(1, 26),
            "detail": self.text(6),
            "documentation": self.text(8),
            "score": self._random.random(),
            "deprecated": line % 2 == 0,
            "range": {"start": start, "end": {"line": line, "character": column + 7}},
            "tags": ["function", self._random.choice(WORDS), None],
        }

    def hover(self, prefix: str) -> Call:
        """Ask a language server about a place in a file."""
        line, column = self._random.randrange(10_000), self._random.randrange(80)
        document = {"uri": f"file:///project/{self._random.randrange(1000)}.py"}
        params = {"textDocument": document, "position": {"line": line, "character": column}}
        result = {"contents": f"line {line}, " * (1 + column % 9)}
        return Call(self.next_id(), f"{prefix}textDocument/hover", params, result)

    def tool_call(self) -> Call:
        """Call the user's method as an MCP tool."""
        call = self.count()
        params = {"name": call.method, "arguments": call.params}
        return Call(call.id, "tools/call", params, call.result)
