"""What all backends of a gateway share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from duet_rpc.gateway.leftovers import Leftovers
from duet_rpc.gateway.starts import StartQueue
from duet_rpc.gateway.watchdog import Watchdog
from duet_rpc.jsonrpc import limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duet_rpc.config.processes import BackendSettings
    from duet_rpc.gateway.client import ClientConnection
    from duet_rpc.gateway.loop import Loop
    from duet_rpc.jsonrpc.framing import Framing
    from duet_rpc.log import Log
    from duet_rpc.server.handover import Passed
    from duet_rpc.workers.plan import Plan


class Times:
    """The durations that tests shorten, in seconds."""

    def __init__(self) -> None:
        self.restart: tuple[float, ...] = limits.RESTART_DELAYS
        self.stable = limits.STABLE
        self.start = limits.START_TIMEOUT
        self.list = limits.LIST_TIMEOUT
        self.list_at_once = limits.LIST_AT_ONCE
        self.read = limits.READ_TIMEOUT
        self.answer = limits.ANSWER_TIMEOUT


class Setup(NamedTuple):
    """What a router is made from: its client, its backends and the user's methods."""

    descriptors: tuple[int, int]  # of the client
    framing: Framing | None  # of the client; None: the one that its first byte tells
    batch: bool  # arrays are accepted, which was asked for on the command line
    passed: Passed | None  # what a daemon before us has begun
    backends: Sequence[BackendSettings]
    plan: Plan  # which workers there are to be
    log: Log
    times: Times


class Runtime:
    """The loop, the log, the durations, the client, and what starts and ends processes."""

    __slots__ = ("client", "leftovers", "log", "loop", "starts", "times", "watchdog")

    def __init__(self, loop: Loop, log: Log, times: Times, client: ClientConnection) -> None:
        self.loop = loop
        self.log = log
        self.times = times
        self.client = client
        self.starts = StartQueue(loop)
        self.leftovers = Leftovers(loop)
        self.watchdog = Watchdog(self.leftovers.prefix)
