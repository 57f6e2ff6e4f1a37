"""Which Pythons there are to run the .pyz with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def find_pythons() -> dict[str, str]:
    """Find one Python of each minor version from 3.9 on: ours, pyenv's, those on PATH."""
    candidates = [sys.executable]
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    if root.is_dir():
        candidates += [str(folder / "bin" / "python") for folder in sorted(root.iterdir())]
    candidates += [shutil.which(f"python3.{minor}") or "" for minor in range(9, 20)]
    found: dict[str, str] = {}
    for python in candidates:
        if not python or not Path(python).exists():
            continue
        code = "import sys; print('%d.%d' % sys.version_info[:2], sys.version_info >= (3, 9))"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        version, _, wanted = done.stdout.strip().partition(" ")
        if wanted == "True":
            found.setdefault(version, python)
    return found


PYTHONS = find_pythons()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for `python` with each of them."""
    if "python" in metafunc.fixturenames:
        metafunc.parametrize("python", list(PYTHONS.values()), ids=[f"py{v}" for v in PYTHONS])
