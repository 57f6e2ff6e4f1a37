"""File descriptors 0 and 1, which carry frames and nothing else.

`claim` runs before anything else of the daemon. It moves both descriptors out of reach and
leaves /dev/null and stderr in their places, so that a `print`, a C library or a child
process can neither take a request nor write into a reply.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from os import read, write  # by their names: a method may replace what a module has
from select import poll
from stat import S_ISFIFO, S_ISSOCK
from threading import get_ident, main_thread
from typing import TYPE_CHECKING

from duet_rpc.server.signals import WakeUp

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

CHUNK = 64 * 1024

# A socket whose other side sends no more; Linux alone tells.
PEER_GONE: int = getattr(select, "POLLRDHUP", 0)
GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL | PEER_GONE


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

    def __init__(self, descriptors: tuple[int, int]) -> None:
        self.reading, self.writing = descriptors
        self.wake_up = WakeUp()
        self.lock = threading.RLock()  # threads of a method send progress, too
        self._input = poll()
        self._input.register(self.reading, select.POLLIN)
        self._input.register(self.wake_up.reading, select.POLLIN)
        # A reply that does not fit must not hold the process where neither a signal nor
        # the end of input is seen. Only a pipe or a socket can be full for long, and
        # only they are safe to switch: a terminal is shared with the shell.
        mode = os.fstat(self.writing).st_mode
        self._switched = (S_ISFIFO(mode) or S_ISSOCK(mode)) and os.get_blocking(self.writing)
        if self._switched:
            os.set_blocking(self.writing, False)

    def wait_for_input(self, seconds: float | None) -> tuple[bool, str | None]:
        """Wait; return whether there is input, and the name of a signal that came."""
        ready = self._input.poll(None if seconds is None else max(0.0, seconds) * 1000)
        has_input, name = False, None
        for descriptor, _ in ready:
            if descriptor == self.reading:
                has_input = True
            else:
                name = self.wake_up.read()
        return has_input, name

    def read(self) -> bytes | None:
        """Read a chunk; empty at the end of input, None where nothing has come yet."""
        try:
            return read(self.reading, CHUNK)
        except BlockingIOError:  # whoever shares the pipe with us made it so
            return None

    def is_input_closed(self, seconds: float = 0.0) -> bool:
        """Return True once the other side has closed its end, even if bytes are unread."""
        waiting = poll()
        waiting.register(self.reading, PEER_GONE)
        ready = waiting.poll(seconds * 1000)
        return bool(ready and ready[0][1] & GONE)

    def write(self, data: bytes, supervised: AbstractContextManager[object]) -> None:
        """Write all of it; where that takes long, the main thread is supervised."""
        rest = memoryview(data)
        self._acquire(supervised)
        try:
            while rest:
                try:
                    rest = rest[write(self.writing, rest) :]
                except BlockingIOError:
                    self._wait_for_room(supervised)
        finally:
            self.lock.release()

    def write_if_possible(self, data: bytes) -> bool:
        """Write all of it at once, or nothing; return whether it was written."""
        if len(data) > select.PIPE_BUF or not self.lock.acquire(blocking=False):
            return False
        try:
            room = poll()
            room.register(self.writing, select.POLLOUT)
            if os.get_blocking(self.writing) or not room.poll(0):
                return False
            # There is room for so many bytes in a pipe, and for more in a socket.
            rest = memoryview(data)
            while rest:
                rest = rest[write(self.writing, rest) :]
            return True
        except OSError:  # the main thread finds out
            return False
        finally:
            self.lock.release()

    def _acquire(self, supervised: AbstractContextManager[object]) -> None:
        """Take the lock; a thread that has it may wait for a client that does not read."""
        if self.lock.acquire(blocking=False):
            return
        if get_ident() == main_thread().ident:
            with supervised:
                self.lock.acquire()
        else:
            self.lock.acquire()

    def _wait_for_room(self, supervised: AbstractContextManager[object]) -> None:
        room = poll()
        room.register(self.writing, select.POLLOUT)
        if get_ident() == main_thread().ident:
            with supervised:
                room.poll()
        else:
            room.poll()

    def release(self) -> None:
        """Give the descriptor back as it came."""
        if self._switched:
            os.set_blocking(self.writing, True)

    def detach(self) -> None:
        """Close both, in a process that a method forked: the client is not its business."""
        os.close(self.reading)
        os.close(self.writing)
