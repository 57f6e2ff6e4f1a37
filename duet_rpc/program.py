"""How this program was started: its name in hints, and the command that starts it again."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


CALLER = "DUET_RPC_CALLER"
"""The variable that is set for the daemon of `call` and `console`, which show its errors."""


WORKER = "DUET_RPC_WORKER"
"""The variable that tells a process which worker it is; see `duet_rpc.workers`."""


SWITCHED = "DUET_RPC_SWITCHED_PYTHON"
"""The variable that says who has named this Python, in a process that `methods_python` starts."""


def archive_path() -> str | None:
    """Return the absolute path of the .pyz that this process runs from, or None."""
    loader = getattr(sys.modules["__main__"], "__loader__", None)
    path = getattr(loader, "archive", None)
    return None if path is None else os.path.abspath(path)


def program_name() -> str:
    """Return what a person types to start this program, for hints in messages."""
    archive = archive_path()
    if archive is not None:
        return os.path.basename(archive)
    return "duet-rpc" if sys.modules["__main__"].__spec__ is None else "python -m duet_rpc"


def daemon_command(flags: Sequence[str] = (), command: str = "rpc") -> list[str]:
    """Return the command that starts a server: this same program, under this same Python."""
    return [*own_command(), command, *flags]


def own_command() -> list[str]:
    """Return the command of this program, without its arguments."""
    main = sys.modules["__main__"]
    program = archive_path()
    if program is None and main.__spec__ is None and getattr(main, "__file__", None):
        # The installed command. `-m` would look for modules in the working directory.
        program = os.path.abspath(str(main.__file__))
    start = ["-m", "duet_rpc"] if program is None else [program]
    return [sys.executable, *isolation(), *start]


def isolation() -> list[str]:
    """Return the options of Python for another process that is isolated as this one is."""
    ours = sys.flags
    flags = {"-I": ours.isolated, "-E": ours.ignore_environment, "-s": ours.no_user_site}
    return [flag for flag, given in flags.items() if given]
