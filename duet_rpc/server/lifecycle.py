"""The states of the daemon, from its first request to its exit.

The state is here and nowhere else, and so is every transition. The loop and the supervisor
report what they see; everything else asks.
"""

from __future__ import annotations

import signal
import threading
from enum import Enum
from os import _exit as exit_now  # by their names: a method may replace what a module has
from signal import signal as set_handler
from threading import get_ident, main_thread
from time import monotonic
from typing import TYPE_CHECKING

from duet_rpc.failures import describe
from duet_rpc.jsonrpc.limits import CLEANUP_WINDOW, WORK_WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.log import Log

OUTPUT_CLOSED = "stdout is closed: the client is gone"


class State(Enum):
    """What the daemon does with requests."""

    SERVING = "reads and answers them"
    DRAINING = "the input has ended: answers those that have arrived"
    STOPPING = "finishes the one that is running, and answers no other"


# A state is only ever left for one further down.
ORDER = list(State)


class Lifecycle:
    """Knows whether the daemon goes on, and when it must be gone."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._state = State.SERVING
        self._exiting = threading.Lock()
        self.deadline: float | None = None  # when work ends, done or not
        self.exit_code = 0
        self.output_lost = False
        self._gave_up = False
        self.before_exit: Callable[[], object] = bool

    @property
    def state(self) -> State:
        """The state that the daemon is in."""
        return self._state

    @property
    def answering(self) -> bool:
        """True while requests that have arrived are answered."""
        return self._state is not State.STOPPING and not self.overdue

    @property
    def overdue(self) -> bool:
        """True once the window for what was still to be done has passed."""
        return self.deadline is not None and monotonic() >= self.deadline

    @property
    def exit_by(self) -> float | None:
        """When the process ends, whatever it is doing."""
        return None if self.deadline is None else self.deadline + CLEANUP_WINDOW

    def _enter(self, state: State) -> bool:
        """Enter a state; return False where the daemon is in it or past it."""
        with self._lock:
            if ORDER.index(state) <= ORDER.index(self._state):
                return False
            self._state = state
            self.limit_work()
            return True

    def limit_work(self) -> None:
        """Start the clock, once: by the first reason to leave, or to become another program."""
        if self.deadline is None:
            self.deadline = monotonic() + WORK_WINDOW

    def end_input(self) -> None:
        """Answer what has arrived, then leave: the client sends no more."""
        if self._enter(State.DRAINING):
            self._log.lifecycle("stdin closed, shutting down gracefully")

    def stop(self, reason: str) -> None:
        """Finish the running request, then leave."""
        if self._enter(State.STOPPING):
            self._log.lifecycle(f"{reason}, shutting down gracefully")

    def lose_output(self, reason: str = OUTPUT_CLOSED) -> None:
        """Leave: nobody can read what is written."""
        self.output_lost = True
        if self._enter(State.STOPPING):
            self.exit_code = 1
            self._log.error(reason)

    def report(self, error: BaseException) -> None:
        """Log a fault of our own that ends nothing."""
        self._log.error(f"internal error: {describe(error)}")

    def give_up(self) -> bool:
        """Note that a method is still running when the window has passed; True the first time."""
        first, self._gave_up = not self._gave_up, True
        if first:
            self._log.warn("method still running after the shutdown window; interrupting it")
        return first

    def exit(self) -> None:
        """End the process now; does not return."""
        # The loop and the supervisor may both get here; the first one goes on.
        self._exiting.acquire()
        if get_ident() == main_thread().ident:
            # From here on no signal interrupts.
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                set_handler(number, _ignore)
        try:
            self._log.close()
            self.before_exit()
        finally:
            # Not sys.exit: tearing the interpreter down takes longer than all of this.
            exit_now(self.exit_code)


def _ignore(_number: int, _frame: object) -> None:
    pass
