"""Where log lines end up: a stream (stderr, a pipe, a device) or a file.

Both have a `name` and a `write` that takes one line and writes it at once, without waiting, or
raises OSError. loguru takes them as sinks; before it is imported they are written directly.

A file may be shared by several daemons, may be deleted or renamed by anybody, and may lie in a
folder that other users can write to. So before each line the file that has the name now is
compared with the one that is open.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import select
from contextlib import suppress
from os import write  # by its name: a method may replace what a module has
from select import poll
from stat import S_ISBLK, S_ISCHR, S_ISFIFO, S_ISLNK, S_ISREG
from time import localtime, monotonic, strftime, time

from duet_rpc.jsonrpc.limits import LOG_FILE_MAX, LOG_FILES_KEPT

LINE_MAX = 4096  # bytes; a Linux pipe that has any room has room for this much
LINKS_MAX = 40

# O_NOFOLLOW: links have been followed by then; one that appears later is not ours.
# O_NONBLOCK: a named pipe that nobody reads is refused, not waited for.
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class SinkError(OSError):
    """The log can't go to a file; the text says why."""


class Stream:
    """A descriptor that is written without ever waiting for whoever reads it."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.name = name
        self._descriptor = _reopen(descriptor)
        self._patience = 0.0

    def allow_waiting(self, seconds: float) -> None:
        """Let later lines wait for room, this long in all."""
        self._patience = seconds

    def write(self, line: str) -> None:
        """Write one line, or raise where there is no room for it."""
        room = poll()
        room.register(self._descriptor, select.POLLOUT)
        before = monotonic()
        ready = room.poll(self._patience * 1000)
        self._patience = max(0.0, self._patience - (monotonic() - before))
        if not ready:
            raise BlockingIOError
        _write(self._descriptor, _encode(line))

    def probe(self) -> None:
        """Raise where nothing can be written to a device, such as /dev/full."""
        if S_ISCHR(os.fstat(self._descriptor).st_mode) and not os.isatty(self._descriptor):
            _write(self._descriptor, b"\n")

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)


class File:
    """A log file: for its owner alone, and rotated when it is full."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.name = name
        self._use(descriptor)

    def _use(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._opened = os.fstat(descriptor)

    def allow_waiting(self, seconds: float) -> None:
        """Do nothing: a file has room, or fails."""

    def write(self, line: str) -> None:
        """Write one line to the file that has the name now, or raise."""
        if not self._is_current():
            self._reopen()
        data = _encode(line)
        if os.fstat(self._descriptor).st_size + len(data) > LOG_FILE_MAX:
            self._rotate()
        _write(self._descriptor, data)

    def probe(self) -> None:
        """Raise where nothing can be written, on a full disk for one; leave no trace."""
        size = os.fstat(self._descriptor).st_size
        _write(self._descriptor, b"\n")
        if os.fstat(self._descriptor).st_size == size + 1:  # else another daemon wrote, too
            os.ftruncate(self._descriptor, size)

    def close(self) -> None:
        """Close the file, unless a method has closed it and opened another in its place."""
        with suppress(OSError):
            if os.path.samestat(os.fstat(self._descriptor), self._opened):
                os.close(self._descriptor)

    def _is_current(self) -> bool:
        """Return whether the open file still is ours, and still has its name."""
        try:
            opened, named = os.fstat(self._descriptor), os.lstat(self.name)
        except OSError:
            return False
        return os.path.samestat(opened, self._opened) and os.path.samestat(opened, named)

    def _reopen(self) -> None:
        descriptor = _open_private(self.name)
        if not S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise SinkError("is no longer a file")
        self.close()
        self._use(descriptor)

    def _rotate(self) -> None:
        """Rename the file, start a new one, and delete old ones.

        The lock is for daemons that share the file. Whoever does not get it writes one more
        line to the file that is being renamed, where it is kept.
        """
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError:  # a file system without locks
            pass
        try:
            if self._is_current():
                os.rename(self.name, _name_for_old(self.name))
                _remove_old(self.name)
        except PermissionError:  # the file is ours and its folder is not
            os.ftruncate(self._descriptor, 0)
        finally:
            with suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        if not self._is_current():
            self._reopen()


def open_sink(path: str) -> Stream | File:
    """Open what DUET_RPC_LOG names, and write to it to see that this works."""
    try:
        path = os.path.abspath(os.path.expanduser(path))
        if is_planted(path):
            raise SinkError("leads through a link of another user")
        # What a link leads to: rotation must not rename the link.
        real = os.path.realpath(path)
        if os.path.exists(path) and not os.path.exists(real):
            # /dev/stderr, where that is a pipe, which has no name
            return Stream(os.open(path, APPEND & ~os.O_NOFOLLOW), path)
        descriptor = _open_private(real)
        kind = File if S_ISREG(os.fstat(descriptor).st_mode) else Stream
        sink = kind(descriptor, real)
        try:
            sink.probe()
        except OSError:
            sink.close()
            raise
    except SinkError:
        raise
    except OSError as error:
        raise SinkError(f"can't be written ({error.strerror})") from None
    return sink


def is_planted(path: str) -> bool:
    """Return True where a link on the way may have been put there by another user."""
    for _ in range(LINKS_MAX):
        parts = path.split("/")
        for count in range(2, len(parts) + 1):
            place, folder = "/".join(parts[:count]), "/".join(parts[: count - 1]) or "/"
            try:
                link = os.lstat(place)
                if not S_ISLNK(link.st_mode):
                    continue
                if _is_foreign(link) and _is_open_to_others(folder):
                    return True
                path = os.path.normpath(os.path.join(folder, os.readlink(place), *parts[count:]))
                break
            except OSError:  # opening it will say what is wrong
                return False
        else:
            return False
    return False  # the links go in circles


def _is_foreign(status: os.stat_result) -> bool:
    return status.st_uid not in (os.geteuid(), 0)


def _is_open_to_others(folder: str) -> bool:
    status = os.stat(folder)
    return _is_foreign(status) or bool(status.st_mode & 0o022)


def _open_private(path: str) -> int:
    """Open a file for appending and close it to other users."""
    descriptor = os.open(path, APPEND, 0o600)
    try:
        status = os.fstat(descriptor)
        if S_ISBLK(status.st_mode):
            raise SinkError("is a block device")
        planted = _is_foreign(status) and _is_open_to_others(os.path.dirname(path))
        if planted and not S_ISCHR(status.st_mode):
            raise SinkError("belongs to another user, in a folder open to others")
        if S_ISREG(status.st_mode):
            os.fchmod(descriptor, 0o600)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _reopen(descriptor: int) -> int:
    """Open a pipe or a terminal a second time, so that a write to it never waits.

    To set O_NONBLOCK on the descriptor itself would set it for everybody who shares it: the
    shell, and the children of methods. Where this does not work, asking for room first is
    enough unless somebody else fills the pipe at that very moment.
    """
    try:
        waits = os.get_blocking(descriptor)
        if waits and (S_ISFIFO(os.fstat(descriptor).st_mode) or os.isatty(descriptor)):
            return os.open(f"/dev/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:  # it was closed, or /dev/fd is missing, or the terminal is another user's
        pass
    return descriptor


def _encode(line: str) -> bytes:
    data = line.encode("utf-8", "backslashreplace")
    if len(data) > LINE_MAX:
        data = data[: LINE_MAX - 1].decode("utf-8", "ignore").encode() + b"\n"
    return data


def _write(descriptor: int, data: bytes) -> None:
    if write(descriptor, data) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _name_for_old(path: str) -> str:
    """Return the name that a full file gets: the time goes before the extension."""
    now = time()
    when = strftime("%Y-%m-%d_%H-%M-%S", localtime(now))
    root, extension = os.path.splitext(path)
    return f"{root}.{when}_{int(now % 1 * 1e6):06d}{extension}"


def _remove_old(path: str) -> None:
    """Delete files that were rotated, except the newest, and no other files."""
    folder, name = os.path.split(path)
    root, extension = map(re.escape, os.path.splitext(name))
    form = re.compile(root + r"\.\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d{6}(\.\d+)?" + extension)
    with suppress(OSError):  # another daemon deletes them too
        old = sorted(each for each in os.listdir(folder) if form.fullmatch(each))
        for each in old[:-LOG_FILES_KEPT]:
            os.remove(os.path.join(folder, each))
