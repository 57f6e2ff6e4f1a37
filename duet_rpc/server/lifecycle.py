"""How the daemon leaves: signals, the end of input, and the two seconds.

All in one thread. A signal sets `stopping` and wakes the loop; from then on, and from
the moment the input ends while a method runs, a running request has two seconds. A timer
that ticks only while a method runs or a reply is stuck looks at the clock and at the
input, and ends the process from inside whatever Python code is running then.
"""

from __future__ import annotations

import os

# The C half of `signal`; the module itself imports `enum`, 3 ms of the start.
from _signal import (
    ITIMER_REAL,
    SIGALRM,
    SIGHUP,
    SIGINT,
    SIGTERM,
    set_wakeup_fd,
    setitimer,
    signal,
)
from time import monotonic

from duet_rpc.protocol.limits import GRACE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.log import Log

NAMES = {int(SIGINT): "SIGINT", int(SIGTERM): "SIGTERM", int(SIGHUP): "SIGHUP"}
TICK = 0.05


class Lifecycle:
    """Knows whether and by when the process must end."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._deadline: float | None = None
        self._guards = 0
        self.stopping = False
        self.input_ended = False
        self.input_closed: Callable[[], bool] = bool
        self.release: Callable[[], object] = bool
        # Signals write to this pipe, so that one which comes just before the loop goes
        # to sleep wakes it all the same.
        self.wakeup, awake = os.pipe()
        os.set_blocking(awake, False)
        os.set_blocking(self.wakeup, False)
        set_wakeup_fd(awake, warn_on_full_buffer=False)
        for number in NAMES:
            signal(number, self._on_signal)
        signal(SIGALRM, self._on_tick)

    def guard(self) -> Lifecycle:
        """Use in a `with` statement round what may take long."""
        return self

    def __enter__(self) -> None:
        self._guards += 1
        if self._guards == 1:
            if self.input_ended:
                self._deadline = monotonic() + GRACE
            setitimer(ITIMER_REAL, TICK, TICK)

    def __exit__(self, *_: object) -> None:
        self._guards -= 1
        if self._guards == 0 and not self.stopping:
            setitimer(ITIMER_REAL, 0)
            self._deadline = None

    def awake(self) -> None:
        """Empty the pipe that signals write to."""
        os.read(self.wakeup, 4096)

    def _on_signal(self, number: int, _frame: object) -> None:
        if self.stopping:
            return
        self.stopping = True
        self._deadline = monotonic() + GRACE
        setitimer(ITIMER_REAL, TICK, TICK)
        self._log.info(f"{NAMES[number]} received, shutting down gracefully")

    def _on_tick(self, _number: int, _frame: object) -> None:
        if self._deadline is None:
            if not self.input_closed():
                return
            self.input_ended = True
            self._deadline = monotonic() + GRACE
        elif monotonic() >= self._deadline:
            if not self.stopping:
                self._log.info("stdin closed, shutting down gracefully")
            self._log.warn(f"gave up what was still running after {GRACE:g} s")
            self.leave(0)

    def leave(self, code: int) -> None:
        """End the process now, with what is in the log written."""
        # Nothing stops the process from here on, a third signal least of all.
        setitimer(ITIMER_REAL, 0)
        for number in NAMES:
            signal(number, _ignore)
        self._log.close()
        self.release()
        # Not sys.exit: taking the interpreter apart takes longer than all of this.
        os._exit(code)


def _ignore(_number: int, _frame: object) -> None:
    pass
