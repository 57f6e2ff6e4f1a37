"""The one place where the gateway waits: descriptors, timers and signals in one thread.

With nothing to do it sleeps without waking. Messages come in through an `Inlet`, which sees
to it that each is whole in time. Whatever is written goes through an `Outlet`, which never
blocks: what a turn of the loop has to say to somebody is written at its end, in one system
call, and what does not fit waits for room.

Timers ring by a signal, and not by a limit to each wait: nearly every wait ends long before
it, and setting it up, in the system and here, was 3 us of the 36 that the gateway adds to a
round trip.
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
    from typing import Protocol

    from duet_rpc.log import Log

    class Partial(Protocol):
        """Who knows whether a frame is arriving."""

        @property
        def partial(self) -> bool:
            """True where some of it has come."""


SETTLE = 0.1  # seconds before what the start goes without is loaded, as in server.daemon

EVENTS = 256  # descriptors at once; the others are ready in the next turn

SOONEST = 1e-6  # seconds; zero would be never
FARTHEST = 86400.0  # and what is beyond is looked at again each day

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

    def __init__(self) -> None:
        self._selector: selectors.BaseSelector = selectors.PollSelector()
        if not hasattr(select, "epoll"):
            self._selector = selectors.DefaultSelector()

    def add(self, descriptor: int, events: int) -> None:
        """Wait for this one too."""
        self._selector.register(descriptor, events)

    def remove(self, descriptor: int) -> None:
        """Wait for it no longer."""
        self._selector.unregister(descriptor)

    def wait(self, seconds: float | None) -> list[tuple[int, int]]:
        """Return the descriptors that are ready, and for what."""
        return [(key.fd, events) for key, events in self._selector.select(seconds)]


class Epoll:
    """The same without the layer of `selectors`, which costs as much as the call below it."""

    def __init__(self) -> None:
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

    def wait(self, seconds: float | None) -> list[tuple[int, int]]:
        """Return the descriptors that are ready, and for what."""
        return self._epoll.poll(seconds, EVENTS)


class Loop:
    """Waits, and calls whoever is concerned."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._functions: dict[int, Callable[[], object]] = {}
        self._events: dict[int, int] = {}
        self._waiter: Epoll | Selector = Epoll() if hasattr(select, "epoll") else Selector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._soon: list[Callable[[], object]] = []
        self.dirty: list[Outlet] = []
        self.alone = False  # one message makes up this turn: what it leads to goes out at once
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
        for number in (signal.SIGCHLD, signal.SIGALRM):
            signal.signal(number, lambda _number, _frame: None)
        # A parent may have blocked them, and what is blocked is inherited.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGCHLD, signal.SIGALRM))
        self.watch(self._wakeup, EVENT_READ, self._woken)

    # Descriptors.

    def watch(self, descriptor: int, events: int, function: Callable[[], object]) -> None:
        """Call a function when a descriptor is ready."""
        try:
            self._waiter.add(descriptor, events)
        except PermissionError:  # epoll takes no files; poll does
            self._waiter = Selector()
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
        if self._timers[0][2] is timer:
            self._set_clock()
        return timer

    def _set_clock(self) -> None:
        """Have the signal of the next timer sent."""
        seconds = self._timers[0][0] - monotonic()
        signal.setitimer(signal.ITIMER_REAL, min(max(seconds, SOONEST), FARTHEST))

    def soon(self, function: Callable[[], object]) -> None:
        """Call a function once everybody else has had a turn."""
        self._soon.append(function)

    def _ring(self) -> None:
        timers, now = self._timers, monotonic()
        while timers and (timers[0][0] <= now or timers[0][2].function is None):
            function = heappop(timers)[2].function
            if function is not None:
                function()
        if timers:
            self._set_clock()

    # Signals.

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self._signalled is None:
            self._signalled = signal.Signals(number).name

    def _woken(self) -> None:
        try:
            numbers = os.read(self._wakeup, 4096)
        except BlockingIOError:
            return
        self._ring()  # whichever it was: a look costs nothing, and none is missed
        if signal.SIGCHLD in numbers:
            self.on_child()
        if self._signalled is not None:
            name, self._signalled = self._signalled, ""  # a second one changes nothing
            if name:
                self.on_signal(name)

    # Running.

    def run(self) -> None:
        """Go round until somebody says that it is over."""
        functions, log = self._functions, self._log
        while True:
            if self.dirty:
                self.flush()
            if not self.running:
                return
            seconds = self._patience() if self._soon or not log.loguru_started else None
            ready = self._waiter.wait(seconds)
            self.alone = len(ready) == 1
            for descriptor, _ in ready:
                function = functions.get(descriptor)
                if function is not None:  # else it was taken out of view in this very turn
                    function()
            if self._soon:
                self._call_those_that_wait()
            elif not ready and seconds == SETTLE:
                log.start_loguru()

    def _patience(self) -> float:
        return 0.0 if self._soon else SETTLE

    def _call_those_that_wait(self) -> None:
        soon, self._soon = self._soon, []
        for function in soon:
            function()

    def flush(self) -> None:
        """Write what the last turn had to say."""
        while self.dirty:
            outlets, self.dirty = self.dirty, []
            for outlet in outlets:
                outlet.flush()


class Inlet:
    """A descriptor that is read while that is wanted, and whose frames are whole in time."""

    __slots__ = ("_descriptor", "_frame", "_loop", "_read", "_reader", "_timeout", "_watched")

    def __init__(
        self,
        loop: Loop,
        descriptor: int,
        reader: Partial,
        read: Callable[[], object],
        timeout: float,
        drop_frame: Callable[[], object],
    ) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._reader = reader
        self._read = read
        self._timeout = timeout
        self._frame = Alarm(loop, drop_frame)  # of the one that is arriving
        self._watched = False

    def watch(self, wanted: bool) -> None:
        """Read from now on, or no more."""
        if wanted == self._watched:
            return
        self._watched = wanted
        if wanted:
            self._loop.watch(self._descriptor, EVENT_READ, self._read)
        else:
            self._loop.ignore(self._descriptor)
        self.time_frame()

    def time_frame(self) -> None:
        """Limit the time that a frame takes to arrive, but not the time that we take."""
        if not self._watched or not self._reader.partial:
            self._frame.clear()
        elif self._frame.when is None:
            self._frame.set(monotonic() + self._timeout)

    def end_frame(self) -> None:
        """Take note that one was whole: what is arriving now began later."""
        self._frame.clear()


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
        if self._loop.alone and not self.size:
            # Nothing else will come to be written with it: 1.2 us off 33.
            try:
                written = os.write(self._descriptor, data)
            except OSError:  # `flush` meets it again, and knows what to do
                written = 0
            if written == len(data):
                return
            data = data[written:]
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
            self.on_room()  # whoever it was that wrote it: `_room` will not be called any more

    def _room(self) -> None:
        self.flush()
        if self._waiting:  # for some of it
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
