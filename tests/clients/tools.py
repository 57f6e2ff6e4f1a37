"""Methods of a user's, for the clients that call them as tools."""

from __future__ import annotations

import time
from typing import Any, Literal, Optional, TypedDict

from duet_rpc import Context, RpcError, method


class Stats(TypedDict):
    """What `stats` returns."""

    words: int
    longest: str


@method("text.stats", title="Statistics of a text", read_only=True, open_world=False)
def stats(text: str, unit: Literal["words", "lines"] = "words") -> Stats:
    """Count the words of a text.

    And find the longest one.
    """
    words = text.split() if unit == "words" else text.splitlines()
    return {"words": len(words), "longest": max(words, key=len, default="")}


@method(destructive=False)
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@method
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}! \u2028 日本語\nsecond line"


@method
def nothing() -> None:
    """Take nothing, return nothing."""


@method("größe/of it")
def odd_name(box: tuple[int, float], depth: Optional[int] = None) -> list[Any]:  # noqa: UP045
    """Have a name that MCP does not allow."""
    return [*box, depth]


@method
def anything(value: Any = None):  # type: ignore[no-untyped-def]
    """Promise nothing about the result."""
    return value


@method
def liar() -> dict:  # type: ignore[type-arg]
    """Promise an object and return none."""
    return 5  # type: ignore[return-value]


@method
def boom(secret: str) -> str:
    """Crash."""
    raise ValueError(f"can't use {secret}")


@method
def refuse() -> str:
    """Refuse the call."""
    raise RpcError(-32602, "Not on a Sunday", {"day": "Sunday"})


@method
def steps(count: int, ctx: Context, pause: float = 0.0) -> int:
    """Report progress, some of it twice or backwards."""
    for number in range(count):
        ctx.progress(number, count, f"step {number}")
        ctx.progress(number, count)
        ctx.progress(number - 0.5)
        time.sleep(pause)
    return count


@method
def forever() -> None:
    """Never end."""
    while True:
        pass


@method
def noisy() -> str:
    """Print to stdout."""
    print("noise")
    return "quiet"
