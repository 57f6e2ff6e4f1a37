"""File descriptors 0 and 1, which carry frames and nothing else.

`claim` runs before anything else of the daemon is imported. It moves both descriptors
out of reach and leaves /dev/null and stderr in their places, so that a `print`, a C
library or a child process can neither eat a request nor break into a reply.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock, _count, get_ident
from stat import S_ISFIFO, S_ISSOCK
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from duet_rpc.server.lifecycle import Lifecycle

PIECE = 64 * 1024


def claim() -> tuple[int, int]:
    """Take descriptors 0 and 1 away from everything else in the process."""
    null = os.open(os.devnull, os.O_RDWR)
    no_reader = null == 1
    while null <= 2:  # one of the three was closed: fill the hole
        null = os.dup(null)
        no_reader |= null == 1
    if no_reader:  # let the first reply find out, as if the client had gone since
        gone, broken = os.pipe()
        os.close(gone)
        os.dup2(broken, 1)
        os.close(broken)
    reading = os.dup(0)
    writing = os.dup(1)
    os.dup2(null, 0, inheritable=True)
    os.dup2(2, 1, inheritable=True)
    os.close(null)
    sys.stdout = sys.stderr
    return reading, writing


class Stdio:
    """The two claimed descriptors: read when something is there, written whole."""

    def __init__(self, descriptors: tuple[int, int], lifecycle: Lifecycle) -> None:
        self._reading, self._writing = descriptors
        self._lifecycle = lifecycle
        lifecycle.wake = self._wake
        self._kept = os.dup(self._reading)
        self._null = os.open(os.devnull, os.O_RDONLY)
        self._asleep = False  # in a read that waits
        self._woken = False
        self._polls: Polls | None = None
        self._turn = RLock()
        # A reply that does not fit must not hold the process where neither a signal nor
        # the end of input is seen. Only a pipe or a socket can be full for long, and
        # only they are safe to switch: a terminal is shared with the shell.
        mode = os.fstat(self._writing).st_mode
        self._switched = (S_ISFIFO(mode) or S_ISSOCK(mode)) and os.get_blocking(self._writing)
        if self._switched:
            os.set_blocking(self._writing, False)

    @property
    def is_terminal(self) -> bool:
        """True where a person types the requests."""
        return os.isatty(self._reading)

    def prepare(self) -> Polls:
        """Make what waits, if that was not done before: the first reply goes without it."""
        if self._polls is None:
            self._polls = Polls(self._reading, self._writing, self._lifecycle.wakeup)
        return self._polls

    def receive(self, until: float | None) -> bytes | None:
        """Wait for input and read it; None where time is up, a signal came or all is quiet."""
        lifecycle = self._lifecycle
        lifecycle.moved = True
        piece = None
        self._asleep = True
        try:
            # A poll before each read is a tenth of a round trip. It is there for a signal that
            # comes just before the process sleeps; while the timer ticks, the next tick tells
            # of that one too.
            if lifecycle.ticking:
                piece = os.read(self._reading, PIECE)
        except BlockingIOError:  # whoever shares the pipe with us made it so
            pass
        finally:
            self._asleep = False
        if self._woken:
            self._woken = False
            os.dup2(self._kept, self._reading, inheritable=False)
            return piece or None
        return self._poll(until) if piece is None else piece

    def _poll(self, until: float | None) -> bytes | None:
        wait = None if until is None else max(0.0, until - monotonic()) * 1000
        for descriptor, _ in self.prepare().input.poll(wait):
            if descriptor == self._reading:
                self._lifecycle.tick()
                return self.read()
            self._lifecycle.awake()
        return None

    def _wake(self) -> None:
        """End a read that waits. It is called from inside it, by the handler of a signal.

        Python begins such a read anew, and to raise would lose what it has read already.
        So the next one finds /dev/null in the input's place, and the end of that.
        """
        if self._asleep and not self._woken:
            self._woken = True
            os.dup2(self._null, self._reading, inheritable=False)

    def ready(self, seconds: float = 0.0) -> bool:
        """Return True where there is something to read now, or in a moment."""
        return bool(self.prepare().now.poll(seconds * 1000))

    def read(self) -> bytes:
        """Read what is there; nothing at the end of input."""
        return os.read(self._reading, PIECE)

    def input_closed(self, seconds: float = 0.0) -> bool:
        """Return True once the other side has closed its end, even if bytes are still unread."""
        polls = self.prepare()
        ready = polls.hangup.poll(seconds * 1000)
        return bool(ready and ready[0][1] & polls.gone)

    def output_closed(self) -> bool:
        """Return True once nobody can read what is written."""
        return bool(self.prepare().lost.poll(0))

    def write(self, data: bytes) -> None:
        """Write all of it."""
        rest: bytes | memoryview = data
        crowded = _count()  # threads: where there are none, a lock is a twentieth of a round trip
        if crowded:
            self.take_turn()
        try:
            while True:
                try:
                    written = os.write(self._writing, rest)
                except BlockingIOError:
                    self._wait_for_room()
                    continue
                if written == len(rest):
                    return
                rest = memoryview(rest)[written:]
        finally:
            if crowded:
                self.end_turn()

    def take_turn(self) -> None:
        """Wait until nobody else writes: threads of a method report progress, too."""
        if not self._turn.acquire(blocking=False):
            if get_ident() == self._lifecycle.main_thread:
                with self._lifecycle:
                    self._turn.acquire()
            else:
                self._turn.acquire()

    def end_turn(self) -> None:
        """Let the next one write."""
        self._turn.release()

    def _wait_for_room(self) -> None:
        polls = self.prepare()
        if get_ident() == self._lifecycle.main_thread:
            with self._lifecycle:
                polls.room.poll()
        else:  # no signal comes here, and whoever waits for the turn sees to all else
            polls.other_room.poll()

    def release(self) -> None:
        """Give the descriptor back as it came."""
        if self._switched:
            os.set_blocking(self._writing, True)


class Polls:
    """The questions that are asked about the descriptors, a poll for each.

    Python refuses to ask one again before it is answered, and a tick may come in the middle
    of any. So a tick asks others (the last three) than the code that it comes upon.
    """

    def __init__(self, reading: int, writing: int, wakeup: int) -> None:
        import select

        # A socket whose other side sends no more; Linux alone tells.
        peer_gone: int = getattr(select, "POLLRDHUP", 0)
        self.gone = select.POLLHUP | select.POLLERR | select.POLLNVAL | peer_gone

        def ask(events: int, *descriptors: int) -> select.poll:
            made = select.poll()
            for each in descriptors:
                made.register(each, events)
            return made

        self.input = ask(select.POLLIN, reading, wakeup)
        self.room = ask(select.POLLOUT, writing)
        self.other_room = ask(select.POLLOUT, writing)
        self.now = ask(select.POLLIN, reading)
        self.hangup = ask(peer_gone, reading)
        self.lost = ask(0, writing)
