"""How hypothesis chooses its examples, which tests are the contract, and what children inherit."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# A change is judged by the same examples each time; whoever runs the tests by hand looks
# for new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", deadline=None)
settings.load_profile("same" if os.environ.get("CI") == "true" else "new")

# Daemons that compile all their modules at each start take three times as long to start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

HERE = Path(__file__).parent
INSIDE = HERE / "unit"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what drives the product from outside: it stays as it is when the inside changes."""
    for item in items:
        if INSIDE not in item.path.parents:
            item.add_marker(pytest.mark.contract)


@pytest.fixture(scope="session", autouse=True)
def home_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let no test read or write what is in the home directory of whoever runs it.

    Their own methods would be in every list, their configuration in force, their history
    longer by some lines.
    """
    with pytest.MonkeyPatch.context() as patch:
        home = Path.home()
        patch.setenv("PYENV_ROOT", os.environ.get("PYENV_ROOT", str(home / ".pyenv")))
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        for name in list(os.environ):
            if name.startswith(("XDG_", "DUET_RPC_")):
                patch.delenv(name)
        yield


@pytest.fixture(scope="session", autouse=True)
def default_signals_for_children() -> None:
    """Let the children of a suite that runs in the background start with default signals.

    A shell's `&` and nohup have SIGINT, SIGQUIT and SIGHUP ignored, and every child inherits
    that. A handler that does nothing is as good for this process: it goes on when a terminal
    is closed. But what is handled here is back to its default in a child after exec.
    """
    set_by_python = {getattr(signal, name, None) for name in ("SIGPIPE", "SIGXFSZ", "SIGXFZ")}
    for number in signal.valid_signals() - set_by_python:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, do_nothing)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def do_nothing(_number: int, _frame: object) -> None:
    """Handle a signal."""
