"""How the Python of an environment runs duet-rpc, which is not installed there.

From the .pyz that Python gets the archive, which has everything in it. An installed duet-rpc, or
a clone, is in a folder among the packages of another Python, and these must not become
importable with it. So there is a folder with links to duet-rpc and the few packages that it
needs, and that is appended to the path: what the environment itself has comes first. It is a
folder and not an import hook because `multiprocessing` passes the path on to its processes.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from duet_rpc.environments.requirements import EnvironmentFailure
from duet_rpc.environments.store import LIBRARY, make_root, root_folder
from duet_rpc.program import archive_path, daemon_command, isolation

if TYPE_CHECKING:
    from collections.abc import Sequence

NEEDED = ("duet_rpc", "docstring_parser", "loguru", "tomli")
"""What a worker imports. Where we have no tomli ourselves, `install` puts it where it is needed."""

# The working directory is not a place to import from.
START = """\
import sys
if sys.path[0] == "":
    del sys.path[0]
sys.path.append(sys.argv.pop(1))
from duet_rpc.cli import main
main()
"""


def command(python: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs duet-rpc with these arguments under a Python from `ensure`."""
    if python == sys.executable:
        return daemon_command(arguments[1:], arguments[0])
    archive = archive_path()
    start = ["-c", START, library()] if archive is None else [archive]
    return [python, *isolation(), *start, *arguments]


def library() -> str:
    """Return the folder with links to duet-rpc and what it needs, making it at the first time."""
    from hashlib import sha256

    places = find_packages()
    name = sha256("\n".join(places.values()).encode()).hexdigest()[:16]
    root = root_folder()
    folder = os.path.join(root, f"{LIBRARY}{name}")
    if not os.path.isdir(folder):
        fresh = f"{folder}.{os.getpid()}.tmp"
        try:
            make_root(root)
            os.mkdir(fresh)
            for link, place in places.items():
                os.symlink(place, os.path.join(fresh, link))
            with suppress(FileExistsError, NotADirectoryError):
                os.rename(fresh, folder)
        except OSError as error:
            if not os.path.isdir(folder):  # another process was faster
                raise EnvironmentFailure(f"{folder} cannot be made: {error.strerror}") from None
    return folder


def find_packages() -> dict[str, str]:
    """Return where each package is that we need, by the name of its folder or file."""
    from importlib.util import find_spec

    places = {}
    for name in NEEDED:
        spec = find_spec(name)
        if spec is not None and spec.origin:
            place = os.path.abspath(spec.origin)
            if spec.submodule_search_locations:  # a package
                places[name] = os.path.dirname(place)
            else:
                places[os.path.basename(place)] = place
    return places


def prefer_environment() -> None:
    """Let what an environment has come first, in a worker that was started from the .pyz.

    The archive puts its packages in front of all others, and one of them may be in the
    environment, too, in the version that another package there needs.
    """
    if archive_path() is not None:
        sys.path.append(sys.path.pop(0))
