"""File descriptors 0 and 1, which carry frames and nothing else.

`claim` runs before anything else of the daemon is imported. It moves both descriptors
out of reach and leaves /dev/null and stderr in their places, so that a `print`, a C
library or a child process can neither eat a request nor break into a reply.
"""

from __future__ import annotations

import os
import select
import sys
from select import POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, poll
from stat import S_ISFIFO, S_ISSOCK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from duet_rpc.server.lifecycle import Lifecycle

PIECE = 64 * 1024

# A socket whose other side sends no more; Linux alone tells.
PEER_GONE: int = getattr(select, "POLLRDHUP", 0)


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
        self._input = poll()
        self._input.register(self._reading, POLLIN)
        self._input.register(lifecycle.wakeup, POLLIN)
        self._now = poll()
        self._now.register(self._reading, POLLIN)
        self._hangup = poll()
        self._hangup.register(self._reading, PEER_GONE)
        self._room = poll()
        self._room.register(self._writing, POLLOUT)
        self._lost = poll()
        self._lost.register(self._writing, 0)
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

    def receive(self, seconds: float | None) -> bytes | None:
        """Wait for input and read it; None where time is up or a signal came."""
        lifecycle = self._lifecycle
        if lifecycle.ticking and seconds is None:
            # A poll before each read is a twelfth of a round trip. It is there for a signal
            # that comes just before the process sleeps; while the timer ticks, the next tick
            # tells of that one too.
            lifecycle.moved = True
            self._asleep = True
            try:
                piece = os.read(self._reading, PIECE)
            except BlockingIOError:  # whoever shares the pipe with us made it so
                return self._poll(None)
            finally:
                self._asleep = False
            if not self._woken:
                return piece
            self._woken = False
            os.dup2(self._kept, self._reading, inheritable=False)
            return piece or None
        return self._poll(seconds)

    def _poll(self, seconds: float | None) -> bytes | None:
        for descriptor, _ in self._input.poll(
            None if seconds is None else max(0.0, seconds) * 1000
        ):
            if descriptor == self._reading:
                if seconds is None:
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
        return bool(self._now.poll(seconds * 1000))

    def read(self) -> bytes:
        """Read what is there; nothing at the end of input."""
        return os.read(self._reading, PIECE)

    def input_closed(self, seconds: float = 0.0) -> bool:
        """Return True once the other side has closed its end, even if bytes are still unread."""
        ready = self._hangup.poll(seconds * 1000)
        return bool(ready and ready[0][1] & (POLLHUP | POLLERR | POLLNVAL | PEER_GONE))

    def output_closed(self) -> bool:
        """Return True once nobody can read what is written."""
        return bool(self._lost.poll(0))

    def write(self, data: bytes) -> None:
        """Write all of it."""
        rest: bytes | memoryview = data
        while True:
            try:
                written = os.write(self._writing, rest)
            except BlockingIOError:
                with self._lifecycle.guard():
                    self._room.poll()
                continue
            if written == len(rest):
                return
            rest = memoryview(rest)[written:]

    def release(self) -> None:
        """Give the descriptor back as it came."""
        if self._switched:
            os.set_blocking(self._writing, True)
