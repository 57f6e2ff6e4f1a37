"""Somebody keeps watch while the main thread is busy: cancel, end of input, signals, deadline.

While a method runs, or a reply waits for a client that does not read, the main thread can't
look at the pipes. A second thread does. It runs no code of the user's, and it touches the
input only while the main thread is inside a supervised section, so the two never read at
the same time.

Short calls must not pay for it: waking a thread for each would cost more than the call. The
thread sleeps for a tick at a time, and takes up its watch when it finds the same section
running twice. When it finds nothing running, it parks until the next section begins. So an
idle daemon never wakes, a short call pays for a counter, and a method is watched after two
ticks at most. At each tick it also looks whether a method has changed the handlers of the
signals that the daemon lives by, and has the main thread put them back.

Why a thread, and not a timer's signal whose handler reads the input (which is how this
began): the handler runs in the middle of the method's stack. It needs room there, which a
deep recursion does not leave; it may come upon modules half imported and polls half asked;
a large message stops the method while it is parsed; and a method switches it off with
`signal.alarm(0)`. A thread has none of these problems, and it can also end the process while
the main thread sits in C code that has released the GIL.

Some C code keeps the GIL for long, but looks for signals now and then; a regular expression
that backtracks without end is the one that people meet. There the thread would never run. So
a timer that counts CPU time alone (it never wakes an idle process) sends SIGVTALRM, whose
handler does nothing but let the other thread have the GIL. C code that does not even look for
signals, such as the sorting of a huge list, can't be interrupted by anybody in this process.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from contextlib import suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING

from duet_rpc.server.cancellation import SIGNAL
from duet_rpc.server.lifecycle import State
from duet_rpc.server.stdio import GONE, PEER_GONE, WakeUp

if TYPE_CHECKING:
    from duet_rpc.server.cancellation import Cancellation
    from duet_rpc.server.intake import Intake
    from duet_rpc.server.lifecycle import Lifecycle
    from duet_rpc.server.stdio import Stdio

TICK = 0.02
YIELD_EVERY = 0.05  # seconds of CPU time


def _sleep(seconds: float) -> None:
    with suppress(OSError):  # the clock was set in the middle of it
        sleep(seconds)


class Yield:
    """The handler of SIGVTALRM: lets another thread have the GIL."""

    def __init__(self) -> None:
        self._busy = False

    def __call__(self, _number: int, _frame: object) -> None:
        """Release the GIL for a moment, and not again inside that moment."""
        if not self._busy:
            self._busy = True
            _sleep(0)
            self._busy = False


def read_handlers() -> list[object]:
    """Return the handlers of the signals that the daemon lives by."""
    return [signal.getsignal(each) for each in (*WakeUp.SIGNALS, SIGNAL, signal.SIGVTALRM)]


class Supervisor:
    """Supervises sections of the main thread: `with supervisor: ...`."""

    def __init__(
        self, stdio: Stdio, intake: Intake, lifecycle: Lifecycle, cancellation: Cancellation
    ) -> None:
        self._watch = Watch(stdio, intake, lifecycle, cancellation)
        self._wake_up = stdio.wake_up
        self._depth = 0
        self._section = 0  # counts them
        self._lock = threading.Lock()  # held by whoever touches the input
        self._watching = False
        self._parked = False
        self._unpark = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_child = False
        self.signals_changed = False
        self._yield = Yield()
        self.restore()
        self._handlers = read_handlers()
        # A fork finds the thread at rest: what it holds would be held in the child for ever.
        os.register_at_fork(
            before=self._lock.acquire,
            after_in_parent=self._lock.release,
            after_in_child=self._in_child,
        )

    def restore(self) -> None:
        """Set what code that is not ours may have changed."""
        self.signals_changed = False
        signal.signal(signal.SIGVTALRM, self._yield)
        signal.siginterrupt(signal.SIGVTALRM, False)
        signal.setitimer(signal.ITIMER_VIRTUAL, YIELD_EVERY, YIELD_EVERY)

    def _in_child(self) -> None:
        """Leave a process that a method forks with nothing of the daemon's."""
        self._lock.release()
        self._is_child = True
        self._watch.detach()

    # On the main thread.

    def __enter__(self) -> None:
        """Begin a section; it may be inside another."""
        self._depth += 1
        if self._depth > 1:
            return
        # In this order: the thread looks at the two the other way round.
        self._section += 1
        if self._parked:
            self._unpark.set()
        elif self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True, name="supervisor")
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        """End a section; afterwards the input is the main thread's again."""
        self._depth -= 1
        if self._is_child and not self._depth:
            os._exit(0)  # a fork that ran on to here has no client to answer
        if self._watching and not self._depth:
            self._wake_up.now()
            with self._lock:
                pass

    # On the supervisor's thread.

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            section = self._section
            _sleep(TICK)
            if not self.signals_changed and read_handlers() != self._handlers:
                self.signals_changed = True
                self._wake_up.now()
            if section != self._section:
                continue
            if self._depth:
                self._watch_section(section)
            else:
                self._park(section)

    def _park(self, section: int) -> None:
        self._unpark.clear()
        self._parked = True
        if section == self._section:
            self._unpark.wait()
        self._parked = False

    def _watch_section(self, section: int) -> None:
        self._watching = True
        until: float | None = 0.0
        while True:
            ready = self._watch.wait(until)
            with self._lock:
                if section != self._section or not self._depth:
                    self._watching = False
                    return
                until = self._watch.look(ready)


class Watch:
    """What is looked at during a section, and what follows from it."""

    def __init__(
        self, stdio: Stdio, intake: Intake, lifecycle: Lifecycle, cancellation: Cancellation
    ) -> None:
        self._stdio = stdio
        self._intake = intake
        self._lifecycle = lifecycle
        self._cancellation = cancellation

    def detach(self) -> None:
        """Give up pipes and signals, in a process that a method forked."""
        self._stdio.detach()
        self._cancellation.detach()

    def wait(self, until: float | None) -> dict[int, int]:
        """Wait for a descriptor or until a time; return what happened to which."""
        stdio = self._stdio
        waiting = select.poll()
        waiting.register(stdio.wake_up.descriptor, select.POLLIN)
        state, is_full = self._lifecycle.state, self._intake.is_full
        is_open = state is State.SERVING or (state is State.DRAINING and not is_full)
        if is_open and not self._intake.ended:
            # Where no more is read ahead, its end is noticed all the same.
            waiting.register(stdio.reading, PEER_GONE | (0 if is_full else select.POLLIN))
        if not self._lifecycle.output_lost:
            waiting.register(stdio.writing, 0)
        seconds = None if until is None else max(0.0, until - monotonic())
        return dict(waiting.poll(None if seconds is None else seconds * 1000 + 1))

    def look(self, ready: dict[int, int]) -> float | None:
        """Act on what happened and on the clock; return when to look again at the latest."""
        stdio, intake, lifecycle = self._stdio, self._intake, self._lifecycle
        if stdio.wake_up.descriptor in ready:
            name = stdio.wake_up.read()
            if name is not None:
                lifecycle.stop(f"{name} received")
        if lifecycle.state is not State.STOPPING:
            self._look_at_input(ready.get(stdio.reading, 0))
        if ready.get(stdio.writing, 0) & GONE:
            lifecycle.lose_output()
        now = monotonic()
        if lifecycle.exit_by is not None and now >= lifecycle.exit_by:
            lifecycle.exit()
        ends = lifecycle.deadline
        if ends is not None and now >= ends:
            ends = lifecycle.exit_by
            if lifecycle.give_up():
                self._cancellation.request()
        intake.expire(now)
        times = (ends, intake.frame_deadline, self._cancellation.deliver(now))
        return min((each for each in times if each is not None), default=None)

    def _look_at_input(self, events: int) -> None:
        intake = self._intake
        intake.decode_ahead()
        if events & (select.POLLIN | GONE) and not intake.is_full:
            try:
                chunk = self._stdio.read()
            except OSError:  # the loop will meet it too
                return
            if chunk is not None:
                intake.read_ahead(chunk)
        if intake.ended or self._stdio.is_input_closed():
            self._lifecycle.end_input()
