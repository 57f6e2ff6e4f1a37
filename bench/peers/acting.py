"""Methods that act on Emacs; `epc_peer.py` does the first by EPC."""

import statistics
from collections.abc import Iterator
from time import perf_counter

from duet_rpc import Context, method


@method
def measure(ctx: Context, calls: int) -> float:
    """Return the median of many round trips in microseconds."""
    took = []
    for number in range(calls):
        before = perf_counter()
        result = ctx.emacs.call("1+", number)
        took.append(perf_counter() - before)
        assert result == number + 1
    return statistics.median(took) * 1e6


@method
def stream(pieces: int, size: int) -> Iterator[str]:
    """Yield pieces of text that all differ."""
    for number in range(pieces):
        yield f"{number} ".ljust(size, "x")
