"""MCP clients and servers that others wrote, of both eras, in front of duet-rpc and behind it.

Each client makes one session with `duet-rpc mcp`, and one with `duet-rpc mcp --gateway` and all
the servers behind it. It uses everything that there is, and prints what it has seen: see
clients/matrix.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import write_config
from tests.interop.conformance.suite import node
from tests.interop.test_clients import CLIENTS
from tests.interop.test_mcp_clients import need_file
from tests.support import PYZ, RESTORE_SIGNALS, TOP

MATRIX = CLIENTS / "matrix"

# With what it is run, and its words.
CLIENT_COMMANDS = {
    "mcp1": ("mcp1", "client_mcp1.py"),
    "mcp2": ("mcp", "client_mcp2.py"),
    "fastmcp": ("mcp", "client_fastmcp.py"),
    "ts1": ("node", "client_ts.mjs", "1"),
    "ts2": ("node", "client_ts.mjs", "2"),
}
SERVER_COMMANDS = {
    "mcp1": ("mcp1", "server_mcp1.py", "mcp1"),
    "mcp2": ("mcp", "server_mcp2.py", "mcp2"),
    "fastmcp": ("mcp", "server_fastmcp.py", "fastmcp"),
    "ts1": ("node", "server_ts1.mjs", "ts1"),
    "ts2": ("node", "server_ts2.mjs", "ts2", "both"),
    "stateless": ("node", "server_ts2.mjs", "stateless", "stateless"),
}
HANDSHAKE = {"mcp1", "ts1"}  # the clients of the older era
OWN_TOOLS = {"ask", "count_cancelled", "fail", "log", "shout", "steps", "wait", "whisper"}
TOOLS = OWN_TOOLS - {"whisper"} | {"grow", "roots", "sample"}
SUBSCRIBERS, SUBSCRIBED = {"mcp1", "mcp2", "ts1", "ts2"}, {"mcp2", "ts1", "ts2", "stateless"}


def command(program: str, script: str, *words: str) -> list[str]:
    """Return how a client or a server is started: by a Python with its library, or by Node.js."""
    if program == "node":
        modules = CLIENTS / "node_modules" / "@modelcontextprotocol" / "server"
        need_file(modules, "npm install in tests/interop/clients")
        found = node()
    else:
        found = need_file(
            TOP / "build" / program / "bin" / "python",
            "`make test` sets it up where there is Python 3.10 or later",
        )
    return [found, str(MATRIX / script), *words]


def run(client: str, servers: dict[str, list[str]]) -> subprocess.CompletedProcess[str]:
    """Let a client use all that there is: the user's methods, and servers behind the gateway."""
    backends: dict[str, dict[str, object]] = {
        name: {"command": words, "dialect": "mcp"} for name, words in servers.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        config = write_config(Path(folder) / "c.toml", backends)
        mcp = [sys.executable, str(PYZ), "mcp", "--methods", str(MATRIX / "own.py")]
        names = {"DUET_RPC_CONFIG": str(config), "DUET_RPC_LOG": f"{folder}/log"}
        return subprocess.run(
            [
                *command(*CLIENT_COMMANDS[client]), ",".join(["own", *servers]),
                *mcp, *(["--gateway"] if servers else []),
            ],
            capture_output=True,
            text=True,
            cwd=folder,
            env={**os.environ, **names, "XDG_CACHE_HOME": folder},
            timeout=120,
            check=False,
            restore_signals=RESTORE_SIGNALS,
        )  # fmt: skip


@functools.cache
def run_with_all_servers(client: str) -> subprocess.CompletedProcess[str]:
    """Run a client once for all the tests that look at what it has seen."""
    return run(client, {name: command(*words) for name, words in SERVER_COMMANDS.items()})


def read_output(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return what a client has seen, by server."""
    assert done.returncode == 0, done.stdout + done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


def expected(client: str, server: str) -> dict[str, object]:
    """Return what a client sees of a server, or of the user's own methods."""
    is_own = server == "own"
    can_subscribe = client in SUBSCRIBERS and server in SUBSCRIBED
    tools = OWN_TOOLS if is_own else TOOLS | {"touch"} if server in SUBSCRIBED else TOOLS
    prefix = "" if is_own else f"{server}__"
    wanted = {
        "tools": [f"{prefix}{tool}" for tool in sorted(tools)],
        "structured": {"loud": "HI", "length": 2},
        "failing": [True, True],
        "progress": [[1, 3, "step 1"], [2, 3, "step 2"], [3, 3, "step 3"], "done"],
        "cancel": "1",
        "resources": [f"notes://{server}/today"],
        "read": f"today at {server}",
        "templates": [f"notes://{server}/days/{{day}}"],
        "read template": f"monday at {server}",
        "prompts": [f"{prefix}review"],
        "prompt": f"Review this python for {server}",
        "complete prompt": ["python"],
        "complete template": ["monday"],
        "log": [f"from {server}"],
        "ask": "Hello Ada",
    }
    if is_own:
        return {
            **wanted,
            "plain": "hi!",  # for FastMCP's client without an object around it
            "described": ["Whisper", ["text", "tail"], ["text", "tail", "times"]],
        }
    return {
        **wanted,
        "sample": "Well enough",
        "roots": "file:///project",
        "list changed": [True, True],
        **({"subscription": True} if can_subscribe else {}),
    }


@pytest.mark.parametrize("client", CLIENT_COMMANDS)
def test_a_client_uses_all_that_a_users_file_has(client: str) -> None:
    seen, wanted = read_output(run(client, {})), expected(client, "own")
    assert {title: seen["own"][title] for title in wanted} == wanted
    assert seen["version"] == ("2025-11-25" if client in HANDSHAKE else "2026-07-28")


@pytest.mark.parametrize(
    ("client", "server"),
    [
        pytest.param(client, server, id=f"{client}-through-gateway-to-{server}")
        for client in CLIENT_COMMANDS
        for server in ("own", *SERVER_COMMANDS)
    ],
)
def test_a_client_uses_all_that_a_server_has(client: str, server: str) -> None:
    seen, wanted = read_output(run_with_all_servers(client))[server], expected(client, server)
    assert {title: seen[title] for title in wanted} == wanted


def test_a_slow_server_delays_no_list_and_is_announced() -> None:
    words = command("node", "server_ts1.mjs", "slow")
    slow = {"slow": ["sh", "-c", 'sleep 5; exec "$@"', "sh", *words]}
    seen = read_output(run("ts1", slow))
    tools, seconds, was_told = seen["first list"]
    assert set(tools) == OWN_TOOLS
    assert seconds < 3.0  # claude -p waits no longer for it
    assert was_told
    assert seen["slow"]["structured"] == {"loud": "HI", "length": 2}
