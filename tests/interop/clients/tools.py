"""Methods of a user's, for the clients that call them as tools."""

from __future__ import annotations

import dataclasses
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


@method
def takes_its_time(way: str, ctx: Context) -> str:
    """End in a way of its own once it is cancelled, or after five seconds."""
    try:
        with ctx.uninterrupted():
            for step in range(500):
                ctx.progress(step)
                time.sleep(0.01)
                if ctx.cancelled and way != "ends late":
                    break
            ctx.progress(1001)
    except BaseException:  # noqa: BLE001 - it means to
        if way == "fails":
            raise ValueError(way) from None
        if way == "refuses":
            raise RpcError(-32000, way) from None
    return way


@method
def claims_to_be_cancelled() -> str:
    """Use the error code of a cancelled request."""
    raise RpcError(-32800, "Not today")


@dataclasses.dataclass
class Box:
    """What `box` returns; it has a member that nobody can pass in."""

    width: int
    area: int = dataclasses.field(init=False, default=0)


@dataclasses.dataclass
class Crate(Box):
    """A box with more to say."""

    label: str = ""


@method
def box(crate: bool = False) -> Box:
    """Return an object with more members than its constructor takes."""
    return Crate(1, "x") if crate else Box(1)


@method
def wrong_inside(kind: str) -> dict[str, list[int]]:
    """Promise one thing and return another, somewhere inside."""
    wrong: Any = {"a": [1, None], "b": 5, "c": [True], "d": [1.5], "x": [1.0, -3]}
    return {"ok": [], kind: wrong[kind]}


@method
def forgets() -> str:  # type: ignore[empty-body]
    """Forget to return what it made."""
