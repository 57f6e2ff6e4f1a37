"""Which Python a range such as `>=3.10,<3.14` allows, and which Pythons there are.

Every start of a worker asks whether our own Python will do. `packaging` knows all forms that a
range can have, but importing it takes as long as starting Python, so the ranges that nearly
everybody writes are read without it.
"""

from __future__ import annotations

import os
import re
import sys
from typing import NamedTuple

from duet_rpc.environments.requirements import EnvironmentFailure

OLDEST = (3, 9)
"""The first version that can run duet-rpc itself."""

NEWEST = 30
"""The minor version up to which PATH is searched for python3.N."""

SIMPLE = re.compile(r"\s*(>=|<=|>|<)\s*([0-9]+(?:\.[0-9]+){0,2})\s*")

PROBE = "import sys; print(*sys.version_info[:3], getattr(sys, '_base_executable', sys.executable))"
PROBE_TIMEOUT = 20  # seconds

Version = tuple[int, int, int]


class Python(NamedTuple):
    """An interpreter: `path` is outside of any virtual environment."""

    path: str
    version: Version

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.version))} ({self.path})"


def allows(requires: str | None, version: tuple[int, ...]) -> bool:
    """Return whether a range allows a version; raise EnvironmentFailure if it is no range."""
    if version[:2] < OLDEST:
        return False
    for part in (requires or "").split(","):
        found = SIMPLE.fullmatch(part)
        if found is None:
            return _allows(requires, version) if requires and requires.strip() else True
        limit = tuple(map(int, found.group(2).split(".")))
        limit += (0,) * (3 - len(limit))
        if not compare(found.group(1), version, limit):
            return False
    return True


def compare(sign: str, version: tuple[int, ...], limit: tuple[int, ...]) -> bool:
    """Return whether a version is on the right side of a limit."""
    if sign.startswith(">"):
        return version > limit or (version == limit and sign == ">=")
    return version < limit or (version == limit and sign == "<=")


def _allows(requires: str | None, version: tuple[int, ...]) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return SpecifierSet(requires or "").contains(".".join(map(str, version)), prereleases=True)
    except InvalidSpecifier:
        raise EnvironmentFailure(
            f"requires-python is not a range of versions: {requires!r}",
            'Write it as in ">=3.10" or ">=3.10,<3.14"',
        ) from None


def own_allowed(requires: str | None) -> bool:
    """Return whether the Python of this process is in a range."""
    return allows(requires, sys.version_info[:3])


def probe(path: str) -> Python | None:
    """Return what a file is that may be a Python, or None where it does not run."""
    import subprocess

    try:
        done = subprocess.run(
            [path, "-I", "-c", PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT,
            check=True,
        )
        major, minor, micro, base = done.stdout.split(maxsplit=3)
        return Python(base.strip() or path, (int(major), int(minor), int(micro)))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def find_all() -> list[Python]:
    """Return our own Python, then those on PATH from the newest on, each once."""
    from shutil import which

    names = [f"python3.{minor}" for minor in range(NEWEST, OLDEST[1] - 1, -1)]
    paths = [sys.executable, *filter(None, map(which, [*names, "python3"]))]
    found: dict[str, Python] = {}
    for path in dict.fromkeys(paths):
        python = probe(path)
        if python is not None:
            found.setdefault(os.path.realpath(python.path), python)
    return list(found.values())


def choose(requires: str | None) -> str:
    """Return the path of a Python that a range allows, our own if possible."""
    if own_allowed(requires):
        return sys.executable
    found = find_all()
    for python in found:
        if allows(requires, python.version):
            return python.path
    seen = ", ".join(map(str, found)) or "none"
    raise EnvironmentFailure(
        f"no Python found for requires-python = {requires!r}. Found: {seen}",
        "Install one and put it on PATH, or install uv (https://docs.astral.sh/uv/), which "
        "downloads it, or change requires-python. duet-rpc itself needs Python 3.9 or later",
    )
