"""Get the peers, pinned, into build/bench; a second run finds them there.

What can't be had (no compiler, no Node.js, a Python too old for one of them) is left out
with a word, and the rest is measured.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TOP = Path(__file__).resolve().parent.parent
BUILD = TOP / "build" / "bench"
PEERS = TOP / "bench" / "peers"
VENV = BUILD / "venv"
NODE = BUILD / "node"
LIMIT = BUILD / "limit"

BARE = BUILD / "bare"

BASE: str = getattr(sys, "_base_executable", sys.executable)
PYTHON = str(BARE / "bin" / "python")
"""A Python with no packages: what the machine's own imports at each start is not measured."""


def install() -> None:
    """Set up what is not there yet."""
    BUILD.mkdir(parents=True, exist_ok=True)
    pins = json.loads((PEERS / "pins.json").read_text())
    once(BARE, BASE, lambda: run([BASE, "-m", "venv", "--without-pip", str(BARE)], "no venv"))
    once(VENV, json.dumps([pins["python"], BASE]), lambda: install_python(pins["python"]))
    once(NODE, json.dumps(pins["node"]), lambda: install_node(pins["node"]))
    compile_limit()


def once(folder: Path, wanted: str, make: Callable[[], bool]) -> None:
    """Make a folder unless it holds what is wanted."""
    stamp = folder / "ready"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    if make():
        stamp.write_text(wanted)


def install_python(pins: dict[str, str]) -> bool:
    """Make a venv of the peers that are written in Python."""
    if not run([BASE, "-m", "venv", str(VENV)], "no venv"):
        return False
    wanted = [f"{name}=={version}" for name, version in pins.items()]
    pip = [str(VENV / "bin" / "pip"), "--quiet", "--disable-pip-version-check"]
    if not run([*pip, "install", *wanted], "not all peers from PyPI"):
        for each in wanted:  # one that this Python is too old for leaves the others in
            run([*pip, "install", each], f"no {each}")
    # It comes with a file that costs every start.
    return run([*pip, "uninstall", "--yes", "setuptools"], "setuptools stays")


def install_node(pins: dict[str, str]) -> bool:
    """Install the peers that run on Node.js."""
    if not shutil.which("npm"):
        say("no npm: vscode-jsonrpc is left out")
        return False
    NODE.mkdir()
    (NODE / "package.json").write_text(json.dumps({"private": True, "dependencies": pins}))
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(NODE)]
    return run(command, "vscode-jsonrpc is left out")


def compile_limit() -> None:
    """Compile the limit in C where it is older than its source."""
    source = PEERS / "limit.c"
    if LIMIT.exists() and LIMIT.stat().st_mtime > source.stat().st_mtime:
        return
    compiler = shutil.which("cc")
    if compiler is None:
        say("no C compiler: the C limit is left out")
        return
    run([compiler, "-O2", "-o", str(LIMIT), str(source)], "the C limit is left out")


def run(command: list[str], otherwise: str) -> bool:
    """Run one step; say what it said only where it failed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        say(f"{otherwise}: {' '.join(command[:4])} failed: {done.stderr.strip()[-500:]}")
    return done.returncode == 0


def say(what: str) -> None:
    """Tell the person who waits."""
    print(f"bench: {what}", file=sys.stderr)
