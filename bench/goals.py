"""The rows of the table: what is measured, and the goal for it.

Milliseconds depend on the machine and on what else it does; the ratio of two programs that
were measured right after each other hardly does. So a ratio is taken in each round, and the
median of these is compared with the goal.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.acting import EPC, STREAM_LIMIT
from bench.author import LOADING
from bench.programs import DUET, LEAN, LOW_LEVEL, LSP_JSONRPC, MCP_SERVER, PYGLS, RASS, VSCODE
from bench.proxy import FASTMCP
from bench.workers import ALONE, BY_HAND, SAME_FILE

if TYPE_CHECKING:
    from collections.abc import Sequence

Samples = dict[str, dict[str, list[float]]]
"""Row to program to one number for each round."""

PEERS = (LSP_JSONRPC, VSCODE, PYGLS)


@dataclass(frozen=True)
class Row:
    """One kind of work, and a goal for it."""

    key: str
    title: str
    unit: str
    goal: float | None
    """None: it is stated, and nothing was promised."""
    of: tuple[str, ...] = ()
    """At most `goal` times the fastest of these; if there are none, `goal` is the number."""
    faster: bool = False
    """At least `goal` times faster instead."""


EMACS: list[tuple[str, str, str, float, tuple[str, ...]]] = [
    ("calls", "1,000 calls of a user's method", "ms", 1.1, (LEAN,)),
    ("acting", "ctx.emacs.call and its answer", "µs", 0.7, (EPC,)),
    ("stream", "1 MB streamed in 10,000 pieces, CPU of Emacs", "ms", 1.0, (STREAM_LIMIT,)),
    ("load", "loading duet-rpc.elc", "ms", 60.0, ()),
    ("mode", "(duet-rpc-mode 1)", "ms", 5.0, ()),
]
"""What is measured from each Emacs: the first word of the key, the title, and so on."""


def list_rows(samples: Samples) -> list[Row]:
    """Return all rows; those from Emacs have its version in their key."""
    emacs = [
        Row(f"{kind} {version}", f"{title}, Emacs {version}", unit, goal, of)
        for kind, title, unit, goal, of in EMACS
        for version in sorted(key.split()[-1] for key in samples if key.startswith("calls "))
    ]
    return [
        Row("start", "spawn to first reply", "ms", 0.9, (LSP_JSONRPC,)),
        Row("start", "spawn to first reply", "ms", 2.2, (LEAN,)),
        Row("trip", "round trip of a user's method", "µs", 1.0, (LSP_JSONRPC,)),
        Row("burst", "2,000 different requests in a burst, each", "µs", 1.2, (LSP_JSONRPC,)),
        *emacs,
        Row("large_text", "9 MB request: one text", "ms", 1.0, PEERS),
        Row("large_records", "9 MB request: a list of records", "ms", 1.0, PEERS),
        Row("exit", "end of input to process gone", "ms", 1.0, (LEAN,)),
        Row("memory", "memory, idle", "MB", 0.7, (PYGLS,)),
        # A leak of one reference would be 8 bytes; below 0.5 are pages that fragmentation costs.
        Row("growth", "growth of memory with each request", "B", 0.5),
        Row("wakeups", "wake-ups while idle, a second", "", 0.0),
        Row("saved", "a saved file: the next call of its method", "ms", 1.5, (LOADING,)),
        Row("noticing", "a call: looking at ten files for changes", "µs", 20.0),
        Row("mcp_start", "MCP: spawn to first reply", "ms", 8.0, (LOW_LEVEL, MCP_SERVER), True),
        Row("mcp_trip", "MCP: round trip of tools/call", "µs", 5.0, (LOW_LEVEL, MCP_SERVER), True),
        Row("gateway", "gateway: added to a round trip", "µs", 0.3, (RASS,)),
        Row("proxy_list", "MCP, 3 servers: spawn to their tools", "ms", 5.0, (FASTMCP,), True),
        Row("proxy_trip", "MCP, 3 servers: round trip of a call", "µs", 5.0, (FASTMCP,), True),
        Row("proxy_memory", "MCP, 3 servers: memory of the gateway", "MB", 0.5, (FASTMCP,)),
        Row("router", "rpc with workers: added to a round trip", "µs", 0.3, (RASS,)),
        Row("beside", "a call beside a worker that computes", "µs", 1.1, (ALONE,)),
        Row("first_call", "first call of a worker that has packages", "ms", 2.0, (BY_HAND,)),
        Row("first_call", "first call of a worker that has packages", "ms", 2.0, (SAME_FILE,)),
        Row("workers_wakeups", "ten workers, idle: wake-ups a second", "", 0.0),
        Row("worker_memory", "ten workers, idle: memory of each", "MB", None),
        Row("call_pyz", "duet-rpc.pyz call, beside ten workers", "ms", 150.0),
        Row("call_installed", "duet-rpc call, installed, likewise", "ms", 150.0),
    ]


@dataclass(frozen=True)
class Spread:
    """A median, and the bounds that nine rounds of ten lie within."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{number(self.median)} ({number(self.low)} to {number(self.high)})"


def spread(values: Sequence[float]) -> Spread:
    """Describe many values by three."""
    ordered = sorted(values)
    cut = len(ordered) // 20
    return Spread(statistics.median(ordered), ordered[cut], ordered[-1 - cut])


def number(value: float) -> str:
    """Write a number with three significant digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


@dataclass(frozen=True)
class Verdict:
    """A row compared with its goal."""

    row: Row
    value: Spread
    """A ratio, or the number itself."""
    against: str
    met: bool | None


def judge(row: Row, samples: Samples) -> Verdict | None:
    """Compare what was measured with the goal; None if something was not measured."""
    measured = samples.get(row.key, {})
    ours = measured.get(DUET)
    others = {name: measured[name] for name in row.of if measured.get(name)}
    if not ours or (row.of and not others):
        return None
    against, value = "", spread(ours)
    if others:
        against = min(others, key=lambda name: statistics.median(others[name]))
        pairs = zip(others[against], ours) if row.faster else zip(ours, others[against])
        value = spread([a / b for a, b in pairs if b])
    if row.goal is None:
        return Verdict(row, value, against, None)
    met = value.median >= row.goal if row.faster else value.median <= row.goal
    return Verdict(row, value, against, met)
