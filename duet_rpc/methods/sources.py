"""Whether there is anything of the user's to load, found out without importing much.

Loading brings in `typing`, `dataclasses`, `inspect` and, for entry points,
`importlib.metadata`: more than the rest of the daemon together. A daemon with nothing
to load does without.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from errno import EMFILE, ENFILE
from io import FileIO
from os import listdir, stat  # by their names: a method may replace what a module has
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ENTRY_POINTS = "duet_rpc.methods"

RELOAD = "reloadMethods"
"""The method that loads the user's methods again."""


def files_in(folder: str | None, known: Iterable[str] = ()) -> list[str]:
    """List the Python files of a folder, in the order of their names.

    Where methods have left no file descriptor to look with, these are the known ones.
    """
    try:
        names = sorted(listdir(folder)) if folder else []
    except OSError as error:
        return [*known] if error.errno in (EMFILE, ENFILE) else []
    return [
        os.path.join(folder or "", name)
        for name in names
        if name.endswith(".py") and not name.startswith((".", "_"))
    ]


def absolute(source: str) -> str:
    """Return the whole path of a file; a module's name as it is."""
    if source.endswith(".py") or os.sep in source:
        source = os.path.expanduser(source)
        with suppress(OSError):  # the working directory is gone
            return os.path.abspath(source)
        return os.path.join(os.sep, source)
    return source


def places() -> list[str]:
    """List where modules are looked for; methods may have added whatever they like to that."""
    path: object = sys.path
    return [each for each in path if isinstance(each, str)] if isinstance(path, list) else []


def packages() -> list[str]:
    """List the installed packages that name methods of their own, by their folders."""
    group = f"[{ENTRY_POINTS}]".encode()
    found = []
    for place in places():
        try:
            names = listdir(place or ".")
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                folder = os.path.join(place, name)
                try:
                    with FileIO(os.path.join(folder, "entry_points.txt")) as file:
                        if group in file.read():
                            found.append(folder)
                except OSError:
                    continue
    return found


class InstalledPackages:
    """The packages that name methods, looked for again where something was installed since."""

    def __init__(self) -> None:
        self._seen: list[tuple[str, int]] | None = None
        self._found: list[str] = []

    def folders(self) -> list[str]:
        """List their folders."""
        now = [(place, _time_of(place)) for place in places()]
        if now != self._seen:
            self._seen, self._found = now, packages()
        return self._found


def _time_of(place: str) -> int:
    try:
        return stat(place or ".").st_mtime_ns
    except (OSError, ValueError):
        return 0
