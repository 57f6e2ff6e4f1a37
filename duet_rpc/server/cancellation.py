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
debuggers pass it on. What methods do with SIGALRM, timers or masks does not matter: where
one has blocked even SIGURG, `interrupt_main` (Python 3.10) has the handler called all the same.

The handler runs on the main thread, so what it decides can't race with the main thread:

- It raises only while `open` says that the method's own code is running. `run` opens and
  closes that door; whatever is raised in between leaves through `run`, where `dispatch.call`
  waits for it. A signal that comes too late finds the door closed and does nothing.
- It raises once. Then `finally` blocks, and whatever they call, run undisturbed. Another
  cancel, or `AGAIN` seconds, interrupts again.
- It does not raise inside `hold()`: our own code that a method calls (`ctx.log`,
  `ctx.progress`) is not cut in half. What was put off is raised when the hold ends.
- A method that waits for an answer of its caller may have another one served inside that wait
  (`questions`). Each has a `Turn` of its own, and they form a stack. To cancel one is to cancel
  those that run inside it, too: it can't go on before they have ended.
- A handler that is called at the very end of the stack may fail with a RecursionError before
  it decides anything. That ends in the method as any RecursionError does, and the supervisor
  sends the signal again until it was heeded.

What a signal can't do is end a call into C that does not return (a long sort, sqlite). The
cancel is raised when that call returns; the deadline of a daemon that leaves does not wait
for it.
"""

from __future__ import annotations

import sys
import threading
from _thread import interrupt_main
from contextlib import contextmanager
from signal import pthread_kill  # by its name: a method may replace what a module has
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from duet_rpc.methods.context import Cancelled
from duet_rpc.methods.restore import forget_half_imported, restore
from duet_rpc.server.signals import INTERRUPT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

AGAIN = 10.0
"""Seconds until a method that goes on after its cancellation is interrupted once more."""

RETRY = 0.02
"""Seconds until a signal that had no effect yet is sent again."""


NOBODY = object()
"""Stands for the id of a request where none has its turn."""


class Turn:
    """What is to become of one request."""

    __slots__ = ("due", "held", "id", "is_raised", "open", "over", "requested")

    def __init__(self, id: object) -> None:
        self.id = id
        self.open = False  # a method's own code is running
        self.held = 0
        self.due: float | None = None  # when to interrupt
        self.requested = False  # the caller has lost interest
        self.over = False  # it is answered
        self.is_raised = False  # Cancelled, and nobody was told yet


class Cancellation:
    """Interrupts the method that runs on the main thread."""

    def __init__(self) -> None:
        self._main = threading.main_thread().ident or 0
        self._turns = [Turn(NOBODY)]  # the last one runs, inside those before it
        self.restored = True  # what the last method has changed
        self.on_raised: Callable[[], object] = bool  # called once for each cancel, by `deliver`

    # On the main thread.

    @property
    def turn(self) -> Turn:
        """The request that has its turn."""
        return self._turns[-1]

    @property
    def requested(self) -> bool:
        """True where the caller has lost interest in the request that has its turn."""
        return self._turns[-1].requested

    @property
    def is_nested(self) -> bool:
        """True where it has its turn inside another one's."""
        return len(self._turns) > 1

    def begin(self, id: object = NOBODY) -> None:
        """Begin a request: no earlier cancel concerns it."""
        self._turns[-1] = Turn(id)

    def nest(self, id: object) -> None:
        """Let another request have its turn inside the one that waits."""
        self._turns.append(Turn(id))

    def unnest(self) -> None:
        """Go back to the one that waits."""
        self._turns.pop()

    def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Call code of the user's; raises Cancelled wherever it is, once that is requested.

        A cancel that was raised before spares it, as it spares a `finally`.
        """
        turn = self._turns[-1]
        try:
            turn.open = True
            return function(*arguments)
        except Cancelled:
            turn.open = False
            forget_half_imported()
            raise
        finally:
            turn.open = False
            self.restored = False
            self.restore()

    def restore(self) -> str:
        """Put back what the method has changed; where that fails, `restored` is False."""
        restore()
        self.restored = True
        return ""

    def on_signal(self, _number: int, _frame: object) -> None:
        """Raise Cancelled in the method that runs, where that is due."""
        turn = self._turns[-1]
        if turn.open and not turn.held:
            self._raise_if_due(turn)

    @staticmethod
    def _raise_if_due(turn: Turn) -> None:
        now = monotonic()
        if turn.due is not None and now >= turn.due:
            turn.due = now + AGAIN
            turn.is_raised = True
            raise Cancelled

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Put an interruption off to the end of a block; a method's threads have none."""
        if get_ident() != self._main:
            yield
            return
        turn = self._turns[-1]
        turn.held += 1
        try:
            yield
        finally:
            turn.held -= 1
        if not turn.held and turn.open:
            self._raise_if_due(turn)

    # On the supervisor's thread.

    def request(self, depth: int = 0) -> None:
        """Interrupt the turns from a depth on; once more where they were interrupted before."""
        for turn in self._turns[depth:]:
            turn.requested = True
            turn.due = monotonic()

    def request_id(self, id: object) -> bool:
        """Interrupt the request with this id, and those inside it; return whether it runs."""
        turn = self._find(id)
        if turn is not None:
            self.request_turn(turn)
        return turn is not None

    def is_running(self, id: object) -> bool:
        """Return whether the request with this id has its turn, or one inside it."""
        return self._find(id) is not None

    def _find(self, id: object) -> Turn | None:
        return next((turn for turn in self._turns if turn.id == id and not turn.over), None)

    def request_turn(self, turn: Turn) -> None:
        """Interrupt one request, and those inside it."""
        if turn in self._turns:
            self.request(self._turns.index(turn))

    def deliver(self, now: float) -> float | None:
        """Send the signal if it is due; return when to call this again."""
        due = self._turns[-1].due
        if due is None:
            return None
        turn = self._turns[-1]
        if turn.is_raised:
            turn.is_raised = False
            self.on_raised()
        if now < due:
            return due
        pthread_kill(self._main, INTERRUPT)
        if sys.version_info >= (3, 10):
            interrupt_main(INTERRUPT)  # where the method has blocked it
        return now + RETRY
