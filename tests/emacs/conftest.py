"""Fixtures of all tests with a real Emacs.

`EMACSEN` lists the Emacs commands, separated by spaces.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emacs.support import (
    EMACSEN,
    FORWARDED,
    LIBRARY,
    NO_NATIVE,
    PYZ,
    run,
)


@pytest.fixture(params=EMACSEN)
def emacs(request: pytest.FixtureRequest) -> str:
    """Return each Emacs command; skip it if it is not installed, but fail in CI."""
    command = str(request.param)
    if shutil.which(command) is None:
        message = f"{command} is not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return command


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder into which the daemon is unpacked, which takes longer than a start."""
    cache = tmp_path_factory.mktemp("cache")
    env = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    subprocess.run([sys.executable, PYZ, "--version"], env=env, check=True, capture_output=True)
    return cache


@pytest.fixture
def environment(tmp_path: Path, unpacked: Path) -> dict[str, str]:
    """Return an environment with a home directory of its own."""
    kept = {name: os.environ[name] for name in FORWARDED if name in os.environ}
    path = str(Path(sys.executable).parent) + os.pathsep + kept.get("PATH", os.defpath)
    home = tmp_path / "home"
    home.mkdir()
    shutil.copytree(unpacked, home / ".cache", copy_function=os.link)
    return {
        **kept,
        "PATH": path,
        "HOME": str(home),
        **NO_NATIVE,
        "DUET_RPC_EL": str(LIBRARY),
        "DUET_RPC_PYZ": str(PYZ),
    }


@pytest.fixture
def compiled(emacs: str, environment: dict[str, str], tmp_path: Path) -> Path:
    """Return the library, compiled."""
    copy = tmp_path / LIBRARY.name
    shutil.copy(LIBRARY, copy)
    assert run(emacs, environment, "-f", "batch-byte-compile", copy).returncode == 0
    return copy.with_suffix(".elc")


@pytest.fixture
def display() -> Iterator[str]:
    """Return a display of X that nobody looks at."""
    if shutil.which("Xvfb") is None:
        pytest.skip("Xvfb is not installed")
    reading, writing = os.pipe()
    command = ["Xvfb", "-displayfd", str(writing), "-nolisten", "tcp", "-noreset"]
    server = subprocess.Popen(command, pass_fds=[writing], stderr=subprocess.DEVNULL)
    os.close(writing)
    with os.fdopen(reading) as number:
        yield f":{number.readline().strip()}"
    server.terminate()
    server.wait()
