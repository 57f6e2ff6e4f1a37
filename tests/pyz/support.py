"""An environment for the .pyz, and the builds that it has unpacked."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from duet_rpc import __version__
from tests.support import PYZ, request, run

VERSION = {"version": __version__}


def home(folder: Path) -> dict[str, str]:
    """Make an environment with an empty home directory."""
    (folder / "home").mkdir(exist_ok=True)
    (folder / "tmp").mkdir(exist_ok=True)
    return {
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "XDG_CACHE_HOME": "",
        "XDG_CONFIG_HOME": "",
        "PYTHONPATH": "",
    }


def builds(folder: Path) -> list[str]:
    """List the builds that are unpacked below a folder."""
    return sorted(path.parent.name for path in folder.rglob("site-packages"))


def plant(build: Path) -> None:
    """Put code into a build that says so if it is run, with a manifest that fits."""
    name = "site-packages/duet_rpc/__init__.py"
    for compiled in build.glob("site-packages/duet_rpc/__pycache__/__init__.*"):
        compiled.unlink()
    (build / name).write_text("raise SystemExit('planted')\n")
    os.utime(build / name, (0, 0))
    first = (build / "manifest").read_text().splitlines()[0].split(" ")
    first[:2] = "1", "0"
    lines = [" ".join(first), f"{(build / name).stat().st_size} {name}"]
    (build / "manifest").write_text("\n".join(lines))


def version(python: str, env: dict[str, str]) -> object:
    """Make one call to a new daemon."""
    code, replies, log = run(request(1), [python, PYZ, "rpc"], env)
    assert code == 0, log
    assert "Traceback" not in log
    return replies[0]["result"]


T = TypeVar("T")


def of_all(cases: Sequence[T], python: str) -> Sequence[T]:
    """Return all cases for the Python of the tests, and a few for others: Python is the same."""
    return cases if python == sys.executable else cases[::5]
