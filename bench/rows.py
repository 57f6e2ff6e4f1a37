"""The rows of the table: what is measured, and the goal that each is held against.

A goal is a factor of another program measured in the same run, or a number.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.programs import ACCELERATED, ALONE, DUET, LEAN, LSP_JSONRPC, PYGLS, RASS, VSCODE, C
from bench.samples import Spread, ratio, spread

Samples = dict[str, dict[str, list[float]]]
"""Row to program to one number for each round."""

PEERS = (LSP_JSONRPC, VSCODE, PYGLS)


@dataclass(frozen=True)
class Row:
    """One kind of work."""

    key: str
    title: str
    unit: str
    most: float
    of: tuple[str, ...] = ()  # times the fastest of these; none: `most` is the number itself
    ours: str = DUET


ROWS = (
    Row("start", "spawn to first reply", "ms", 0.95, (LEAN,)),
    Row("exit", "end of input to process gone", "ms", 1.0, (LEAN,)),
    Row("trip", "tiny round trip p50, one core", "µs", 1.4, (C,)),
    # The other checks no parameters and can't be interrupted: this is what that may cost.
    Row("call", "a method of yours, round trip p50, one core", "µs", 1.5, (LSP_JSONRPC,)),
    Row("burst", "burst of 2,000, a request", "µs", 2.4, (C,)),
    Row("large", "9 MB request", "ms", 0.95, PEERS),
    Row("large", "9 MB request, with msgspec", "ms", 0.5, PEERS, ACCELERATED),
    Row("memory", "memory at start", "MB", 1.0, (LSP_JSONRPC,)),
    Row("memory_after", "memory a second after 9 MB", "MB", 20.0),
    Row("memory_idle", "memory idle, log settled", "MB", 20.0),
    # Memory is counted in pages: one page more over the whole run is not growth.
    Row("growth", "growth over many requests", "B each", 0.1),
    Row("idle", "idle wake-ups", "a second", 0.0),
    Row("hover", "gateway: added to a tiny round trip", "µs", 0.25, (RASS,)),
    Row("completion", "gateway: added to a reply of 21 kB", "µs", 0.25, (RASS,)),
    Row("stuck", "gateway: round trip beside a backend that never reads", "µs", 1.05, (ALONE,)),
    Row("flight_memory", "gateway: memory at most, 10,000 in flight", "MB", 40.0),
    Row("gateway_memory", "gateway: memory idle, two backends", "MB", 25.0),
    Row("gateway_idle", "gateway: idle wake-ups", "a second", 0.0),
)


@dataclass(frozen=True)
class Verdict:
    """A row held against its goal."""

    value: Spread  # a ratio, or the number itself
    against: str
    met: bool


def judge(row: Row, samples: Samples) -> Verdict | None:
    """Compare what was measured with the goal; None where something is missing."""
    measured = samples.get(row.key, {})
    ours = measured.get(row.ours)
    if not ours:
        return None
    if not row.of:
        value = spread(ours)
        return Verdict(value, "", value.median <= row.most)
    others = {name: measured[name] for name in row.of if measured.get(name)}
    if not others:
        return None
    fastest = min(others, key=lambda name: spread(others[name]).median)
    value = ratio(ours, others[fastest])
    return Verdict(value, fastest, value.median <= row.most)
