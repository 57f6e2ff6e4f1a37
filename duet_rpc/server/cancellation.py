"""How a running method is interrupted: one trick, in one file.

A method runs on the main thread, and its caller may lose interest in it. Another thread,
the supervisor's, learns of that. It must make the main thread raise `Cancelled` wherever it
is: in a loop of pure Python, in `time.sleep`, waiting for a lock, a socket or a child.

A signal does all of this. The supervisor sends one to the main thread alone; the system
interrupts the call that the thread sleeps in, Python runs the handler between two bytecodes
of the main thread, and the handler raises. The alternatives do less:
`PyThreadState_SetAsyncExc` needs ctypes and does not end a sleep, `_thread.interrupt_main`
does not end one either, and a timer's signal that looks for input itself has to do all its
work in the middle of somebody else's stack.

The signal is SIGURG, for the reasons for which Go's runtime uses it to preempt: nobody uses
it otherwise (it tells of out-of-band data on a socket, and only who asked for that), it is
ignored by default, so a stray one does no harm, in a child of a fork least of all, and
debuggers pass it on. What methods do with SIGALRM, timers or masks does not matter.

The handler runs on the main thread, so what it decides can't race with the main thread:

- It raises only while `_open` says that the method's own code is running. `run` opens and
  closes that door; whatever is raised in between leaves through `run`, where `dispatch.call`
  waits for it. A signal that comes too late finds the door closed and does nothing.
- It raises once. Then `finally` blocks, and whatever they call, run undisturbed. Another
  cancel, or `AGAIN` seconds, interrupts again.
- It does not raise inside `hold()`: our own code that a method calls (`ctx.log`,
  `ctx.progress`) is not cut in half. What was put off is raised when the hold ends.
- A handler that is called at the very end of the stack may fail with a RecursionError before
  it decides anything. That ends in the method as any RecursionError does, and the supervisor
  sends the signal again until it was heeded.

What a signal can't do is end a call into C that does not return (a long sort, sqlite). The
cancel is raised when that call returns; the deadline of a daemon that leaves does not wait
for it.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from duet_rpc.methods.context import Cancelled
from duet_rpc.server.signals import INTERRUPT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AGAIN = 10.0
"""Seconds until a method that goes on after its cancellation is interrupted once more."""

RETRY = 0.02
"""Seconds until a signal that had no effect yet is sent again."""


class Cancellation:
    """Interrupts the method that runs on the main thread."""

    def __init__(self) -> None:
        self._main = threading.main_thread().ident or 0
        self._open = False  # a method's own code is running
        self._held = 0
        self._due: float | None = None  # when to interrupt
        self.requested = False  # the caller has lost interest

    # On the main thread.

    def begin(self) -> None:
        """Begin a request: no earlier cancel concerns it."""
        self.requested = False
        self._due = None
        self._held = 0

    def run(self, function: Callable[..., str], *arguments: object) -> str:
        """Call a method; raises Cancelled wherever it is, once that is requested."""
        try:
            self._open = True
            if self._due is not None:  # cancelled before it began
                raise Cancelled
            return function(*arguments)
        finally:
            self._open = False

    def on_signal(self, _number: int, _frame: object) -> None:
        """Raise Cancelled in the method that runs, where that is due."""
        if self._open and not self._held:
            self._raise_if_due()

    def _raise_if_due(self) -> None:
        now = monotonic()
        if self._due is not None and now >= self._due:
            self._due = now + AGAIN
            raise Cancelled

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Put an interruption off to the end of a block; a method's threads have none."""
        if threading.get_ident() != self._main:
            yield
            return
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        if not self._held and self._open:
            self._raise_if_due()

    # On the supervisor's thread.

    def request(self) -> None:
        """Interrupt the method; once more where it was interrupted before."""
        self.requested = True
        self._due = monotonic()

    def deliver(self, now: float) -> float | None:
        """Send the signal if it is due; return when to call this again."""
        if self._due is None:
            return None
        if now < self._due:
            return self._due
        signal.pthread_kill(self._main, INTERRUPT)
        return now + RETRY
