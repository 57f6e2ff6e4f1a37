"""Run the program with the Python that `[methods] python` names.

Methods import packages, and those are installed in some Python: often in a virtual
environment, seldom in the `python3` that starts the .pyz. The process replaces itself, so that
whoever started it keeps its pid and its pipes.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

from duet_rpc import __version__
from duet_rpc.config.files import ConfigError
from duet_rpc.program import archive_path, isolation

if TYPE_CHECKING:
    from duet_rpc.config.files import Config

GUARD = "DUET_RPC_SWITCHED_PYTHON"
"""The variable that is set for the process that replaces this one, so that it stays."""

KEY = "methods.python"

# Runs in any Python, so that one without duet-rpc or of an old version is reported well. The
# working directory is not a place to import from.
START = """\
import sys
place, install = sys.argv[1:3]
del sys.argv[1:3]
if sys.path[0] == "":
    del sys.path[0]
problem = None
if sys.version_info < (3, 9):
    problem = "Python %d.%d is too old; duet-rpc needs 3.9 or later" % sys.version_info[:2]
else:
    try:
        from duet_rpc.cli import main
    except ImportError:
        problem = "duet-rpc is not installed in this Python. Install it: " + install
if problem:
    sys.stderr.write("duet-rpc: %s: %s\\n" % (place, problem))
    sys.exit(2)
main()
"""


def use_python(config: Config, descriptors: tuple[int, int] | None = None) -> None:
    """Replace this process by one with the configured Python, unless it runs in that already.

    `descriptors` are those that take the place of 0 and 1, if these have been claimed.
    """
    is_switched = os.environ.pop(GUARD, None) is not None
    if config.python is None or is_switched:
        return
    from duet_rpc.config.settings import place_of  # it imports much, and few have this key

    place = place_of(config.origins[KEY], ("methods", "python"))
    python = find(config.python)
    if python is None:
        raise ConfigError(f"{place}: {KEY}: {config.python} was not found on PATH")
    if python == sys.executable:
        return
    if descriptors is not None:
        os.dup2(descriptors[0], 0)
        os.dup2(descriptors[1], 1)
    command = command_with(python, f"{place}: {KEY}")
    try:
        os.execve(python, command, {**os.environ, GUARD: "1"})  # noqa: S606
    except OSError as error:
        why = "is a folder" if os.path.isdir(python) else f"cannot be run: {error.strerror}"
        fix = "correct the path, or remove the key"
        raise ConfigError(f"{place}: {KEY}: {python} {why}; {fix}") from None


def find(python: str) -> str | None:
    """Return the path of a Python; a name without a folder is looked up on PATH."""
    if os.sep in python:
        return python
    from shutil import which

    return which(python)


def command_with(python: str, place: str) -> list[str]:
    """Return the command that does under another Python what this process was started for."""
    archive = archive_path()
    start = ["-c", START, place, install_command(python)] if archive is None else [archive]
    return [python, *isolation(), *start, *sys.argv[1:]]


def install_command(python: str) -> str:
    """Return the command that installs duet-rpc for another Python, from where this one came."""
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    is_clone = os.path.exists(os.path.join(folder, "pyproject.toml"))
    source = folder if is_clone else f"duet-rpc=={__version__}"
    return shlex.join([python, "-m", "pip", "install", source])
