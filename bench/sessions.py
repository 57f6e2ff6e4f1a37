"""What is done to a program in one round, and what is read off the clock meanwhile.

A session is short, so that rounds of all programs can be many and lie close together.
`SESSIONS` is the table of them; each gives some of the rows.
"""

from __future__ import annotations

import mmap
import statistics
import time

from bench.requests import long_text, request, requests
from bench.server import Server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.programs import Program

TRIPS = 300
BURST = 2000
SETTLE = 0.25
"""Seconds of silence after the first reply: what a program puts off till then is not measured."""

ADD = '{"a":12,"b":13}'
IDLE = 2.0
LARGE = 9_000_000
LENT = 128 * 1024 * 1024


def start(program: Program) -> dict[str, float | None]:
    """Start, make one call, end."""
    clock = time.perf_counter
    before = clock()
    with Server(program) as server:
        server.call(request())
        first = clock() - before
        memory = server.memory()
        time.sleep(SETTLE)
        gone = server.end_input()
    return {"start": first * 1e3, "exit": gone * 1e3, "memory": memory}


def talk(program: Program) -> dict[str, float | None]:
    """Make small calls, one by one and all at once."""
    with Server(program) as server:
        server.call(request())
        time.sleep(SETTLE)
        trip = trips(server, request)
        data = requests(BURST)
        before = time.perf_counter()
        server.burst(data, BURST)
        burst = (time.perf_counter() - before) / BURST
    return {"trip": trip, "burst": burst * 1e6}


def trips(server: Server, make: Callable[[int], bytes]) -> float:
    """Make many small calls on one core; return the median in microseconds."""
    took = []
    with server.one_core():
        for number in range(TRIPS):
            data = make(number)
            before = time.perf_counter()
            server.trip(data)
            took.append(time.perf_counter() - before)
    return statistics.median(took) * 1e6


def call(program: Program) -> dict[str, float | None]:
    """Start with a method of the user's, that adds two numbers, and call it."""
    with Server(program, *program.methods) as server:
        server.call(request(method="add", params=ADD))
        time.sleep(SETTLE)
        return {"call": trips(server, lambda number: request(number, "add", ADD))}


def touch_memory() -> None:
    """Use much memory for a moment, so that it is there for whoever comes next.

    A virtual machine has it from its host, which may take it back when it is free, and a page
    that has to be asked for again costs ten times as much: no program's own doing.
    """
    with mmap.mmap(-1, LENT, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as room:
        if hasattr(mmap, "MADV_HUGEPAGE"):
            room.madvise(mmap.MADV_HUGEPAGE)  # what is free in large pieces is taken back first
        for at in range(0, LENT, mmap.PAGESIZE):
            room[at] = 1


def big(program: Program) -> dict[str, float | None]:
    """Send one large request; look at the memory a second later."""
    touch_memory()
    with Server(program) as server:
        server.call(request())
        server.call(long_text(LARGE // 8))  # the first large one loads what large ones need
        time.sleep(SETTLE)
        data = long_text(LARGE)
        before = time.perf_counter()
        server.call(data)
        took = time.perf_counter() - before
        time.sleep(1.0)
        return {"large": took * 1e3, "memory_after": server.memory()}


def idle(program: Program) -> dict[str, float | None]:
    """Start, make one call, and count how often the program wakes with nothing to do."""
    with Server(program) as server:
        server.call(request())
        time.sleep(1.0)  # the silence that a program uses to put its house in order
        before = server.wakeups()
        time.sleep(IDLE)
        after = server.wakeups()
        quiet = None if before is None or after is None else (after - before) / IDLE
        return {"idle": quiet, "memory_idle": server.memory()}


SESSIONS = {"start": start, "talk": talk, "call": call, "big": big, "idle": idle}


def growth(program: Program, count: int) -> float | None:
    """Make many calls; return by how many bytes the memory grows with each."""
    points = []
    steps, part = 20, 1000
    with Server(program) as server:
        server.call(request())
        time.sleep(SETTLE)
        data = requests(part)
        for step in range(steps + 1):
            if step:
                for _ in range(count // steps // part):
                    server.burst(data, part)
            memory = server.memory()
            if memory is None:
                return None
            points.append((step * (count // steps), memory * 1024 * 1024))
    # The first steps fill buffers and caches once.
    return slope(points[steps // 4 :])


def slope(points: list[tuple[int, float]]) -> float:
    """Fit a line through points by least squares."""
    middle_x = statistics.fmean(x for x, _ in points)
    middle_y = statistics.fmean(y for _, y in points)
    above = sum((x - middle_x) * (y - middle_y) for x, y in points)
    return above / sum((x - middle_x) ** 2 for x, _ in points)
