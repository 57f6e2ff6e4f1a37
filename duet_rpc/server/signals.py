"""All signals of the daemon, in one place: what they are for, and that they stay ours.

| signal | what it does |
| --- | --- |
| SIGINT, SIGTERM, SIGHUP | write their number to the wake-up pipe: the daemon leaves |
| SIGURG | interrupts the running method, see `cancellation` |
| SIGVTALRM | lets the supervisor's thread have the GIL |

The last one is for C code that keeps the GIL for long, but looks for signals now and then; a
regular expression that backtracks without end is the one that people meet. There no other
thread would ever run. So a timer that counts CPU time alone, and never wakes an idle process,
sends SIGVTALRM, whose handler does nothing but release the GIL for a moment.

Methods may change handlers, timers and the mask. The mask and other timers are put back after
each method (`methods.restore`). The supervisor looks for changed handlers at each tick
(`have_changed`), and the loop puts everything back then, before the next method, and when it is
idle after methods were called. The one that interrupts methods is looked at before each.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from os import read, write  # by their names: a method may replace what a module has
from signal import getsignal, pthread_sigmask, set_wakeup_fd, setitimer, siginterrupt
from signal import signal as set_handler
from time import sleep
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    Handler = Callable[[int, "FrameType | None"], object]

LEAVE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPT = signal.SIGURG

YIELD_EVERY = 0.05  # seconds of CPU time


class WakeUp:
    """A pipe that ends a wait: signals write their number to it, and so does `now`.

    A signal that comes just before a wait begins is not missed that way.
    """

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        os.set_blocking(self.writing, False)

    def note(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal to leave."""
        # Python has written it already, unless an event loop of a method's has taken the
        # wake-up descriptor for itself.
        self._write(bytes([number]))

    def now(self) -> None:
        """End a wait in another thread."""
        self._write(b"\0")

    def _write(self, data: bytes) -> None:
        with suppress(BlockingIOError):  # it is full, and so it wakes
            write(self.writing, data)

    def read(self) -> str | None:
        """Empty the pipe; return the name of the first signal to leave that was in it."""
        try:
            numbers = read(self.reading, 4096)
        except BlockingIOError:
            return None
        return next((signal.Signals(each).name for each in numbers if each in LEAVE), None)


class ReleaseGil:
    """A handler that lets another thread run."""

    def __init__(self) -> None:
        self._busy = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Release the GIL for a moment, and not again inside that moment."""
        if not self._busy:
            self._busy = True
            with suppress(OSError):  # the clock was set in the middle of it
                sleep(0)
            self._busy = False


class Signals:
    """The handlers of the daemon's signals."""

    def __init__(self, wake_up: WakeUp, interrupt: Handler) -> None:
        self._wake_up = wake_up
        self._handlers: dict[int, Handler] = {
            **dict.fromkeys(LEAVE, wake_up.note),
            INTERRUPT: interrupt,
            signal.SIGVTALRM: ReleaseGil(),
        }
        self.install()

    def install(self) -> None:
        """Set up all of it; on the main thread only."""
        set_wakeup_fd(self._wake_up.writing, warn_on_full_buffer=False)
        for number, handler in self._handlers.items():
            set_handler(number, handler)
        siginterrupt(signal.SIGVTALRM, False)
        setitimer(signal.ITIMER_VIRTUAL, YIELD_EVERY, YIELD_EVERY)
        # What a parent has blocked is inherited, too.
        pthread_sigmask(signal.SIG_SETMASK, ())

    @property
    def can_interrupt(self) -> bool:
        """False where a method has taken the signal that interrupts methods."""
        return getsignal(INTERRUPT) == self._handlers[INTERRUPT]

    def have_changed(self) -> bool:
        """Return True where a handler is another; from any thread."""
        return any(getsignal(number) != handler for number, handler in self._handlers.items())

    def detach(self) -> None:
        """Set the defaults, in a process that a method forked."""
        set_wakeup_fd(-1)
        for number in self._handlers:
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            set_handler(number, default)
