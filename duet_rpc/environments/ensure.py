"""Get the Python for what a worker asks for: our own, or that of an environment.

This runs at every start of a worker. Where the environment exists it reads a small file and
takes a lock; the installer and what it needs are imported only where one has to be made.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from duet_rpc.environments.pythons import allows, own_allowed, probe
from duet_rpc.environments.requirements import EnvironmentFailure
from duet_rpc.environments.store import hold, key_of, recent_failure, root_folder, use

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from duet_rpc.environments.requirements import Requirements


def ensure(
    requirements: Requirements,
    python: str | None,
    report: Callable[[str], None],
    user: str = "",
) -> str:
    """Return the path of a Python that has what is required, making an environment if need be.

    `python` names the Python to use, by its path or its name on PATH. `report` is called with
    short lines for a person while something is made. `user` is the file or the worker that
    asks, for `duet-rpc env`. The environment counts as used until this process ends, and the
    program that it becomes through exec.

    Raises EnvironmentFailure, whose text is for a person.
    """
    named = python and find_named(python)
    if not requirements.dependencies:
        enough = without_packages(requirements, named)
        if enough is not None:
            return enough
    folder = folder_of(requirements, named)
    found = use(folder, user)
    if found is None:
        from duet_rpc.environments.make import make

        found = make(folder, requirements, named, report, user)
    return found


def find_existing(
    requirements: Requirements, environ: Mapping[str, str], user: str
) -> tuple[str, int] | None:
    """Return the folder and the lock of an environment that a process with `environ` will use.

    None where our own Python will do, or the environment has yet to be made.
    """
    if not requirements.dependencies and own_allowed(requirements.requires_python):
        return None
    folder = folder_of(requirements, None, environ)
    lock = hold(folder, user)
    return None if lock is None else (folder, lock)


def why_not_made(requirements: Requirements, python: str | None) -> str | None:
    """Return why the environment for this could not be made a moment ago; None if it may be now.

    What is wrong before an installer is needed takes no time to find out, so None is for that, too.
    """
    try:
        named = python and find_named(python)
        if not requirements.dependencies and without_packages(requirements, named) is not None:
            return None
        return recent_failure(folder_of(requirements, named))
    except EnvironmentFailure:
        return None


def folder_of(
    requirements: Requirements, named: str | None, environ: Mapping[str, str] = os.environ
) -> str:
    """Return the folder of an environment, which may not exist yet."""
    return os.path.join(root_folder(environ), key_of(requirements, named))


def find_named(python: str) -> str:
    """Return the path of the Python that was named."""
    from duet_rpc.environments.methods_python import find

    path = find(os.path.expanduser(python))
    if path is None or not os.path.exists(path):
        where = "does not exist" if os.sep in python else "was not found on PATH"
        raise EnvironmentFailure(f"the Python {python} {where}", "Install it, or name another one")
    return path


def without_packages(requirements: Requirements, named: str | None) -> str | None:
    """Return a Python that will do as it is; None where another one has to be found."""
    requires = requirements.requires_python
    if named is None or named == sys.executable:
        if own_allowed(requires):
            return sys.executable
        if named is None:
            return None
    if requires is None:
        return named
    found = probe(named)
    if found is None:
        raise EnvironmentFailure(f"{named} is not a Python that can be run", "Name another one")
    if not allows(requires, found.version):
        raise EnvironmentFailure(
            f"requires-python = {requires!r} does not allow {found}", "Name another Python"
        )
    return named
