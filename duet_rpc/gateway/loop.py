"""The one place where the gateway waits: descriptors, timers and signals in one thread.

With nothing to do it sleeps without waking. Whatever is written goes through an `Outlet`,
which never blocks: what a turn of the loop has to say to somebody is written at its end,
in one system call, and what does not fit waits for room.
"""

from __future__ import annotations

import os
import select
import selectors
import signal
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from selectors import EVENT_READ, EVENT_WRITE
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from duet_rpc.log import Log

SETTLE = 0.1  # seconds of silence before loguru is loaded, as in server.daemon

EVENTS = 256  # descriptors at once; the others are ready in the next turn

LEAVE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Timer:
    """Something to be done later, unless it is cancelled."""

    __slots__ = ("function", "when")

    def __init__(self, when: float, function: Callable[[], object]) -> None:
        self.when = when
        self.function: Callable[[], object] | None = function

    def cancel(self) -> None:
        """Let it not happen."""
        self.function = None


class Alarm:
    """A deadline that is moved often and seldom reached: it costs one timer, however often."""

    __slots__ = ("_armed", "_function", "_loop", "when")

    def __init__(self, loop: Loop, function: Callable[[], object]) -> None:
        self._loop = loop
        self._function = function
        self._armed = False
        self.when: float | None = None

    def set(self, when: float) -> None:
        """Ring at this time, and at no other."""
        self.when = when
        if not self._armed:
            self._armed = True
            self._loop.after(when - monotonic(), self._look)

    def clear(self) -> None:
        """Ring no more."""
        self.when = None

    def _look(self) -> None:
        self._armed = False
        if self.when is None:
            return
        if self.when > monotonic():
            self.set(self.when)
        else:
            self.when = None
            self._function()


class Selector:
    """What waits for descriptors where there is no epoll, or where it refuses."""

    def __init__(self, functions: dict[int, Callable[[], object]]) -> None:
        self._functions = functions
        self._selector: selectors.BaseSelector = selectors.PollSelector()
        if not hasattr(select, "epoll"):
            self._selector = selectors.DefaultSelector()

    def add(self, descriptor: int, events: int) -> None:
        """Wait for this one too."""
        self._selector.register(descriptor, events)

    def remove(self, descriptor: int) -> None:
        """Wait for it no longer."""
        self._selector.unregister(descriptor)

    def wait(self, seconds: float | None) -> list[Callable[[], object]]:
        """Return the functions of the descriptors that are ready."""
        return [self._functions[key.fd] for key, _ in self._selector.select(seconds)]


class Epoll:
    """The same without the layer of `selectors`, which costs as much as the call below it."""

    def __init__(self, functions: dict[int, Callable[[], object]]) -> None:
        self._functions = functions
        self._epoll = select.epoll()

    def add(self, descriptor: int, events: int) -> None:
        """Wait for this one too."""
        self._epoll.register(
            descriptor, select.EPOLLIN if events == EVENT_READ else select.EPOLLOUT
        )

    def remove(self, descriptor: int) -> None:
        """Wait for it no longer."""
        with suppress(OSError):  # it is closed
            self._epoll.unregister(descriptor)

    def wait(self, seconds: float | None) -> list[Callable[[], object]]:
        """Return the functions of the descriptors that are ready."""
        functions = self._functions
        return [functions[descriptor] for descriptor, _ in self._epoll.poll(seconds, EVENTS)]


class Loop:
    """Waits, and calls whoever is concerned."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._functions: dict[int, Callable[[], object]] = {}
        self._events: dict[int, int] = {}
        kind = Epoll if hasattr(select, "epoll") else Selector
        self._waiter: Epoll | Selector = kind(self._functions)
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._soon: list[Callable[[], object]] = []
        self.dirty: list[Outlet] = []
        self.running = True
        self.on_signal: Callable[[str], None] = lambda _name: None
        self.on_child: Callable[[], object] = lambda: None
        self._signalled: str | None = None
        # Signals write to this pipe, so that one which comes just before the loop goes to
        # sleep wakes it all the same.
        self._wakeup, awake = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(awake, False)
        signal.set_wakeup_fd(awake, warn_on_full_buffer=False)
        for number in LEAVE:
            signal.signal(number, self._note)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self.watch(self._wakeup, EVENT_READ, self._woken)

    # Descriptors.

    def watch(self, descriptor: int, events: int, function: Callable[[], object]) -> None:
        """Call a function when a descriptor is ready."""
        try:
            self._waiter.add(descriptor, events)
        except PermissionError:  # epoll takes no files; poll does
            self._waiter = Selector(self._functions)
            for each, wanted in [*self._events.items(), (descriptor, events)]:
                self._waiter.add(each, wanted)
        self._functions[descriptor] = function
        self._events[descriptor] = events

    def ignore(self, descriptor: int) -> None:
        """Take a descriptor out of view; one that is not in view may be named too."""
        if self._functions.pop(descriptor, None) is not None:
            del self._events[descriptor]
            self._waiter.remove(descriptor)

    # Time.

    def after(self, seconds: float, function: Callable[[], object]) -> Timer:
        """Call a function later."""
        timer = Timer(monotonic() + seconds, function)
        heappush(self._timers, (timer.when, next(self._order), timer))
        return timer

    def soon(self, function: Callable[[], object]) -> None:
        """Call a function once everybody else has had a turn."""
        self._soon.append(function)

    def _patience(self, now: float) -> float | None:
        timers = self._timers
        while timers and timers[0][2].function is None:
            heappop(timers)
        if self._soon:
            return 0.0
        seconds = max(0.0, timers[0][0] - now) if timers else None
        if self._log.waiting and (seconds is None or seconds > SETTLE):
            return SETTLE
        return seconds

    # Signals.

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self._signalled is None:
            self._signalled = signal.Signals(number).name

    def _woken(self) -> None:
        try:
            numbers = os.read(self._wakeup, 4096)
        except BlockingIOError:
            return
        if signal.SIGCHLD in numbers:
            self.on_child()
        if self._signalled is not None:
            name, self._signalled = self._signalled, ""  # a second one changes nothing
            if name:
                self.on_signal(name)

    # Running.

    def run(self) -> None:
        """Go round until somebody says that it is over."""
        timers = self._timers
        while True:
            now = monotonic()
            if timers and timers[0][0] <= now:
                self._ring(now)
            if self.dirty:
                self.flush()
            if not self.running:
                return
            seconds = self._patience(now)
            ready = self._waiter.wait(seconds)
            for function in ready:
                function()
            if self._soon:
                soon, self._soon = self._soon, []
                for function in soon:
                    function()
            elif not ready and seconds == SETTLE:
                self._log.settle()

    def _ring(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            timer = heappop(self._timers)[2]
            if timer.function is not None:
                timer.function()

    def flush(self) -> None:
        """Write what the last turn had to say."""
        while self.dirty:
            outlets, self.dirty = self.dirty, []
            for outlet in outlets:
                outlet.flush()


class Outlet:
    """A descriptor that is written without ever waiting for it."""

    __slots__ = ("_descriptor", "_loop", "_marked", "_pieces", "_rest", "_waiting", "closed",
                 "on_broken", "on_room", "size")  # fmt: skip

    def __init__(self, loop: Loop, descriptor: int) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._pieces: list[bytes] = []
        self._rest: bytes | memoryview | None = None  # what is being written
        self._marked = False
        self._waiting = False
        self.size = 0  # bytes not yet written
        self.closed = False
        self.on_room: Callable[[], object] = lambda: None
        self.on_broken: Callable[[OSError], None] = lambda _error: None

    def put(self, data: bytes) -> None:
        """Write this at the end of the turn, or when there is room."""
        if self.closed:
            return
        self._pieces.append(data)
        self.size += len(data)
        if not self._marked and not self._waiting:
            self._marked = True
            self._loop.dirty.append(self)

    def flush(self) -> None:
        """Write as much as there is room for."""
        self._marked = False
        try:
            while self.size and not self.closed:
                rest = self._rest
                if rest is None:
                    pieces = self._pieces
                    self._rest = rest = pieces[0] if len(pieces) == 1 else b"".join(pieces)
                    pieces.clear()
                written = os.write(self._descriptor, rest)
                self.size -= written
                self._rest = memoryview(rest)[written:] if written < len(rest) else None
        except BlockingIOError:
            if not self._waiting:
                self._waiting = True
                self._loop.watch(self._descriptor, EVENT_WRITE, self._room)
            return
        except OSError as error:
            self.drop()
            self.on_broken(error)
            return
        if self._waiting:
            self._waiting = False
            self._loop.ignore(self._descriptor)

    def _room(self) -> None:
        self.flush()
        self.on_room()

    def drop(self) -> None:
        """Write no more, and forget what is not yet written."""
        self.closed = True
        self._pieces.clear()
        self._rest = None
        self.size = 0
        if self._waiting:
            self._waiting = False
            self._loop.ignore(self._descriptor)
