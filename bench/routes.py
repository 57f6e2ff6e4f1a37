"""By how much a round trip is longer through a router: the gateway, and `rpc` with workers.

All programs run all the time, on one core, backends and workers included, and take turns.
"""

from __future__ import annotations

import os
import statistics
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from bench.install import PYTHON
from bench.programs import BACKEND, DUET, METHODS, PYZ, RASS, Program, gateways
from bench.server import Server
from bench.traffic import Call, Traffic
from bench.workers import BLOCK, COUNT, IDLER, home_with

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.goals import Samples

TRIPS = 300
SETTLE = 0.3

HELLO: dict[str, object] = {
    "processId": None,
    "rootUri": None,
    "capabilities": {"textDocument": {}},
}


class Route:
    """One way for a call, and how such a call is made."""

    def __init__(self, program: Program, make: Callable[[Traffic], Call], *first: Call) -> None:
        self.program = program
        self.make = make
        self.first = first

    def measure(self, server: Server, number: int) -> float:
        """Return the median of many round trips in microseconds."""
        traffic = Traffic(f"routes {number}")
        return statistics.median(server.call(self.make(traffic)) for _ in range(TRIPS)) * 1e6


def from_routes(rounds: int) -> Samples:
    """Measure what each router adds to the way that is direct."""
    routes = list_routes()
    took: dict[str, list[float]] = {name: [] for name in routes}
    with ExitStack() as stack:
        cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        if cores:
            stack.callback(os.sched_setaffinity, 0, cores)
            os.sched_setaffinity(0, {max(cores)})
        servers = {name: stack.enter_context(Server(each.program)) for name, each in routes.items()}
        for name, server in servers.items():
            for call in routes[name].first:
                server.call(call)
        time.sleep(SETTLE)
        for number in range(rounds):
            for name in [*routes][:: 1 if number % 2 else -1]:
                took[name].append(routes[name].measure(servers[name], number))
    added = {
        "gateway": {DUET: difference(took, "gateway", "backend")},
        "router": {DUET: difference(took, "router", "daemon")},
    }
    if RASS in took:
        for measured in added.values():
            measured[RASS] = difference(took, RASS, "backend")
    return added


def list_routes() -> dict[str, Route]:
    """Return the programs: direct ones and those in between."""
    routes = {"backend": Route(Program("backend", BACKEND), partial(hover, ""))}
    for program in gateways():
        prefix = "b/" if program.name == DUET else ""
        name = "gateway" if program.name == DUET else program.name
        first = Call(0, f"{prefix}initialize", HELLO, None)
        routes[name] = Route(program, partial(hover, prefix), first)
    environ = home_with("router", {"quick": COUNT, "other": BLOCK + IDLER.format(number=0)})
    once = Traffic("once").count()
    daemon = Program(DUET, [PYTHON, PYZ, "rpc", *METHODS])
    router = Program(DUET, [PYTHON, PYZ, "rpc"], environ=environ)
    routes["daemon"] = Route(daemon, Traffic.count, once)
    routes["router"] = Route(router, Traffic.count, once)
    return routes


def hover(prefix: str, traffic: Traffic) -> Call:
    """Make a call of a language server."""
    return traffic.hover(prefix)


def difference(took: dict[str, list[float]], through: str, direct: str) -> list[float]:
    """Return what one way takes longer than another, round by round."""
    return [a - b for a, b in zip(took[through], took[direct])]
