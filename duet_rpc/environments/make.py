"""Make an environment: once, however many processes ask for it at the same time."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from duet_rpc.environments.install import install
from duet_rpc.environments.prune import prune
from duet_rpc.environments.requirements import EnvironmentFailure
from duet_rpc.environments.store import (
    MARK,
    contents,
    empty,
    forget_failure,
    make_root,
    open_lock,
    record_failure,
    remove,
    take_lock,
    use,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.environments.requirements import Requirements

POLL = 0.1  # seconds between looks at a lock that another process has
STUCK_MAX = 20  # looks; it may also be others who have a look


def make(
    folder: str,
    requirements: Requirements,
    python: str | None,
    report: Callable[[str], None],
    user: str,
) -> str:
    """Make the environment of a folder, or wait for the one who does; return its Python."""
    tries = stuck = 0
    while True:
        lock = open_for_making(folder)
        if lock is not None:
            try:
                if take_lock(lock, folder, exclusive=True):
                    if contents(folder) is None:
                        fill(folder, lock, requirements, python, report)
                        prune(os.path.dirname(folder))
                elif take_lock(lock, folder, exclusive=False) and contents(folder) is None:
                    stuck += 1  # workers run in it, and it is not fit for another one
            finally:
                os.close(lock)
            found = use(folder, user)
            if found is not None:
                return found
        if stuck == STUCK_MAX:
            raise EnvironmentFailure(
                f"the Python of {folder} was removed or replaced while other processes use it",
                "End these, for example by restarting Emacs",
            )
        tries += 1
        if tries == 2:  # else it was somebody who just had a look
            report("waiting for another process, which makes the same environment")
        time.sleep(POLL)


def open_for_making(folder: str) -> int | None:
    """Return a descriptor of the lock of an environment that may not exist yet."""
    try:
        make_root(os.path.dirname(folder))
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return open_lock(folder, create=True)
    except OSError as error:
        raise EnvironmentFailure(
            f"{folder} cannot be written to: {error.strerror}",
            "Set XDG_CACHE_HOME to a folder that belongs to you",
        ) from None


def fill(
    folder: str,
    lock: int,
    requirements: Requirements,
    python: str | None,
    report: Callable[[str], None],
) -> None:
    """Make what belongs into a locked folder, and mark it as complete; nothing if that fails."""
    try:
        empty(folder)  # of what a process that was killed has left
        held = install(folder, lock, requirements, python, report)
        write_mark(folder, held)
        forget_failure(folder)
    except BaseException as error:
        remove(folder)
        if isinstance(error, EnvironmentFailure):
            record_failure(folder, str(error))
        raise


def write_mark(folder: str, held: dict[str, object]) -> None:
    """Mark an environment as complete."""
    fresh = os.path.join(folder, f"{MARK}.new")
    try:
        with open(fresh, "w", encoding="utf-8") as file:
            json.dump(held, file, indent=1)
        os.replace(fresh, os.path.join(folder, MARK))
    except OSError as error:
        raise EnvironmentFailure(
            f"{fresh} could not be written: {error.strerror}",
            "Free some space there, or set XDG_CACHE_HOME to a folder on another disk",
        ) from None
