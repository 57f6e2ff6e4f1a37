"""The pieces of a generator method: handed on as they come, or collected into one result.

Pieces are JSON text. Those of an `Iterator[str]` are joined to one text, those of any other
`Iterator[T]` become a list. Where the hint does not say, texts are joined if all are texts.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Pieces(Enum):
    """What a generator method yields, as far as its hint says."""

    TEXT = "text"
    VALUES = "values"
    ANY = "either"


def join(pieces: list[str], kind: Pieces) -> str:
    """Return the pieces as one JSON value."""
    are_texts = kind is Pieces.TEXT
    if kind is Pieces.ANY:
        are_texts = bool(pieces) and all(piece.startswith('"') for piece in pieces)
    if are_texts:
        return '"' + "".join([piece[1:-1] for piece in pieces]) + '"'
    return f"[{','.join(pieces)}]"


def run_stream(
    pieces: Iterable[object],
    kind: Pieces,
    encode: Callable[[object], str],
    send: Callable[[str], None] | None,
) -> str:
    """Hand each piece to `send`, or collect them; return the result as JSON text."""
    collected: list[str] = []
    take = collected.append if send is None else send
    try:
        for piece in pieces:
            take(encode(piece))
    finally:
        close = getattr(pieces, "close", None)
        if close is not None:
            close()
    return join(collected, kind) if send is None else "null"
