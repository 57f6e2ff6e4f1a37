"""A client of `duet-rpc mcp`, in every version of the protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from duet_rpc import __version__
from tests.support import SOURCE, TOP, Client

TOOLS = TOP / "tests" / "interop" / "clients" / "tools.py"
HANDSHAKE = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
MODERN = "2026-07-28"
EVERY = [*HANDSHAKE, MODERN]
INFO = {"name": "duet-rpc", "version": __version__}


def meta(version: object = MODERN, **more: object) -> dict[str, object]:
    return {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
        **more,
    }


class Mcp(Client):
    """A client of one version."""

    version = ""
    last = 0

    def post(self, method: str, params: Mapping[str, object] | None = None) -> int:
        """Send a request; return its id."""
        self.last += 1
        said = dict(params or {})
        if self.version == MODERN:
            said["_meta"] = {**meta(), **said.get("_meta", {})}  # type: ignore[dict-item]
        self.say({"jsonrpc": "2.0", "id": self.last, "method": method, "params": said})
        return self.last

    def say(self, message: object) -> None:
        """Send any JSON."""
        self.send((message if isinstance(message, str) else json.dumps(message)).encode() + b"\n")

    def ask(self, method: str, params: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Make one call; return the whole reply."""
        id = self.post(method, params)
        reply = self.receive()
        assert reply["id"] == id
        return reply

    def tool(self, name: str, /, **arguments: object) -> Any:
        """Call one tool."""
        reply = self.ask("tools/call", {"name": name, "arguments": arguments})
        return reply["result"]

    def tools(self) -> dict[str, Any]:
        """List the tools, by name."""
        return {each["name"]: each for each in self.ask("tools/list")["result"]["tools"]}


@contextmanager
def mcp(version: str = "", command: Sequence[str | Path] = SOURCE, *options: str) -> Iterator[Mcp]:
    client = Mcp([*command, "mcp", "--methods", TOOLS, *options], framing="lines")
    try:
        if version in HANDSHAKE:
            reply = client.ask("initialize", {"protocolVersion": version, "capabilities": {}})
            assert reply["result"]["protocolVersion"] == version
            client.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        client.version = version
        yield client
    finally:
        client.process.kill()
        client.process.communicate()


def client_end(client: Mcp) -> tuple[bytes, str]:
    client.close_input()
    out, err = client.process.communicate(timeout=20)
    return out, err.decode()
