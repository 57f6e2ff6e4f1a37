"""Run the program with the Python that `[methods] python` names.

Methods import packages, and those are installed in some Python: often in a virtual
environment, seldom in the `python3` that starts the .pyz. The process replaces itself, so that
whoever started it keeps its pid and its pipes. duet-rpc need not be installed in that Python;
`start` says how it gets there.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from duet_rpc.config.files import ConfigError
from duet_rpc.program import SWITCHED

if TYPE_CHECKING:
    from duet_rpc.config.files import Config

KEY = "methods.python"


def use_python(config: Config, descriptors: tuple[int, int] | None = None) -> None:
    """Replace this process by one with the configured Python, unless it runs in that already.

    `descriptors` are those that take the place of 0 and 1, if these have been claimed.
    """
    is_switched = os.environ.pop(SWITCHED, None) is not None
    if config.python is None or is_switched:
        return
    # They import much, and few have this key.
    from duet_rpc.config.settings import place_of
    from duet_rpc.environments.requirements import EnvironmentFailure
    from duet_rpc.environments.start import command

    place = place_of(config.origins[KEY], ("methods", "python"))
    python = find(config.python)
    if python is None:
        raise ConfigError(f"{place}: {KEY}: {config.python} was not found on PATH")
    if python == sys.executable:
        return
    if descriptors is not None:
        os.dup2(descriptors[0], 0)
        os.dup2(descriptors[1], 1)
    try:
        words = command(python, sys.argv[1:])
        os.execve(python, words, {**os.environ, SWITCHED: f"{place}: {KEY}"})  # noqa: S606
    except EnvironmentFailure as error:
        raise ConfigError(f"{place}: {KEY}: {error}") from None
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
