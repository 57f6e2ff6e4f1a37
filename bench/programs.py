"""The programs that are measured: one line each in `programs`."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field

from bench.install import BUILD, LIMIT, NODE, PEERS, PYTHON, TOP, VENV

DUET = "duet-rpc"
C = "C limit"
LEAN = "lean Python"
LSP_JSONRPC = "python-lsp-jsonrpc"
VSCODE = "vscode-jsonrpc"
PYGLS = "pygls"
ACCELERATED = "duet-rpc + msgspec"
LEAN_ACCELERATED = "lean Python + msgspec"
RASS = "rassumfrassum"
ALONE = "duet-rpc, alone"

PYZ = str(TOP / "dist" / "duet-rpc.pyz")


@dataclass(frozen=True)
class Program:
    """One server, and what of it is measured."""

    name: str
    command: list[str]
    sessions: tuple[str, ...] = ("start", "talk", "call", "big", "idle")
    methods: tuple[str, ...] = ()  # the words that give it a method of the user's
    environ: dict[str, str] = field(default_factory=dict)


def programs() -> list[Program]:
    """Return those that are there."""
    venv = str(VENV / "bin" / "python")
    site = [*VENV.glob("lib/python*/site-packages")]
    found = [
        Program(C, [str(LIMIT)]),
        Program(LEAN, [PYTHON, "-I", "-S", str(PEERS / "lean.py")]),
        Program(LSP_JSONRPC, [venv, str(PEERS / "lsp_jsonrpc.py")]),
        Program(
            VSCODE,
            [shutil.which("node") or "node", str(PEERS / "vscode.js")],
            environ={"NODE_PATH": str(NODE / "node_modules")},
        ),
        Program(PYGLS, [venv, str(PEERS / "with_pygls.py")]),
        Program(DUET, duet(), methods=("--methods", str(PEERS / "mcp_methods.py"))),
        Program(ACCELERATED, [venv, PYZ, "rpc"], sessions=("big",)),
        Program(
            LEAN_ACCELERATED,
            [venv, "-I", str(PEERS / "lean.py"), "msgspec"],
            sessions=("big",),
        ),
    ]
    has_msgspec = any((path / "msgspec").is_dir() for path in site)
    there = {
        C: LIMIT.exists(),
        LSP_JSONRPC: any((path / "pylsp_jsonrpc").is_dir() for path in site),
        VSCODE: (NODE / "ready").exists(),
        PYGLS: any((path / "pygls").is_dir() for path in site),
        ACCELERATED: has_msgspec,
        LEAN_ACCELERATED: has_msgspec,
    }
    return [program for program in found if there.get(program.name, True)]


def duet(*flags: str) -> list[str]:
    """Return the command that starts the shipped file."""
    return [PYTHON, PYZ, "rpc", *flags]


def environment() -> dict[str, str]:
    """Return what every program finds round it: nothing of the user's own settings."""
    keep = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    home = str(BUILD / "home")
    os.makedirs(home, exist_ok=True)
    return {**keep, "HOME": home}
