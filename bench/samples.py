"""Numbers from many rounds: medians, ratios within a round, and their spread.

Milliseconds depend on the machine and on what else it does; the ratio of two programs
measured right after each other hardly does. So a ratio is taken in each round, and what
counts is the median of these.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Spread:
    """A median, and what nine rounds of ten lie below and above."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{number(self.median)} ({number(self.low)} to {number(self.high)})"


def spread(values: Sequence[float]) -> Spread:
    """Describe many values by three."""
    ordered = sorted(values)
    cut = len(ordered) // 10
    return Spread(statistics.median(ordered), ordered[cut], ordered[-1 - cut])


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Compare two programs, round by round."""
    return spread([a / b for a, b in zip(ours, theirs) if b])


def number(value: float) -> str:
    """Write a number with three digits that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
