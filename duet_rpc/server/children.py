"""The processes that methods leave behind, which must not outlive the daemon.

A pool of `multiprocessing`, or a bare `os.fork`, is a copy of the daemon that nobody needs
once it is gone. Programs that a method has started (`subprocess`) are another matter: a browser
or a server may be meant to stay, so they are left alone.

A daemon that is killed can end nobody. On Linux each copy therefore reads from a pipe that only
the daemon can write to, and has asked to be sent SIGKILL when that pipe changes, which it does
when the daemon is gone. What becomes another program has closed the pipe. Elsewhere copies of a
daemon that was killed go on.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from contextlib import suppress
from io import FileIO
from os import _exit as exit_now  # by their names: a method may replace what `os` has
from os import close, getpid, kill, read, write
from os import open as open_file
from select import POLLIN, poll
from time import monotonic
from typing import Any

PID_SIZE = 4

TELLING = 0.1
"""Seconds that a child which was forked just now has to tell that it is there."""


class Children:
    """Knows every process that was forked from this one, and ends them with it."""

    def __init__(self) -> None:
        # A fork tells its parent nothing, so the child does.
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self._forks = 0
        self._alive = os.pipe()  # ends with the daemon
        os.register_at_fork(before=self._count, after_in_child=self._in_child)

    def _count(self) -> None:
        self._forks += 1

    def _in_child(self) -> None:
        with suppress(OSError):
            write(self._writing, getpid().to_bytes(PID_SIZE, "big"))
            if sys.platform == "linux":
                self._end_with_daemon()

    def _end_with_daemon(self) -> None:
        """Have the system end this process when the daemon is gone."""
        reading, writing = self._alive
        if writing >= 0:  # else this is a copy of a copy, which has closed it
            self._alive = reading, -1
            close(writing)
        # Opened once more: what is asked for would hold for all that share it.
        own = open_file(f"/proc/self/fd/{reading}", os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(own, fcntl.F_SETOWN, getpid())
        fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(own, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        waiting = poll()
        waiting.register(own, 0)
        if waiting.poll(0):  # it was gone before that
            exit_now(0)

    def end_pools(self) -> None:
        """End the processes of `multiprocessing`; its own clean-up would wait for them."""
        multiprocessing: Any = sys.modules.get("multiprocessing")
        if multiprocessing is not None:
            with suppress(Exception):  # it may be half imported, or another module
                for process in multiprocessing.active_children():
                    process.kill()

    def end(self) -> None:
        """End them all."""
        self.end_pools()
        pids = self._told()
        for at in range(0, len(pids), PID_SIZE):
            pid = int.from_bytes(pids[at : at + PID_SIZE], "big")
            if pid != getpid() and is_copy(pid):
                with suppress(OSError):
                    kill(pid, signal.SIGKILL)

    def _told(self) -> bytes:
        """Return what the children have told; the youngest may be about to."""
        told = b""
        waiting = poll()
        waiting.register(self._reading, POLLIN)
        until = monotonic() + TELLING
        while len(told) < self._forks * PID_SIZE and monotonic() < until:
            if waiting.poll(TELLING * 1000):
                told += read(self._reading, 1 << 20)
        return told


def is_copy(pid: int) -> bool:
    """Return False for a process that has become another program, or that has ended."""
    try:
        return _command_of(pid) == _command_of(getpid())
    except FileNotFoundError:
        return not os.path.isdir("/proc/self")  # where there is no way to know
    except OSError:
        return False


def _command_of(pid: int) -> bytes:
    with FileIO(f"/proc/{pid}/cmdline") as file:
        return file.read()
