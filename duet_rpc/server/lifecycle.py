"""How a running method is watched and how the daemon leaves: signals, cancel, two seconds.

All in one thread. While a method runs, a reply is stuck or one request comes after the
other, and only then, a timer ticks. Its handler looks at the pipes (for a cancel, or their
end) and at the clock, and acts from inside whatever Python code is running: it raises
`Cancelled` in a method that its caller has cancelled, and ends the process where the two
seconds are over.
"""

from __future__ import annotations

import os
import sys

# The C half of `signal`; the module itself imports `enum`, 3 ms of the start.
from _signal import (
    ITIMER_REAL,
    SIG_DFL,
    SIG_UNBLOCK,
    SIGALRM,
    SIGHUP,
    SIGINT,
    SIGTERM,
    default_int_handler,
    getitimer,
    getsignal,
    pthread_sigmask,
    set_wakeup_fd,
    setitimer,
    signal,
)
from _thread import get_ident
from time import monotonic

from duet_rpc.jsonrpc.limits import GRACE
from duet_rpc.methods.context import Cancelled
from duet_rpc.methods.registry import invoke

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from duet_rpc.log import Log

NAMES = {int(SIGINT): "SIGINT", int(SIGTERM): "SIGTERM", int(SIGHUP): "SIGHUP"}
OUTPUT_CLOSED = "stdout is closed: the client is gone"
TICK = 0.05

AGAIN = 1.0
"""Seconds until a method that caught its cancellation is interrupted once more."""


class Lifecycle:
    """Knows what is running, whether it is still wanted, and when all must end."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.main_thread = get_ident()
        self._deadline: float | None = None
        self._guards = 0
        self._held = 0
        self._next_interrupt = 0.0
        self._is_child = False
        self._looking = False
        self._client_gone = False
        self._limit = 0  # of recursion, where it could not be put back at once
        self.ticking = False
        self.moved = False  # requests came since the last tick
        self.wake: Callable[[], object] = bool  # ends a read that waits
        self.cancelled = False
        self.stopping = False
        self.input_ended = False
        self.watch: Callable[[], bool] = bool  # reads ahead; True where the input has ended
        self.output_closed: Callable[[], bool] = bool
        self.release: Callable[[], object] = bool
        # Signals write to this pipe, so that one which comes just before the loop goes
        # to sleep wakes it all the same.
        self.wakeup, self._awake = os.pipe()
        os.set_blocking(self._awake, False)
        os.set_blocking(self.wakeup, False)
        self._handlers: dict[int, Callable[[int, FrameType | None], None]] = dict.fromkeys(
            NAMES, self._on_signal
        )
        self._handlers[SIGALRM] = self._on_tick
        set_wakeup_fd(self._awake, warn_on_full_buffer=False)
        for number, handler in self._handlers.items():
            signal(number, handler)
        pthread_sigmask(SIG_UNBLOCK, (SIGALRM,))  # whatever our parent had in mind
        os.register_at_fork(after_in_child=self._in_child)

    def _in_child(self) -> None:
        """Leave a child that a method forks with the signals that it expects."""
        self._is_child = True
        set_wakeup_fd(-1)
        for number in self._handlers:
            signal(number, default_int_handler if number == SIGINT else SIG_DFL)

    # Round what may take long.

    def __enter__(self) -> None:
        """Begin what may take long: the timer ticks until it is done."""
        self._guards += 1
        if self._guards == 1:
            if self.input_ended and self._deadline is None:
                self._deadline = monotonic() + GRACE
            if not self.ticking:
                self.tick()

    def __exit__(self, *_: object) -> None:
        self._guards -= 1
        if self._guards == 0:
            if self._is_child:
                os._exit(0)  # a fork that ran on to here has no client to answer
            # Whoever has closed its end may still read: what it has asked gets two seconds
            # each. For a client that is gone they are the last.
            if not self.stopping and not self._client_gone:
                self._deadline = None
            if self._limit:
                sys.setrecursionlimit(self._limit)
                self._limit = 0
            # What the method has changed is put back.
            if getitimer(ITIMER_REAL)[1] != TICK:
                setitimer(ITIMER_REAL, TICK, TICK)
            for number, handler in self._handlers.items():
                if getsignal(number) is not handler:
                    signal(number, handler)

    def tick(self) -> None:
        """Start the timer, where it does not tick.

        It ticks on from request to request, and is stopped by the first tick that finds
        none running and none that came since the last: two system calls less for each.
        """
        self.moved = True
        if not self.ticking:
            self.ticking = True
            setitimer(ITIMER_REAL, TICK, TICK)

    def cancel(self) -> None:
        """Interrupt the running method at the next tick."""
        self.cancelled = True

    def begin(self) -> None:
        """Start afresh for the next method."""
        self._held = 0
        self._next_interrupt = 0.0

    def uninterrupted(self) -> Hold:
        """Return a context that puts an interruption off to its end."""
        return Hold(self)

    def hold(self) -> None:
        """Put interruptions off; in a thread of a method's there are none."""
        if get_ident() == self.main_thread:
            self._held += 1

    def let_go(self) -> None:
        """Let interruptions through again, one that has waited first."""
        if get_ident() != self.main_thread:
            return
        self._held -= 1
        if self.cancelled and self._held == 0:
            self._next_interrupt = monotonic() + AGAIN
            raise Cancelled

    # Signals.

    def awake(self) -> None:
        """Empty the pipe that signals write to."""
        os.read(self.wakeup, 4096)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.stopping:
            return
        self.stopping = True
        self._deadline = monotonic() + GRACE
        setitimer(ITIMER_REAL, TICK, TICK)
        self.wake()
        self._log.info(f"{NAMES[number]} received, shutting down gracefully")

    def _on_tick(self, _number: int, frame: FrameType | None) -> None:
        if not self._guards and not self.stopping:
            if self.moved:
                self.moved = False
                return
            setitimer(ITIMER_REAL, 0)
            self.ticking = False
            self.wake()
            # An event loop in a method takes the wake-up for itself.
            set_wakeup_fd(self._awake, warn_on_full_buffer=False)
            return
        now = monotonic()
        if self._deadline is not None and now >= self._deadline:
            self._give_up()
        if self._looking:
            # A look at a large message takes longer than a tick. It is neither begun again
            # inside itself, or what came later would be read sooner, nor broken off.
            return
        if not self.stopping:
            self._looking = True
            limit = self._limit or sys.getrecursionlimit()
            try:
                # The method may be deep in a recursion, which is nothing to those that ask
                # for something meanwhile.
                sys.setrecursionlimit(limit + _depth(frame))
                self._look(now)
            finally:
                self._looking = False
                self._limit = 0
                try:
                    sys.setrecursionlimit(limit)
                except RecursionError:  # too deep for that just now
                    self._limit = limit
        if self.cancelled and not self._held and now >= self._next_interrupt:
            self._next_interrupt = now + AGAIN
            while frame is not None:
                if frame.f_code is invoke.__code__:
                    raise Cancelled
                frame = frame.f_back

    def _look(self, now: float) -> None:
        self.input_ended |= self.watch()
        self._client_gone |= self.output_closed()
        if self._deadline is None and (self.input_ended or self._client_gone):
            self._deadline = now + GRACE

    def _give_up(self) -> None:
        code = 0
        if self._client_gone and not self.stopping:
            self._log.error(OUTPUT_CLOSED)
            code = 1
        elif not self.stopping:
            self._log.info("stdin closed, shutting down gracefully")
        self._log.warn(f"gave up what was still running after {GRACE:g} s")
        self.leave(code)

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


class Hold:
    """A block of code in which nothing is interrupted."""

    __slots__ = ("_lifecycle",)

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle

    def __enter__(self) -> None:
        self._lifecycle.hold()

    def __exit__(self, *_: object) -> None:
        self._lifecycle.let_go()


def _depth(frame: FrameType | None) -> int:
    depth = 0
    while frame is not None:
        depth += 1
        frame = frame.f_back
    return depth


def _ignore(_number: int, _frame: object) -> None:
    pass
