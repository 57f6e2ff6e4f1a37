"""Whether the files that methods were loaded from are still what they were.

A saved file is noticed when one of its methods is called, by one `stat` for the file and one
for each helper: a module that it imports from its own folder. Which helpers there are is read
from the text of the file, not from `sys.modules`, so that a helper that is broken, or not yet
written, is watched as well.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from io import FileIO
from os import fstat, stat  # by their names: a method may replace what a module has
from os import open as open_file
from stat import S_ISDIR, S_ISREG
from time import sleep, time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

GRANULE = 0.05
"""Seconds within which two saves of a file may leave the same time behind."""

COARSE_GRANULE = 2.0
"""The same, on file systems that count in whole seconds."""

EMPTY_LOOKS = 8
"""How often to look again at a file that was emptied just now."""

FILE_MAX = 1024 * 1024
"""Bytes of a file of methods. Compiling more takes seconds in which nothing else runs."""

PACKAGE_FILES_MAX = 500
PACKAGE_FOLDERS_MAX = 500

# No two parts of it match the same text, or a long word would take quadratic time.
IMPORT = re.compile(
    r"^[ \t]*(?:import[ \t]+(\w[\w., \t]*)|from[ \t]+(\w+)(?:\.[\w.]*)?[ \t]+import\b)",
    re.MULTILINE,
)


def changed_at(path: str) -> int | None:
    """Return when a file was changed, in nanoseconds; None where there is none.

    That is its ctime, which nobody can set: it tells of a new content, of a new mode, and of
    another file that was moved to its place.
    """
    try:
        return stat(path).st_ctime_ns
    except (OSError, ValueError):
        return None


def is_within(seconds: float, time_of_it: int | None) -> bool:
    """Return True for a time that short before now."""
    return time_of_it is not None and 0 <= time() - time_of_it / 1e9 <= seconds


class Stamp:
    """A file as it was when it was loaded.

    Without its text, as for a helper, which Python itself reads, it must be made after the
    load that began at `began`.
    """

    __slots__ = ("_changed_at", "_is_recent", "_text", "path")

    def __init__(self, path: str, began: float, text: bytes | None = None) -> None:
        self.path = path
        self._changed_at = changed_at(path)
        self._text = text
        # Saved once more since then, it could have the same time.
        self._is_recent = is_within(time() - began + self._granule, self._changed_at)

    @property
    def _granule(self) -> float:
        whole_seconds = self._changed_at is not None and self._changed_at % 1_000_000_000 == 0
        return COARSE_GRANULE if whole_seconds else GRANULE

    def differs(self) -> bool:
        """Return True where the file is no longer the one that was loaded."""
        if changed_at(self.path) != self._changed_at:
            return True
        if not self._is_recent:
            return False
        if self._text is None:
            return True
        self._is_recent = is_within(self._granule, self._changed_at)
        return read(self.path) != self._text

    def saved_just_now(self) -> bool:
        """Return True where somebody may be in the middle of saving the file."""
        return is_being_saved(self.path)


class Unreadable(OSError):
    """A path that names no file that could be loaded."""

    def __init__(self, reason: str) -> None:
        super().__init__(0, reason)


def read_file(path: str) -> bytes:
    """Return a file's content; raises OSError where it can't be read, or would not end."""
    _check(stat(path))
    # Whatever is there by now, opening it does not wait.
    with FileIO(open_file(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as file:
        _check(fstat(file.fileno()))
        return file.readall()


def read_saved_file(path: str) -> bytes:
    """Return a file's content as `read_file` does, but wait for whoever has just emptied it.

    Most editors save by emptying the file and writing it again, and somebody may look for
    methods between the two.
    """
    text = read_file(path)
    for _ in range(EMPTY_LOOKS):
        if text or not is_being_saved(path):
            break
        sleep(GRANULE / 2)
        text = read_file(path)
    return text


def is_being_saved(path: str) -> bool:
    """Return True where a file was written to a moment ago."""
    return is_within(2 * GRANULE, changed_at(path))


def _check(found: os.stat_result) -> None:
    if not S_ISREG(found.st_mode):
        raise Unreadable("it is not a regular file")
    if found.st_size > FILE_MAX:
        raise Unreadable(f"it is larger than {FILE_MAX // 1024} KiB")


def read(path: str) -> bytes | None:
    """Return a file's content, None where it can't be read."""
    with suppress(Exception):  # an audit hook of a method's may raise anything
        return read_file(path)
    return None


def helpers_of(path: str, text: bytes) -> set[str]:
    """Return the files in a file's own folder that it imports, and those import, and so on."""
    folder = os.path.dirname(path)
    found: set[str] = set()
    waiting = [text]
    while waiting:
        for name in imported_names(waiting.pop()):
            for file in _files_of(folder, name):
                if file not in found and file != path:
                    found.add(file)
                    waiting.append(read(file) or b"")
    return found


def imported_names(text: bytes) -> Iterator[str]:
    """Iterate over the first words of the modules that a file imports."""
    for several, one in IMPORT.findall(text.decode("utf-8", "replace")):
        for part in several.split(",") if several else [one]:
            name = part.split(".")[0].split()
            if name:
                yield name[0]


def _files_of(folder: str, name: str) -> list[str]:
    file = os.path.join(folder, f"{name}.py")
    package = os.path.join(folder, name)
    if _is_folder(package):
        return python_files(package)
    # One that is missing may be written yet.
    return [file] if name not in sys.modules or changed_at(file) is not None else []


def _is_folder(path: str) -> bool:
    try:
        return S_ISDIR(stat(path).st_mode)
    except (OSError, ValueError):
        return False


def python_files(folder: str) -> list[str]:
    """Return the Python files of a package, up to a sensible number."""
    found: list[str] = []
    for count, (place, folders, names) in enumerate(os.walk(folder)):
        folders[:] = [each for each in folders if not each.startswith((".", "__"))]
        found += [os.path.join(place, name) for name in names if name.endswith(".py")]
        if len(found) > PACKAGE_FILES_MAX or count > PACKAGE_FOLDERS_MAX:
            break
    return found[:PACKAGE_FILES_MAX]
