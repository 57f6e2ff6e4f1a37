"""Remove the environments that nobody has used for a month, and what was left unfinished."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from typing import NamedTuple

from duet_rpc.environments.requirements import EnvironmentFailure
from duet_rpc.environments.store import (
    DAY,
    FAILED,
    KEY,
    LIBRARY,
    MARK,
    contents,
    open_lock,
    remove,
    take_lock,
)

UNUSED_DAYS = 30


class Removed(NamedTuple):
    """An environment that was removed."""

    folder: str
    size: int  # bytes
    reason: str


def folders(root: str) -> list[str]:
    """Return the folders of all environments, complete or not."""
    with suppress(OSError):
        return [
            os.path.join(root, name) for name in sorted(os.listdir(root)) if KEY.fullmatch(name)
        ]
    return []


def prune(root: str) -> list[Removed]:
    """Remove those that are unused or broken; never one that a process has the lock of."""
    removed = []
    for folder in folders(root):
        reason = why_remove(folder)
        if reason:
            with suppress(OSError, EnvironmentFailure):
                size = size_of(folder)
                if remove_unused(folder):
                    removed.append(Removed(folder, size, reason))
    remove_libraries(root)
    remove_failures(root)
    return removed


def remove_libraries(root: str) -> None:
    """Remove the links to an installation of duet-rpc that is gone."""
    with suppress(OSError):
        for entry in os.scandir(root):
            if entry.name.startswith(LIBRARY):
                package = os.path.join(entry.path, "duet_rpc")
                if os.path.islink(package) and not os.path.exists(package):
                    shutil.rmtree(entry.path)


def remove_failures(root: str) -> None:
    """Remove what says why an environment could not be made that nobody asks for any more."""
    with suppress(OSError):
        for entry in os.scandir(root):
            if entry.name.endswith(FAILED) and time.time() - entry.stat().st_mtime > DAY:
                os.unlink(entry.path)


def why_remove(folder: str) -> str:
    """Return why an environment is not needed; "" where it is."""
    if contents(folder) is None:
        return "incomplete"
    try:
        unused = time.time() - os.stat(os.path.join(folder, MARK)).st_mtime
    except OSError:
        return ""
    days = int(unused / DAY)
    return f"unused for {days} days" if days >= UNUSED_DAYS else ""


def remove_unused(folder: str) -> bool:
    """Remove an environment; return False where it is in use, or being made."""
    lock = open_lock(folder, create=True)
    if lock is None:
        return False
    try:
        # Another process may have used it since it was looked at.
        if not take_lock(lock, folder, exclusive=True) or not why_remove(folder):
            return False
        remove(folder)
    finally:
        os.close(lock)
    return True


def is_in_use(folder: str) -> bool:
    """Return whether a process uses an environment, or makes it."""
    lock = open_lock(folder)
    if lock is None:
        return False
    try:
        return not take_lock(lock, folder, exclusive=True)
    except EnvironmentFailure:
        return False
    finally:
        os.close(lock)


def size_of(folder: str) -> int:
    """Return the bytes that a folder takes on disk; what uv shares with its cache counts."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
    return total
