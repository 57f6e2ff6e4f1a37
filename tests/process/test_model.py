"""The model of two peers that ask each other, searched by Spin for states in which both wait."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import TOP

MODEL = TOP / "tests" / "models" / "ask.pml"

pytestmark = pytest.mark.skipif(
    shutil.which("spin") is None or shutil.which("gcc") is None,
    reason="needs spin and gcc (apt-get install spin gcc)",
)


def search(folder: Path, *flags: str) -> str:
    """Search all states of the model; return what Spin says."""
    for command in (
        ["spin", *flags, "-a", str(MODEL)],
        ["gcc", "-O2", "-w", "-o", "pan", "pan.c"],
    ):
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
    done = subprocess.run(
        ["./pan", "-m100000"], cwd=folder, check=False, capture_output=True, text=True, timeout=600
    )
    assert "max search depth too small" not in done.stdout
    return done.stdout


@pytest.mark.parametrize("flags", [[], ["-DDISAPPEARS", "-DCALLS=2"]], ids=["stays", "disappears"])
def test_two_peers_never_wait_for_each_other(tmp_path: Path, flags: list[str]) -> None:
    found = search(tmp_path, *flags)
    assert "errors: 0" in found, found
    assert "Search not completed" not in found


@pytest.mark.parametrize("flag", ["-DUNMARKED", "-DONLY_WHILE_OPEN", "-DSTOPS_WHEN_FULL"])
def test_without_a_rule_they_do(tmp_path: Path, flag: str) -> None:
    found = search(tmp_path, flag)
    assert "assertion violated" in found, found
