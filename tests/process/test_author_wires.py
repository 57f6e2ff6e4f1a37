"""Files that come, change, break and go, as an MCP client and the client of a gateway see it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.author import NOT_FOUND, ONE
from tests.method_files import env_for, write
from tests.support import SOURCE, Client, daemon, request

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}


class ToolClient:
    """An MCP client that keeps the notifications that it gets."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.notified: list[str] = []
        self.ask("initialize", HELLO)

    def ask(self, method: str, params: object = None) -> dict[str, Any]:
        """Make a request and return the whole reply."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        self._client.send(json.dumps(body).encode() + b"\n")
        while True:
            message: dict[str, Any] = json.loads(self._client.receive_raw())
            if "id" in message:
                return message
            self.notified.append(message["method"])

    def tools(self) -> list[str]:
        """List the names of the tools."""
        return [each["name"] for each in self.ask("tools/list")["result"]["tools"]]

    def call(self, tool: str) -> str:
        """Call a tool and return its text."""
        reply = self.ask("tools/call", {"name": tool, "arguments": {}})
        if "error" in reply:
            return str(reply["error"]["message"])
        return str(reply["result"]["content"][0]["text"])


CHANGED = "notifications/tools/list_changed"


@pytest.mark.parametrize("flags", [(), ("--gateway",)], ids=["mcp", "mcp --gateway"])
def test_an_mcp_client_sees_files_come_change_break_and_go(
    tmp_path: Path, folder: Path, flags: tuple[str, ...]
) -> None:
    (tmp_path / "home").mkdir()
    command = [*SOURCE, "mcp", *flags]
    with daemon(command, env_for(tmp_path), framing="lines") as process:
        client = ToolClient(process)
        assert client.tools() == []
        assert "Unknown tool" in client.call("f")
        path = write(folder, ONE.format("f", 1), "a.py")
        assert client.call("f") == "1"
        assert client.tools() == ["f"]
        path.write_text(ONE.format("f", 22) + ONE.format("g", 3))
        assert client.call("f") == "22"
        assert CHANGED in client.notified
        assert client.tools() == ["f", "g"]
        path.write_text("oops(\n")
        assert (client.call("f"), client.call("g")) == ("22", "3")
        path.unlink()
        assert "Unknown tool" in client.call("f")
        assert client.tools() == []


def test_a_client_is_told_of_other_tools_once(tmp_path: Path, folder: Path) -> None:
    path = write(folder, ONE.format("f", 1), "a.py")
    with daemon([*SOURCE, "mcp"], env_for(tmp_path), framing="lines") as process:
        client = ToolClient(process)
        assert client.tools() == ["f"]
        path.write_text(ONE.format("f", 22))
        assert client.call("f") == "22"
        assert client.notified == [], "the list is the same"
        path.write_text(ONE.format("f", 333) + "@method\ndef g() -> int: return 1\n")
        assert [client.call("f"), client.call("f")] == ["333", "333"]
        assert client.notified == [CHANGED]


def test_a_daemon_behind_the_gateway_sees_changed_files(tmp_path: Path, folder: Path) -> None:
    command = json.dumps([*SOURCE, "rpc"])
    write(folder.parent, f"[backends.mine]\ncommand = {command}\n", "config.toml")
    with daemon([*SOURCE, "gateway"], env_for(tmp_path)) as client:

        def result_of(method: str) -> object:
            client.send(request(1, method))
            while True:
                message = json.loads(client.receive_raw())
                if "id" in message:  # else it says how the backend is
                    return message["result"] if "result" in message else message["error"]["code"]

        assert result_of("mine/f") == NOT_FOUND
        path = write(folder, ONE.format("f", 1), "a.py")
        assert result_of("mine/f") == 1
        path.write_text(ONE.format("f", 22))
        assert result_of("mine/f") == 22
        path.write_text("oops(\n")
        assert result_of("mine/f") == 22
        path.unlink()
        assert result_of("mine/f") == NOT_FOUND
