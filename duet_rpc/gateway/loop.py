"""The event loop: descriptors, timers and signals in one thread.

With nothing to do it sleeps without waking. What a turn of the loop writes to a descriptor
goes out at the end of that turn, in one system call (see `streams.WriteQueue`).
"""

from __future__ import annotations

import os
import signal
from heapq import heappop, heappush
from itertools import count
from select import POLLIN, poll
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Protocol

    class Flushable(Protocol):
        """Something with bytes to write at the end of the turn."""

        def flush(self) -> None:
            """Write as much as there is room for."""


SLEEP_MAX = 86_400_000.0  # ms; the system call takes no more than 24 days

IDLE = 50.0
"""Milliseconds in which nothing happens before `on_idle` is called."""

SHUTDOWN_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Timer:
    """A function to be called later, unless it is cancelled."""

    __slots__ = ("function", "when")

    def __init__(self, when: float, function: Callable[[], object]) -> None:
        self.when = when
        self.function: Callable[[], object] | None = function

    def cancel(self) -> None:
        """Do not call it."""
        self.function = None


class Deadline:
    """A time that is moved often and seldom reached; it costs one timer however often it moves."""

    __slots__ = ("_armed", "_function", "_loop", "when")

    def __init__(self, loop: Loop, function: Callable[[], object]) -> None:
        self._loop = loop
        self._function = function
        self._armed = False  # a timer of ours is running
        self.when: float | None = None  # None: never

    def set(self, when: float) -> None:
        """Call the function at this time, and not at the one set before."""
        self.when = when
        if not self._armed:
            self._armed = True
            self._loop.call_later(when - monotonic(), self._check)

    def _check(self) -> None:
        self._armed = False
        if self.when is None:
            return
        if self.when > monotonic():
            self.set(self.when)
        else:
            self.when = None
            self._function()


class Loop:
    """Waits for descriptors, timers and signals, and calls the function that each is for."""

    def __init__(self) -> None:
        self._poll = poll()
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = count()  # of timers that are due at the same time
        self._soon: list[Callable[[], object]] = []
        self._unflushed: list[Flushable] = []
        self._running = True
        self.on_idle: Callable[[], object] | None = None  # called once, after `IDLE`

    # Descriptors.

    def watch(self, descriptor: int, events: int, callback: Callable[[], object]) -> None:
        """Call a function whenever a descriptor is ready."""
        self._poll.register(descriptor, events)
        self._callbacks[descriptor] = callback

    def unwatch(self, descriptor: int) -> None:
        """Stop watching a descriptor; one that is not watched may be named too."""
        if self._callbacks.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def flush_later(self, queue: Flushable) -> None:
        """Flush a queue at the end of this turn."""
        self._unflushed.append(queue)

    # Time.

    def call_later(self, seconds: float, function: Callable[[], object]) -> Timer:
        """Call a function after that many seconds."""
        timer = Timer(monotonic() + seconds, function)
        heappush(self._timers, (timer.when, next(self._order), timer))
        return timer

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function in the next turn, after the descriptors that are ready then."""
        self._soon.append(function)

    def _run_timers(self) -> None:
        timers, now = self._timers, monotonic()
        while timers and (timers[0][0] <= now or timers[0][2].function is None):
            function = heappop(timers)[2].function
            if function is not None:
                function()

    def _run_soon(self) -> None:
        soon, self._soon = self._soon, []
        for function in soon:
            function()

    # Signals.

    def watch_signals(
        self, on_shutdown: Callable[[str], object], on_child_exit: Callable[[], object]
    ) -> None:
        """Call a function with the name of the first signal to shut down, another on SIGCHLD."""
        pipe = SignalPipe()

        def handle() -> None:
            child_exited, name = pipe.read()
            if child_exited:
                on_child_exit()
            if name is not None:
                on_shutdown(name)

        self.watch(pipe.descriptor, POLLIN, handle)

    # Running.

    def run(self) -> None:
        """Run until `stop` is called."""
        while True:
            if self._unflushed:
                self._flush()
            if not self._running:
                return
            ready = self._poll.poll(self._sleep_time())
            for descriptor, _ in ready:
                callback = self._callbacks.get(descriptor)
                if callback is not None:  # else it was unwatched in this very turn
                    callback()
            if self._timers:
                self._run_timers()
            if self._soon:
                self._run_soon()
            elif not ready and self.on_idle is not None:
                on_idle, self.on_idle = self.on_idle, None
                on_idle()

    def stop(self) -> None:
        """End `run` once the queues are flushed."""
        self._running = False

    def _sleep_time(self) -> float | None:
        """Return the milliseconds that there is nothing to do for; None is for ever."""
        if self._soon:
            return 0.0
        idle = None if self.on_idle is None else IDLE
        if not self._timers:
            return idle
        return min(max(0.0, 1000 * (self._timers[0][0] - monotonic())), idle or SLEEP_MAX)

    def _flush(self) -> None:
        while self._unflushed:
            queues, self._unflushed = self._unflushed, []
            for queue in queues:
                queue.flush()


class SignalPipe:
    """Signals as bytes in a pipe, so that one which comes just before a wait ends that wait."""

    __slots__ = ("_first", "descriptor")

    def __init__(self) -> None:
        self._first: str | None = None  # signal to shut down
        self.descriptor, writing = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in SHUTDOWN_SIGNALS:
            signal.signal(number, self._note)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        # A parent may have blocked it, and what is blocked is inherited.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGCHLD,))

    def _note(self, number: int, _frame: FrameType | None) -> None:
        # In a handler, because a pipe that is full loses bytes.
        if self._first is None:
            self._first = signal.Signals(number).name

    def read(self) -> tuple[bool, str | None]:
        """Return whether a child may have exited, and the first signal to shut down, once."""
        try:
            numbers = os.read(self.descriptor, 4096)
        except BlockingIOError:
            return False, None
        name = self._first
        if name is not None:
            self._first = ""  # a second signal changes nothing
        return signal.SIGCHLD in numbers, name or None
