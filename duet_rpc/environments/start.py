"""How the Python of an environment runs duet-rpc, which is not installed there.

From the .pyz that Python gets the archive, which has everything in it. An installed duet-rpc, or
a clone, is in a folder among the packages of another Python, and these must not become
importable with it. So there is a folder with links to duet-rpc and the few packages that it
needs, and a program that appends that folder to the path: what the environment itself has comes
first. It is a folder and not an import hook because `multiprocessing` passes the path on to its
processes.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from duet_rpc.environments.requirements import EnvironmentFailure
from duet_rpc.environments.store import LIBRARY, make_root, root_folder
from duet_rpc.program import SWITCHED, archive_path, daemon_command, isolation

if TYPE_CHECKING:
    from collections.abc import Sequence

NEEDED = ("duet_rpc", "docstring_parser", "loguru", "tomli")
"""What a worker imports. Where we have no tomli ourselves, `install` puts it where it is needed."""

PROGRAM = "duet-rpc.py"
# In the folder; runs in any Python, so that an old version is reported well. The processes of
# `multiprocessing` import it under another name.
START = f"""\
import os, sys

def find_problem():
    if sys.version_info < (3, 9):
        return "Python %d.%d is too old; duet-rpc needs 3.9 or later" % sys.version_info[:2]
    try:
        if place and sys.version_info < (3, 11):
            import tomli
        import duet_rpc.cli
    except ImportError as error:
        install = "%s -m pip install tomli" % sys.executable
        return "%s, which duet-rpc needs there. Install it: %s" % (error, install)

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [each for each in sys.path if each != here] + [here]
    place = os.environ.get("{SWITCHED}")
    problem = find_problem()
    if problem:
        sys.stderr.write("duet-rpc: %s: %s\\n" % (place or sys.executable, problem))
        sys.exit(2)
    from duet_rpc.cli import main
    main()
"""


def command(python: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs duet-rpc with these arguments under a Python from `ensure`."""
    if python == sys.executable:
        return daemon_command(arguments[1:], arguments[0])
    return [python, *isolation(), archive_path() or library(), *arguments]


def library() -> str:
    """Return the program that runs duet-rpc, beside links to it and to what it needs."""
    from hashlib import sha256

    places = find_packages()
    name = sha256("\n".join([START, *places.values()]).encode()).hexdigest()[:16]
    root = root_folder()
    folder = os.path.join(root, f"{LIBRARY}{name}")
    if not os.path.isdir(folder):
        fresh = f"{folder}.{os.getpid()}.tmp"
        try:
            make_root(root)
            os.mkdir(fresh)
            for link, place in places.items():
                os.symlink(place, os.path.join(fresh, link))
            with open(os.path.join(fresh, PROGRAM), "w", encoding="utf-8") as file:
                file.write(START)
            with suppress(FileExistsError, NotADirectoryError):
                os.rename(fresh, folder)
        except OSError as error:
            if not os.path.isdir(folder):  # another process was faster
                raise EnvironmentFailure(
                    f"{folder} cannot be written to: {error.strerror}",
                    "Set XDG_CACHE_HOME to a folder that belongs to you",
                ) from None
    return os.path.join(folder, PROGRAM)


def find_packages() -> dict[str, str]:
    """Return where each package is that we need, by the name of its folder or file."""
    from importlib.util import find_spec

    places = {}
    for name in NEEDED:
        spec = find_spec(name)
        if spec is not None and spec.origin:
            place = os.path.realpath(spec.origin)
            if spec.submodule_search_locations:  # a package
                places[name] = os.path.dirname(place)
            else:
                places[os.path.basename(place)] = place
    return places
