"""Somebody keeps watch while the main thread is busy: cancel, end of input, signals, deadline.

While a method runs, or a reply waits for a client that does not read, the main thread can't
look at the pipes. A second thread does. It runs no code of the user's, and it touches the
input only while the main thread is inside a supervised section, so the two never read at
the same time.

Short calls must not pay for it: waking a thread for each would cost more than the call. The
thread sleeps for a tick at a time, and takes up its watch when it finds the same section
running twice. When it finds nothing running, it parks until the next section begins. So an
idle daemon never wakes, a short call pays for a counter, and a method is watched after two
ticks at most.

Why a thread, and not a timer's signal whose handler reads the input (which is how this
began): the handler runs in the middle of the method's stack. It needs room there, which a
deep recursion does not leave; it may come upon modules half imported and polls half asked;
a large message stops the method while it is parsed; and a method switches it off with
`signal.alarm(0)`. A thread has none of these problems, and it can also end the process while
the main thread sits in C code that has released the GIL.

C code that keeps the GIL and looks for signals (a regular expression) is dealt with in
`signals`. C code that keeps it and does not, such as the sorting of a huge list, can't be
interrupted by anybody in this process.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from contextlib import suppress
from select import poll  # by its name: a method may replace what a module has
from time import monotonic
from typing import TYPE_CHECKING

from duet_rpc.server.lifecycle import State
from duet_rpc.server.signals import LEAVE
from duet_rpc.server.stdio import GONE, PEER_GONE

if TYPE_CHECKING:
    from duet_rpc.server.cancellation import Cancellation
    from duet_rpc.server.intake import Intake
    from duet_rpc.server.lifecycle import Lifecycle
    from duet_rpc.server.questions import Questions
    from duet_rpc.server.signals import Signals, WakeUp
    from duet_rpc.server.stdio import Stdio

TICK = 0.02


class Supervisor:
    """Supervises sections of the main thread: `with supervisor: ...`."""

    def __init__(self, watch: Watch, wake_up: WakeUp, signals: Signals) -> None:
        self._watch = watch
        self._wake_up = wake_up
        self._signals = signals
        self._signals_may_differ = False  # from what they are to be
        self._watch_at_once = threading.Event()
        self._depth = 0
        self._section = 0  # counts them
        # Held by whoever touches the input, and for what the two threads share besides.
        self.exclusive = self._lock = threading.Lock()
        self._watching = False
        self._parked = False
        self._unpark = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_child = False
        # A fork finds the thread at rest: what it holds would be held in the child for ever.
        os.register_at_fork(
            before=self._lock.acquire,
            after_in_parent=self._lock.release,
            after_in_child=self._in_child,
        )

    def restore_signals(self) -> None:
        """Put back what methods have changed, if they have."""
        if self._signals_may_differ:
            self._signals_may_differ = False
            self._signals.install()

    def check_signals(self) -> None:
        """Make sure that the method which is about to run can be interrupted."""
        if not self._signals.can_interrupt:
            self._signals_may_differ = True
        self.restore_signals()

    def _in_child(self) -> None:
        """Leave a process that a method forks with nothing of the daemon's."""
        self._lock.release()
        self._is_child = True
        self._signals.detach()
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

    def watch_now(self) -> None:
        """Watch from now on; from any thread, inside a section."""
        self._watch_at_once.set()  # always: it may be about to end its watch of the section before

    def look_again(self) -> None:
        """Let the thread see what it is to watch now; from any thread."""
        self._wake_up.now()

    @property
    def is_child(self) -> bool:
        """True in a process that a method has forked."""
        return self._is_child

    # On the supervisor's thread.

    def _run(self) -> None:
        # The main thread gets all signals; those to leave come here where a method blocks them.
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals() - {*LEAVE})
        while True:
            try:
                self._tick()
            except Exception as error:  # noqa: BLE001 - or nobody would watch any more
                self._watching = False
                self._watch.report(error)

    def _tick(self) -> None:
        section = self._section
        with suppress(OSError):  # the clock was set in the middle of it
            if self._watch_at_once.wait(TICK):
                self._watch_at_once.clear()
                section = self._section
        is_idle = section == self._section and not self._depth
        # Handlers can be looked at from here; what else a method may have changed, such as
        # the mask, is put back when no more methods are called.
        if not self._signals_may_differ and (is_idle or self._signals.have_changed()):
            self._signals_may_differ = True
            self._wake_up.now()
        if is_idle:
            self._park(section)
        elif section == self._section:
            self._watch_section(section)

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
        self.questions: Questions

    def detach(self) -> None:
        """Give up the pipes, in a process that a method forked."""
        self._stdio.detach()

    def report(self, error: Exception) -> None:
        """Log a fault of our own."""
        self._lifecycle.report(error)

    def wait(self, until: float | None) -> dict[int, int]:
        """Wait for a descriptor or until a time; return what happened to which."""
        stdio = self._stdio
        waiting = poll()
        waiting.register(stdio.wake_up.reading, select.POLLIN)
        state, is_full = self._lifecycle.state, self._is_full
        is_open = state is State.SERVING or (state is State.DRAINING and not is_full)
        if is_open and not self._intake.frames.ended:
            # Where no more is read ahead, its end is noticed all the same.
            waiting.register(stdio.reading, PEER_GONE | (0 if is_full else select.POLLIN))
        if not self._lifecycle.output_lost:
            waiting.register(stdio.writing, 0)
        seconds = None if until is None else max(0.0, until - monotonic())
        return dict(waiting.poll(None if seconds is None else seconds * 1000 + 1))

    @property
    def _is_full(self) -> bool:
        """True where no more is read ahead; an answer may be behind all that has come."""
        return self._intake.is_full and not self.questions.need_input

    def look(self, ready: dict[int, int]) -> float | None:
        """Act on what happened and on the clock; return when to look again at the latest."""
        stdio, intake, lifecycle = self._stdio, self._intake, self._lifecycle
        if stdio.wake_up.reading in ready:
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
        intake.frames.expire(now)
        if intake.frames.ended or lifecycle.state is State.STOPPING:
            self.questions.wake()
        times = (ends, intake.frames.deadline, self._cancellation.deliver(now))
        return min((each for each in times if each is not None), default=None)

    def _look_at_input(self, events: int) -> None:
        intake = self._intake
        intake.decode_ahead()
        if events & (select.POLLIN | GONE) and not self._is_full:
            try:
                chunk = self._stdio.read()
            except OSError:  # the loop will meet it too
                return
            if chunk is not None:
                intake.read_ahead(chunk)
        if intake.frames.ended or self._stdio.is_input_closed():
            self._lifecycle.end_input()
