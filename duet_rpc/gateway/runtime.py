"""What all backends of a gateway share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.jsonrpc import limits

if TYPE_CHECKING:
    from duet_rpc.gateway.client import ClientConnection
    from duet_rpc.gateway.loop import Loop
    from duet_rpc.gateway.watchdog import Watchdog
    from duet_rpc.log import Log


class Times:
    """The durations that tests shorten, in seconds."""

    def __init__(self) -> None:
        self.restart: tuple[float, ...] = limits.RESTART_DELAYS
        self.stable = limits.STABLE
        self.start = limits.START_TIMEOUT
        self.list = limits.LIST_TIMEOUT
        self.read = limits.READ_TIMEOUT


class Runtime:
    """The loop, the log, the watchdog, the durations, and the connection to the client."""

    __slots__ = ("client", "log", "loop", "times", "watchdog")

    def __init__(
        self,
        loop: Loop,
        log: Log,
        watchdog: Watchdog,
        times: Times,
        client: ClientConnection,
    ) -> None:
        self.loop = loop
        self.log = log
        self.watchdog = watchdog
        self.times = times
        self.client = client
