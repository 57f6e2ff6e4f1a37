"""A real gateway with real servers behind it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import PATIENCE, TOP, Client, load, request

BACKEND = [sys.executable, str(TOP / "tests" / "backend.py")]
SHORT_TIMES = [sys.executable, str(TOP / "tests" / "gateway_with_short_times.py")]


def backend(*habits: str, framing: str = "content-length", **keys: object) -> dict[str, object]:
    """Describe one hostile backend."""
    return {"command": [*BACKEND, framing, *habits], "framing": framing, **keys}


def mcp(*habits: str, **keys: object) -> dict[str, object]:
    """Describe one hostile backend that speaks MCP."""
    return backend("mcp", *habits, framing="lines", dialect="mcp", **keys)


def mcp_server(era: str = "handshake", **options: object) -> dict[str, object]:
    """Describe an MCP server of one era."""
    words = [f"{key}={value}" for key, value in {"era": era, **options}.items()]
    command = [sys.executable, str(TOP / "tests" / "mcp_server.py"), *words]
    return {"command": command, "dialect": "mcp"}


def write_config(path: Path, backends: Mapping[str, Mapping[str, object]]) -> Path:
    """Write a configuration; JSON of texts, numbers and lists is TOML as well."""
    lines = []
    for name, keys in backends.items():
        lines.append(f"[backends.{name}]")
        for key, value in keys.items():
            if isinstance(value, dict):
                inner = ", ".join(f"{each} = {json.dumps(value[each])}" for each in value)
                lines.append(f"{key} = {{ {inner} }}")
            else:
                lines.append(f"{key} = {json.dumps(value)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def logged(path: Path) -> str:
    """Return what a gateway has logged."""
    return (path / "log").read_text()


class GatewayClient(Client):
    """The parent process of a gateway; it keeps notifications and requests apart from replies."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.notes: list[dict[str, Any]] = []
        self._count = 0

    def message(self) -> dict[str, Any]:
        """Read the next message, whatever it is."""
        body = self.receive_raw()
        message: dict[str, Any] = json.loads(body)
        if "method" in message:
            assert set(message) <= {"jsonrpc", "id", "method", "params"}
            self._count += 1
            message["at"] = self._count
            return message
        return load(body)

    def receive(self) -> dict[str, Any]:
        """Read the next reply; notifications and requests are kept in `notes`."""
        while True:
            message = self.message()
            if "method" not in message:
                return message
            self.notes.append(message)

    def note(self, method: str, **params: object) -> dict[str, Any]:
        """Wait for a notification or a request that has these params; return it."""
        at = 0
        while True:
            while at < len(self.notes):
                found = self.notes[at]
                given = found.get("params") or {}
                if found["method"] == method and params.items() <= given.items():
                    return self.notes.pop(at)
                at += 1
            message = self.message()
            assert "method" in message, message
            self.notes.append(message)

    def replies(self, count: int) -> dict[object, dict[str, Any]]:
        """Read that many replies, by id."""
        found = {}
        for _ in range(count):
            reply = self.receive()
            found[reply["id"]] = reply
        return found

    def ask(self, method: str, params: object = None, id: object = 1) -> dict[str, Any]:
        """Make one call and return the reply, of whatever kind."""
        self.send(request(id, method, params))
        reply = self.receive()
        assert reply["id"] == id, reply
        return reply

    def status(self, name: str | None = None) -> Any:
        """Ask how the backends are."""
        status = self.call("gateway/status", id="status")
        return next(each for each in status["backends"] if each["name"] == name) if name else status

    def state(self, name: str, state: str) -> dict[str, Any]:
        """Wait until a backend is in a state, after those already waited for."""
        found = self.note("gateway/stateChanged", name=name, state=state)
        before = [each for each in self.notes if each["method"] == found["method"]]
        for each in before:
            if each["params"]["name"] == name and each["at"] < found["at"]:
                self.notes.remove(each)
        params: dict[str, Any] = found["params"]
        return params


def pids(client: GatewayClient, *names: str) -> list[int]:
    """Return the process ids of backends, which are started by that."""
    return [client.ask(f"{name}/pid")["result"] for name in names]


@contextmanager
def ended(client: GatewayClient) -> Iterator[GatewayClient]:
    """End a router with this block, and leave nothing of it behind."""
    try:
        yield client
    finally:
        # Not killed: that leaves backends to the watchdog, which takes its time.
        client.close_input()
        try:
            client.process.wait(PATIENCE)
        finally:
            client.process.kill()
            client.process.communicate()


@contextmanager
def gateway(
    path: Path,
    backends: Mapping[str, Mapping[str, object]],
    *flags: str,
    times: Mapping[str, object] | None = None,
    program: Sequence[str] = SHORT_TIMES,
    log: str = "log",
    **options: Any,
) -> Iterator[GatewayClient]:
    """Run a gateway, and leave nothing of it behind."""
    config = write_config(path / "gateway.toml", backends)
    shorter = [f"{name}={value}" for name, value in (times or {}).items()]
    env = {"DUET_RPC_CONFIG": str(config), "DUET_RPC_LOG": str(path / log) if log else ""}
    client = GatewayClient([*program, *shorter, "--", *flags], env, **options)
    with ended(client):
        yield client


@contextmanager
def patience_for_depth() -> Iterator[None]:
    """Let the test itself read what is nested more deeply than usual."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(10 * usual)
    try:
        yield
    finally:
        sys.setrecursionlimit(usual)
