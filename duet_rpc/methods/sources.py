"""Whether there is anything of the user's to load, found out without importing much.

Loading brings in `typing`, `dataclasses`, `inspect` and, for entry points,
`importlib.metadata`: more than the rest of the daemon together. A daemon with nothing
to load does without.
"""

from __future__ import annotations

import os
import sys

ENTRY_POINTS = "duet_rpc.methods"

RELOAD = "reloadMethods"
"""The method that comes with the user's: it loads them again."""


def any_source(sources: list[str], folder: str | None) -> bool:
    """Return True where there may be methods to load."""
    return bool(sources) or bool(files_in(folder)) or bool(packages())


def files_in(folder: str | None) -> list[str]:
    """List the Python files of a folder, in the order of their names."""
    try:
        names = sorted(os.listdir(folder)) if folder else []
    except OSError:
        return []
    return [
        os.path.join(folder or "", name)
        for name in names
        if name.endswith(".py") and not name.startswith((".", "_"))
    ]


def packages() -> list[str]:
    """List the installed packages that name methods of their own, by their folders."""
    group = f"[{ENTRY_POINTS}]".encode()
    found = []
    for place in sys.path:
        try:
            names = os.listdir(place or ".")
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                folder = os.path.join(place, name)
                try:
                    with open(os.path.join(folder, "entry_points.txt"), "rb") as file:
                        if group in file.read():
                            found.append(folder)
                except OSError:
                    continue
    return found
