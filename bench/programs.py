"""The programs that are measured: one entry each."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, field

from bench.install import BUILD, LIMIT, NODE, PEERS, PYTHON, SDK, TOP, VENV

DUET = "duet-rpc"
C = "C loop"
LEAN = "lean Python loop"
LSP_JSONRPC = "python-lsp-jsonrpc"
VSCODE = "vscode-jsonrpc"
PYGLS = "pygls"
RASS = "rassumfrassum"
LOW_LEVEL = "MCP SDK, low level"
MCP_SERVER = "MCP SDK, MCPServer"

PYZ = str(TOP / "dist" / "duet-rpc.pyz")
METHODS = ("--methods", str(PEERS / "methods.py"))
BACKEND = [PYTHON, "-I", "-S", str(PEERS / "backend.py")]


@dataclass(frozen=True)
class Program:
    """One server, and how it is started."""

    name: str
    command: list[str]
    methods: tuple[str, ...] = ()
    """Further arguments that load the user's methods."""
    environ: dict[str, str] = field(default_factory=dict)
    framing: str = "content-length"
    skips: tuple[str, ...] = ()
    """Rows that would take it too long."""

    @property
    def checks(self) -> bool:
        """Whether it reads requests at all, so that its replies can be checked."""
        return self.name != C


def rpc_programs() -> list[Program]:
    """Return the JSON-RPC servers that are installed."""
    venv = str(VENV / "bin" / "python")
    node = shutil.which("node") or "node"
    modules = {"NODE_PATH": str(NODE / "node_modules")}
    every = [
        (Program(DUET, [PYTHON, PYZ, "rpc"], METHODS), True),
        (Program(LSP_JSONRPC, [venv, str(PEERS / "lsp_jsonrpc.py")]), has("pylsp_jsonrpc")),
        (Program(VSCODE, [node, str(PEERS / "vscode.js")], (), modules), (NODE / "ready").exists()),
        # It makes a class for each object: 40 s for 9 MB of records.
        (
            Program(PYGLS, [venv, str(PEERS / "with_pygls.py")], skips=("large_records",)),
            has("pygls"),
        ),
        (Program(LEAN, [PYTHON, "-I", "-S", str(PEERS / "lean.py")]), True),
        (Program(C, [str(LIMIT)]), LIMIT.exists()),
    ]
    return [program for program, installed in every if installed]


def mcp_programs() -> list[Program]:
    """Return the MCP servers that are installed."""
    found = [Program(DUET, [PYTHON, PYZ, "mcp", *METHODS], framing="lines")]
    if (SDK / "ready").exists():
        python = str(SDK / "bin" / "python")
        for name, file in ((LOW_LEVEL, "mcp_lowlevel.py"), (MCP_SERVER, "mcp_server.py")):
            found.append(Program(name, [python, str(PEERS / file)], framing="lines"))
    return found


def gateways() -> list[Program]:
    """Return the multiplexers that are installed, each with one backend named `b`."""
    path = BUILD / "gateway.toml"
    path.write_text(f'[backends.b]\ncommand = {json.dumps(BACKEND)}\ndialect = "lsp"\n')
    found = [Program(DUET, [PYTHON, PYZ, "gateway"], environ={"DUET_RPC_CONFIG": str(path)})]
    rass = VENV / "bin" / "rass"
    if rass.exists():
        found.append(Program(RASS, [str(rass), "--log-level", "silent", "--", *BACKEND]))
    return found


def has(package: str) -> bool:
    """Return whether a package is installed among the peers."""
    return any(VENV.glob(f"lib/python*/site-packages/{package}"))


def environment() -> dict[str, str]:
    """Return the environment of every program: nothing of the user's own settings."""
    keep = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    home = str(BUILD / "home")
    os.makedirs(home, exist_ok=True)
    return {**keep, "HOME": home}
