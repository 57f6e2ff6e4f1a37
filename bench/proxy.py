"""`duet-rpc mcp --gateway` beside FastMCP's proxy, each with the same three MCP servers behind it.

The servers do next to nothing, so that what is measured is what stands in front of them. Both are
started in each round, one after the other, and the second of a round is the first of the next.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.install import BUILD, PEERS, PYTHON, SDK
from bench.programs import DUET, PYZ, Program
from bench.server import Server
from bench.traffic import Call, Traffic

if TYPE_CHECKING:
    from bench.goals import Samples

FASTMCP = "FastMCP's proxy"
NAMES = ("one", "two", "three")
SERVER = [PYTHON, "-I", "-S", str(PEERS / "mcp_backend.py")]
TRIPS = 100
SETTLE = 0.5


def proxies() -> list[Program]:
    """Return both, or none where FastMCP could not be installed."""
    if not list(SDK.glob("lib/python*/site-packages/fastmcp")):
        return []
    path = BUILD / "proxy.toml"
    tables = (
        f'[backends.{name}]\ncommand = {json.dumps(SERVER)}\ndialect = "mcp"\n' for name in NAMES
    )
    path.write_text("\n".join(tables))
    environ = {"DUET_RPC_CONFIG": str(path)}
    proxy = [str(SDK / "bin" / "python"), str(PEERS / "fastmcp_proxy.py"), *NAMES, "--", *SERVER]
    return [
        Program(DUET, [PYTHON, PYZ, "mcp", "--gateway"], environ=environ, framing="lines"),
        Program(FASTMCP, proxy, framing="lines"),
    ]


def from_proxy(rounds: int) -> Samples:
    """Measure both in turn."""
    samples: Samples = {}
    programs = proxies()
    for program in programs:
        use(program, Traffic("warm"))
    for number in range(rounds):
        for program in programs[:: 1 if number % 2 else -1]:
            for key, value in use(program, Traffic(f"proxy {number}")).items():
                samples.setdefault(key, {}).setdefault(program.name, []).append(value)
    return samples


def use(program: Program, traffic: Traffic) -> dict[str, float]:
    """Start one, list the tools of all servers, call one of them; look at the memory."""
    client = {"name": "bench", "version": "1"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    before = time.perf_counter()
    with Server(program) as server:
        server.call(Call(traffic.next_id(), "initialize", hello, None))
        server.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        tools = list_tools(server, traffic)
        while len(tools) < len(NAMES):  # not all servers have answered yet
            tools = list_tools(server, traffic)
        first = time.perf_counter() - before
        time.sleep(SETTLE)

        def call() -> Call:
            made = traffic.count()
            params = {"name": tools[made.id % len(tools)], "arguments": made.params}
            return Call(made.id, "tools/call", params, made.result)

        for _ in NAMES:
            server.call(call())
        trip = statistics.median(server.call(call()) for _ in range(TRIPS))
        found = {"proxy_list": first * 1e3, "proxy_trip": trip * 1e6}
        memory = memory_without_servers(server)
        return found if memory is None else {**found, "proxy_memory": memory}


def list_tools(server: Server, traffic: Traffic) -> list[str]:
    """Return the names of the tools that are listed now."""
    call = Call(traffic.next_id(), "tools/list", {}, None)
    server.send(server.encode(call.body))
    return [tool["name"] for tool in json.loads(server.receive())["result"]["tools"]]


def memory_without_servers(server: Server) -> float | None:
    """Return the memory in MB of a program and what it has started, apart from the servers."""
    total, found = 0.0, [server.process.pid]
    try:
        for pid in found:
            folder = Path(f"/proc/{pid}")
            if os.fsencode(SERVER[-1]) not in (folder / "cmdline").read_bytes().split(b"\0")[:5]:
                text = (folder / "status").read_text()
                total += int(text.partition("VmRSS:")[2].split()[0]) / 1024
            for task in (folder / "task").iterdir():
                found += map(int, (task / "children").read_text().split())
    except OSError:
        return None
    return total
