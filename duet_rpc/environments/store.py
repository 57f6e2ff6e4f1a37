"""Where environments are kept, and how processes agree about them.

Each environment is a folder, named by a hash of what was asked for:

    ~/.cache/duet-rpc/envs/KEY/
        lock               shared while a worker runs, exclusive while it is made or removed
        environment.json   what it holds; written last, so that without it there is nothing
        users              the files that have asked for it, one a line
        venv/
    ~/.cache/duet-rpc/envs/KEY.failed      why it could not be made the last time

A virtual environment cannot be moved, so it is made where it stays. Whoever makes it has the
exclusive lock, and the installers that it starts inherit that lock: if the maker is killed,
nobody touches the folder before they have ended, too. What is left then has no
`environment.json`, and the next process removes it and starts from the beginning.

The lock of a worker is inherited through exec, and ends with the process however it ends.
Nobody else has to keep a record of who uses what.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from duet_rpc.config.files import xdg_folder
from duet_rpc.environments.requirements import EnvironmentFailure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from duet_rpc.environments.requirements import Requirements

KEY = re.compile("[0-9a-f]{16}")
DAY = 24 * 60 * 60  # seconds
USERS_MAX = 50

MARK = "environment.json"
FAILED = ".failed"
FAILURE_LASTS = 10 * 60  # seconds in which lists do not try again to make an environment
LIBRARY = "library-"
"""How the folders begin that `start` makes beside the environments."""


def root_folder(environ: Mapping[str, str] = os.environ) -> str:
    """Return the folder of all environments, which may not exist yet."""
    cache = xdg_folder(environ, "XDG_CACHE_HOME", ".cache")
    if cache is None:
        raise EnvironmentFailure(
            "no folder for environments: neither HOME nor XDG_CACHE_HOME is an absolute path",
            "Set XDG_CACHE_HOME to a folder that belongs to you",
        )
    return os.path.join(cache, "duet-rpc", "envs")


def make_root(root: str) -> None:
    """Create the folder of all environments; code is run only from one that is the user's."""
    for path in (os.path.dirname(root), root):
        os.makedirs(path, mode=0o700, exist_ok=True)
        status = os.lstat(path)
        others = stat.S_IWGRP | stat.S_IWOTH
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise EnvironmentFailure(f"{path} is not a folder of yours", "Remove or rename it")
        if status.st_mode & others:
            raise EnvironmentFailure(
                f"other users can write to {path}, so nothing is run from it",
                f"If it is yours: chmod go-w {path}",
            )


def key_of(requirements: Requirements, python: str | None) -> str:
    """Return the name of the environment for this; `python` is a path, or None for any."""
    from hashlib import sha256

    packages = sorted({normalize(each) for each in requirements.dependencies})
    # Which Python is chosen where none is named depends on ours. An update of ours to another
    # minor version leads to another environment.
    base = python or f"{sys.implementation.cache_tag} {sys.base_prefix}"
    range_ = "".join((requirements.requires_python or "").split())
    return sha256("\n".join([range_, base, *packages]).encode()).hexdigest()[:16]


def normalize(dependency: str) -> str:
    """Return one spelling for those that differ in case, in `-_.` or in spaces."""
    found = re.match(r"\s*([A-Za-z0-9._-]*)(.*)", dependency, re.DOTALL)
    name, rest = found.groups() if found else ("", dependency)
    return re.sub("[-_.]+", "-", name).lower() + "".join(rest.split())


def python_of(folder: str) -> str:
    """Return the path of an environment's Python."""
    return os.path.join(folder, "venv", "bin", "python")


def contents(folder: str) -> dict[str, object] | None:
    """Return what a complete environment holds; None for one that cannot be used."""
    try:
        with open(os.path.join(folder, MARK), encoding="utf-8") as file:
            held = json.load(file)
        # Its Python may have been removed, or be the link to another version after an update.
        base = os.stat(python_of(folder)) and os.path.realpath(python_of(folder))
        name = re.fullmatch(r"python(3\.[0-9]+)", os.path.basename(base))
        if name and not held["python"].startswith(f"{name.group(1)}."):
            return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return dict(held)


def open_lock(folder: str, create: bool = False) -> int | None:
    """Return a descriptor of an environment's lock, above 2; None where it does not exist."""
    path = os.path.join(folder, "lock")
    try:
        descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    except FileNotFoundError:
        return None
    except OSError:  # a cache that can only be read will do for what is there
        if create:
            raise
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            return None
    if descriptor > 2:
        return descriptor
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return copy


def take_lock(descriptor: int, folder: str, exclusive: bool) -> bool:
    """Take a lock without waiting; return False where others hold it or removed it."""
    try:
        kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), os.stat(os.path.join(folder, "lock")))
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError as error:
        raise EnvironmentFailure(
            f"{folder} cannot be locked: {error.strerror}",
            "Set XDG_CACHE_HOME to a folder on a local disk",
        ) from None


def empty(folder: str) -> None:
    """Remove what is in an environment that is locked, except for the lock."""
    # The mark first: what is left if this is interrupted is not used.
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, MARK))
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.isdir(path) and not os.path.islink(path):
            from shutil import rmtree

            rmtree(path, ignore_errors=True)
        elif name != "lock":
            os.unlink(path)


def remove(folder: str) -> None:
    """Remove an environment that is locked; who waits for the lock will notice."""
    with suppress(OSError):
        empty(folder)
        os.unlink(os.path.join(folder, "lock"))
        os.rmdir(folder)


def record_failure(folder: str, text: str) -> None:
    """Keep why an environment could not be made, for those who only want to know."""
    with suppress(OSError), open(folder + FAILED, "w", encoding="utf-8") as file:
        file.write(text)


def forget_failure(folder: str) -> None:
    """Discard why an environment could not be made."""
    with suppress(OSError):
        os.unlink(folder + FAILED)


def recent_failure(folder: str) -> str | None:
    """Return why an environment could not be made a moment ago; None where it was not tried."""
    try:
        with open(folder + FAILED, encoding="utf-8") as file:
            age = time.time() - os.fstat(file.fileno()).st_mtime
            return file.read() if abs(age) < FAILURE_LASTS and contents(folder) is None else None
    except (OSError, ValueError):
        return None


def hold(folder: str, user: str) -> int | None:
    """Return the lock of a complete environment, which is in use until all copies are closed."""
    lock = open_lock(folder)
    if lock is None:
        return None
    if not take_lock(lock, folder, exclusive=False) or contents(folder) is None:
        os.close(lock)
        return None
    record_use(folder, user)
    return lock


def use(folder: str, user: str) -> str | None:
    """Return the Python of a complete environment, from now on in use by this process.

    Also by the program that it becomes through exec.
    """
    lock = hold(folder, user)
    if lock is None:
        return None
    os.set_inheritable(lock, True)
    return python_of(folder)


def record_use(folder: str, user: str) -> None:
    """Record that an environment was used today, and by which file."""
    mark, users = os.path.join(folder, MARK), os.path.join(folder, "users")
    with suppress(OSError):  # a cache that can only be read
        if time.time() - os.stat(mark).st_mtime > DAY:
            os.utime(mark)
        if user and user not in users_of(folder):
            with open(users, "a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(user.replace("\n", " ") + "\n")


def users_of(folder: str) -> list[str]:
    """Return the files and workers that have asked for an environment, the latest last."""
    try:
        path = os.path.join(folder, "users")
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return list(dict.fromkeys(file.read().splitlines()))[-USERS_MAX:]
    except OSError:
        return []
