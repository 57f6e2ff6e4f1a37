"""What is done to a program in one round, and what is measured meanwhile.

A session is short, so that rounds of all programs can be many and lie close together. Each
returns the figures for some rows of the table in `goals`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from bench.server import Server, memory_of, wakeups_of
from bench.traffic import Call, Traffic

if TYPE_CHECKING:
    from bench.programs import Program

Session = Callable[["Program", Traffic], "dict[str, float | None]"]

TRIPS = 300
BURST = 2000
SETTLE = 0.3
"""Seconds of silence after the first reply: what a program defers until it is idle."""
IDLE = 2.0
LARGE = 9_000_000
GROWTH = 100_000


def start(program: Program, traffic: Traffic) -> dict[str, float | None]:
    """Start, make one call, end."""
    before = time.perf_counter()
    with Server(program) as server:
        server.call(traffic.version())
        first = time.perf_counter() - before
        time.sleep(SETTLE)
        gone = server.end_input()
    return {"start": first * 1e3, "exit": gone * 1e3}


def talk(program: Program, traffic: Traffic) -> dict[str, float | None]:
    """Call the user's method, one call after the other and then many at once."""
    with Server(program, *program.methods) as server:
        server.call(traffic.count())
        time.sleep(SETTLE)
        trip = measure_trips(server, traffic.count)
        burst = server.burst(list(traffic.mixed(BURST))) / BURST
    return {"trip": trip, "burst": burst * 1e6}


def measure_trips(server: Server, make: Callable[[], Call], trips: int = TRIPS) -> float:
    """Make many small calls on one core; return the median in microseconds."""
    with server.one_core():
        return statistics.median(server.call(make()) for _ in range(trips)) * 1e6


def large(program: Program, traffic: Traffic) -> dict[str, float | None]:
    """Send a large request, to a fresh process each time."""
    found: dict[str, float | None] = {}
    for key, call in large_calls(traffic.seed).items():
        if key in program.skips:
            continue
        with Server(program, *program.methods) as server:
            server.call(traffic.count())
            time.sleep(SETTLE)
            found[key] = server.call(call) * 1e3
    return found


@lru_cache(maxsize=1)
def large_calls(seed: str) -> dict[str, Call]:
    """Return the large calls of one round; it takes a second to make them."""
    traffic = Traffic(f"{seed}, large")
    return {
        "large_text": traffic.long_text(LARGE),
        "large_records": traffic.many_records(LARGE),
    }


def idle(program: Program, traffic: Traffic) -> dict[str, float | None]:
    """Make one call, then count how often the program wakes with nothing to do."""
    with Server(program) as server:
        server.call(traffic.version())
        time.sleep(1.0)  # by now duet-rpc has imported loguru
        before = wakeups_of(server.process.pid)
        time.sleep(IDLE)
        after = wakeups_of(server.process.pid)
        wakeups = None if before is None or after is None else (after - before) / IDLE
        return {"wakeups": wakeups, "memory": memory_of(server.process.pid)}


def growth(program: Program, traffic: Traffic) -> dict[str, float | None]:
    """Make many calls; measure by how many bytes the memory grows with each."""
    # So few at once that they fit into a pipe: how much is read at once does not depend on
    # what else the machine does.
    points, step = [], 100
    with Server(program, *program.methods) as server:
        server.call(traffic.count())
        time.sleep(1.0)  # by now duet-rpc has imported loguru
        for at in range(0, GROWTH, step):
            server.burst(list(traffic.mixed(step)))
            memory = memory_of(server.process.pid)
            if memory is None:
                return {"growth": None}
            points.append((at, memory * 1024 * 1024))
    # The first half fills buffers and caches.
    return {"growth": slope(points[len(points) // 2 :])}


def slope(points: list[tuple[int, float]]) -> float:
    """Return the slope of the line through points by least squares."""
    middle_x = statistics.fmean(x for x, _ in points)
    middle_y = statistics.fmean(y for _, y in points)
    above = sum((x - middle_x) * (y - middle_y) for x, y in points)
    return above / sum((x - middle_x) ** 2 for x, _ in points)


def mcp(program: Program, traffic: Traffic) -> dict[str, float | None]:
    """Start an MCP server, make the handshake, call its tool."""
    client = {"name": "bench", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    before = time.perf_counter()
    with Server(program) as server:
        server.call(Call(traffic.next_id(), "initialize", params, None))
        first = time.perf_counter() - before
        server.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        server.call(traffic.tool_call())
        time.sleep(SETTLE)
        return {"mcp_start": first * 1e3, "mcp_trip": measure_trips(server, traffic.tool_call)}
