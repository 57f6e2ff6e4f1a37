"""What a busy machine takes from a process, so that a test can tell that from what it promises."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.support import wait_until


def cpu_seconds(pid: int) -> float:
    """Return how long a process that is running has computed so far."""
    if sys.platform == "linux":
        return time.clock_gettime(~pid << 3 | 2)  # the clock that clock_getcpuclockid(3) names
    shown = subprocess.check_output(["ps", "-o", "time=", "-p", str(pid)], text=True)
    minutes, _, seconds = shown.strip().rpartition(":")
    return 60 * float(minutes) + float(seconds)


def cpu_seconds_of_children() -> float:
    """Return how long the children of this process that have exited have computed."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def wait_until_idle(pid: int) -> None:
    """Wait until a process has done all that it can do now: for a while it has hardly computed."""
    seen = [-1.0]

    def is_idle() -> bool:
        time.sleep(0.2)
        seen.append(cpu_seconds(pid))
        return seen[-1] - seen[-2] < 0.004

    wait_until(is_idle, f"process {pid} is idle")


def wait_until_computing(pid: int) -> None:
    """Wait until a process computes, as it does when a method runs that waits for nothing."""
    enough = cpu_seconds(pid) + 0.05
    wait_until(lambda: cpu_seconds(pid) > enough, f"process {pid} computes")


def wait_for_loguru(pid: int) -> None:
    """Wait until a daemon has loaded loguru, which it does in the first silence of its client."""
    maps = Path(f"/proc/{pid}/maps")
    if maps.exists():
        # What loguru imports, and nothing else in a daemon.
        wait_until(lambda: "_asyncio" in maps.read_text(), "loguru is loaded")
    else:
        time.sleep(0.8)  # nothing tells from outside
    wait_until_idle(pid)


def context_switches(pid: int) -> int:
    """Return how often the main thread of a process was put to sleep or held up; on Linux only."""
    status = Path(f"/proc/{pid}/status").read_text()
    return sum(int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line)


def stays_asleep(pid: int) -> bool:
    """Return whether an idle process sleeps for a second; it may have to finish something first."""
    for _ in range(5):
        wait_until_idle(pid)
        before = context_switches(pid)
        time.sleep(1.0)  # in which it could wake
        if context_switches(pid) == before:
            return True
    return False


class Stopwatch:
    """Measures what processes and this one take; waiting for a CPU that others have is not counted.

    So that a promise in seconds can be held to on a machine that does something else as well.
    """

    def __init__(self, *pids: int) -> None:
        self._pids = ("self", *pids)
        self._queued = self._queued_seconds()
        self._start = time.monotonic()

    def seconds(self) -> float:
        """Return the time since the start."""
        return time.monotonic() - self._start - (self._queued_seconds() - self._queued)

    def _queued_seconds(self) -> float:
        total = 0
        for pid in self._pids:
            for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                with suppress(OSError):  # a thread that has ended
                    total += int(file.read_text().split()[1])
        return total / 1e9
