"""Install the peers, pinned, into build/bench; a second run finds them there.

What can't be installed (no compiler, no Node.js, a Python too old for one of them) is left
out with a message, and the rest is measured.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TOP = Path(__file__).resolve().parent.parent
BUILD = TOP / "build" / "bench"
PEERS = TOP / "bench" / "peers"
REQUIREMENTS = TOP / "tests" / "interop" / "clients" / "requirements.txt"
VENV = BUILD / "venv"
NODE = BUILD / "node"
SDK = BUILD / "mcp"
LIMIT = BUILD / "limit"
BARE = BUILD / "bare"
INSTALLED = BUILD / "installed"
EPC_LISP = BUILD / "epc"

BASE: str = getattr(sys, "_base_executable", sys.executable)
PYTHON = str(BARE / "bin" / "python")
"""A Python without packages, so that nothing is measured that the machine's own one imports."""


def install() -> None:
    """Install what is missing."""
    BUILD.mkdir(parents=True, exist_ok=True)
    pins = json.loads((PEERS / "pins.json").read_text())
    once(BARE, BASE, lambda: run([BASE, "-m", "venv", "--without-pip", str(BARE)], "no venv"))
    wanted = [f"{name}=={version}" for name, version in pins["python"].items()]
    once(VENV, json.dumps([wanted, BASE]), lambda: install_python(VENV, wanted))
    if sys.version_info >= (3, 10):
        sdk = REQUIREMENTS.read_text().split()
        once(SDK, json.dumps([sdk, BASE]), lambda: install_python(SDK, sdk))
    else:
        say("the MCP SDK needs Python 3.10 or later: it is left out")
    once(NODE, json.dumps(pins["node"]), lambda: install_node(pins["node"]))
    once(EPC_LISP, json.dumps(pins["debian"]), lambda: unpack_debian(pins["debian"]))
    built = hashlib.sha256((TOP / "dist" / "duet-rpc.pyz").read_bytes()).hexdigest()
    once(INSTALLED, json.dumps([built, BASE]), install_duet)
    compile_limit()


def once(folder: Path, wanted: str, make: Callable[[], bool]) -> None:
    """Make a folder unless it already has what is wanted."""
    stamp = folder / "ready"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    if make():
        stamp.write_text(wanted)


def install_python(folder: Path, wanted: list[str]) -> bool:
    """Make a venv of peers that are written in Python."""
    if not run([BASE, "-m", "venv", str(folder)], "no venv"):
        return False
    pip = [str(folder / "bin" / "pip"), "--quiet", "--disable-pip-version-check"]
    if not run([*pip, "install", *wanted], "not all peers could be installed"):
        for each in wanted:  # one that this Python is too old for leaves the others in
            run([*pip, "install", each], f"{each} is left out")
    # setuptools comes with a .pth file that costs every start.
    return run([*pip, "uninstall", "--yes", "setuptools"], "setuptools stays")


def install_duet() -> bool:
    """Install duet-rpc itself as anybody does."""
    shutil.rmtree(TOP / "build" / "lib", ignore_errors=True)  # where an older one was built
    return install_python(INSTALLED, [str(TOP)])


def install_node(pins: dict[str, str]) -> bool:
    """Install the peers that run on Node.js."""
    if not shutil.which("npm"):
        say("no npm: vscode-jsonrpc is left out")
        return False
    NODE.mkdir()
    (NODE / "package.json").write_text(json.dumps({"private": True, "dependencies": pins}))
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(NODE)]
    return run(command, "vscode-jsonrpc is left out")


def unpack_debian(packages: list[str]) -> bool:
    """Unpack the Lisp of peers that Debian has, without installing it."""
    EPC_LISP.mkdir()
    if not shutil.which("apt-get"):
        say("no apt-get: EPC is left out")
        return False
    download = ["apt-get", "download", "--quiet", *packages]
    if not run(download, "EPC is left out", cwd=EPC_LISP):
        return False
    files = sorted(EPC_LISP.glob("*.deb"))
    return all(run(["dpkg", "-x", str(each), str(EPC_LISP)], "EPC is left out") for each in files)


def compile_limit() -> None:
    """Compile the loop in C unless that has been done."""
    source = PEERS / "limit.c"
    if LIMIT.exists() and LIMIT.stat().st_mtime > source.stat().st_mtime:
        return
    compiler = shutil.which("cc")
    if compiler is None:
        say("no C compiler: the C loop is left out")
        return
    run([compiler, "-O2", "-o", str(LIMIT), str(source)], "the C loop is left out")


def run(command: list[str], otherwise: str, cwd: Path | None = None) -> bool:
    """Run one step; show its output only if it failed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=cwd)
    if done.returncode:
        say(f"{otherwise}: {' '.join(command[:4])} failed: {done.stderr.strip()[-500:]}")
    return done.returncode == 0


def say(what: str) -> None:
    """Print a message to whoever started the bench."""
    print(f"bench: {what}", file=sys.stderr)
