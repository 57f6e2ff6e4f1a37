"""The suite passes wherever it is started: at a prompt, with `&`, under nohup."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.support import TOP

INHERITED = [signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGALRM]

SHOW = (
    "import signal\n"
    "ignored = [n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN]\n"
    "blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
    "python = {signal.SIGPIPE, getattr(signal, 'SIGXFSZ', None)}\n"
    "print(sorted({*ignored, *blocked} - python))\n"
)


def ignore_and_block() -> None:
    for number in INHERITED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, INHERITED)


def test_the_child_of_a_test_has_default_signals() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", SHOW], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("workers", ["0", "2"])
def test_tests_pass_where_signals_are_ignored_and_blocked(workers: str) -> None:
    ours = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    tests = ["tests/process/test_background.py", "tests/process/test_call_terminal.py"]
    chosen = ["-k", "default_signals or second_ctrl_c or background_job or leaves_no_orphan"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", workers, "-p", "no:cacheprovider", *tests, *chosen],
        cwd=TOP,
        env=ours,
        preexec_fn=ignore_and_block,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
