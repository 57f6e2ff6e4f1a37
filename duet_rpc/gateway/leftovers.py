"""Ends what a backend has started and what has left its process group, on Linux.

A process that calls `setsid` is in no group of ours, and its parent may be gone. But it has
the environment that it was started with: each process of a backend gets a variable with a
value of its own, and Linux shows the environment of every process of the same user. Other
systems do not; there such a process goes on.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duet_rpc.gateway.loop import Loop

VARIABLE = "DUET_RPC_BACKEND"
FIRST_SWEEP = 0.01  # seconds; many backends may end at the same time
GRACE = 0.2  # seconds between SIGTERM and SIGKILL
HURRIED_GRACE = 0.05  # the same, while the gateway is shutting down


class Leftovers:
    """Marks processes when they are started, and ends those that are left of a mark."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._numbers = count(1)
        self._ended: set[str] = set()  # marks of processes that have ended
        self._terminated: set[int] = set()  # processes that were sent SIGTERM
        self._grace = GRACE
        self.prefix = f"{os.getpid()}-{os.urandom(8).hex()}-"  # of all our marks

    def new_mark(self) -> str:
        """Return the value of `VARIABLE` for a process that is going to be started."""
        return f"{self.prefix}{next(self._numbers)}"

    @property
    def busy(self) -> bool:
        """True while there may be something to end."""
        return bool(self._ended)

    def end(self, mark: str) -> None:
        """End whatever has this mark, soon."""
        if not self._ended:
            self._loop.call_later(FIRST_SWEEP, self._sweep)
        self._ended.add(mark)

    def hurry(self) -> None:
        """Leave little time between SIGTERM and SIGKILL from now on."""
        self._grace = HURRIED_GRACE

    def _sweep(self) -> None:
        found = [pid for pid, mark in find_marked(self.prefix) if mark in self._ended]
        for pid in found:
            number = signal.SIGKILL if pid in self._terminated else signal.SIGTERM
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        self._terminated = set(found)
        if found:
            self._loop.call_later(self._grace, self._sweep)
        else:
            self._ended.clear()


def find_marked(prefix: str) -> Iterator[tuple[int, str]]:
    """Yield the id and the mark of each process whose mark begins so."""
    wanted = f"\0{VARIABLE}={prefix}".encode()
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                _, found, rest = (b"\0" + file.read()).partition(wanted)
                if found:
                    yield int(name), prefix + rest.partition(b"\0")[0].decode("ascii", "replace")
