"""`make run` shows the main job, and leaves nothing behind."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.support import TOP, wait_until

EMACSEN = os.environ.get("EMACSEN", "emacs").split()
CONTRACT = 30
"""Seconds that the demonstration may take."""


def run_demo(folder: Path, *emacs: str) -> list[str]:
    """Run it in a home directory with a file; check what is left; return the lines it printed."""
    home, scratch = folder / "home", folder / "tmp"
    home.mkdir()
    scratch.mkdir()
    (home / "mine").write_text("kept")
    mark = f"DEMO={uuid.uuid4()}"
    done = subprocess.run(
        [sys.executable, "examples/demo.py", "dist/duet-rpc.pyz", *emacs],
        cwd=TOP, capture_output=True, text=True, timeout=CONTRACT,
        env={**os.environ, "HOME": str(home), "TMPDIR": str(scratch), "DEMO": mark[5:]},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert list(home.rglob("*")) == [home / "mine"]
    assert list(scratch.iterdir()) == []
    wait_until(lambda: not processes_with(mark), "every process that it started has exited")
    return done.stdout.splitlines()


def processes_with(variable: str) -> list[str]:
    """Return the processes that have a variable in their environment; none where that's hidden."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if variable.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            pass  # it has just exited
    return found


def after(lines: list[str], start: str) -> list[str]:
    """Return the second line after each one that starts so."""
    return [lines[at + 2] for at, line in enumerate(lines) if line.startswith(start)]


@pytest.mark.parametrize("emacs", EMACSEN)
def test_the_demo_calls_a_method_everywhere_twice(emacs: str, tmp_path: Path) -> None:
    if shutil.which(emacs) is None:
        pytest.skip(f"{emacs} is not installed")
    lines = run_demo(tmp_path, emacs)
    assert after(lines, "in a terminal") == ['  "apple fig kiwi pear"', '  "fig pear kiwi apple"']
    replies = after(lines, "as a tool")
    assert ['"apple fig kiwi pear"' in replies[0], '"fig pear kiwi apple"' in replies[1]] == [
        True
    ] * 2
    assert after(lines, "in Emacs") == ["  apple fig kiwi pear", "  fig pear kiwi apple"]


def test_without_emacs_the_demo_shows_the_rest(tmp_path: Path) -> None:
    lines = run_demo(tmp_path, "no-such-emacs")
    assert not [line for line in lines if "Emacs" in line]
    assert len(after(lines, "in a terminal")) == 2


def test_the_three_lines_at_its_end_can_be_typed(tmp_path: Path) -> None:
    lines = run_demo(tmp_path, *EMACSEN[:1])
    at = next(number for number, line in enumerate(lines) if "Three lines" in line)
    new, call, emacs = (shlex.split(line) for line in lines[at + 2 : at + 5])
    env = {**os.environ, "HOME": str(tmp_path / "home")}

    def type_line(words: list[str]) -> str:
        done = subprocess.run(
            words, cwd=TOP, env=env, capture_output=True, text=True, check=True, timeout=60,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return done.stdout

    assert type_line(new).endswith("/hello.py\n")
    assert type_line(call) == '"words: 1, longest: hi"\n'
    if emacs[0] == "emacs":
        look = '(princ (and duet-rpc-mode "on"))'
        assert type_line([EMACSEN[0], "--batch", *emacs[1:], "--eval", look]) == "on"
