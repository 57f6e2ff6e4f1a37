"""Instructions of servers behind `duet-rpc mcp --gateway`, as one text for the client."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import mcp_server as server
from tests.mcp_client import MODERN
from tests.process.test_mcp_gateway_eras import CLIENTS, ERAS, AnyClient, serve
from tests.support import SOURCE, wait_until


def instructions(client: AnyClient) -> Any:
    """Shake hands again, or ask again what there is; return the instructions."""
    if client.version == MODERN:
        return client.ask("server/discover")["result"].get("instructions")
    said = {"protocolVersion": client.version, "capabilities": {}}
    return client.ask("initialize", said)["result"].get("instructions")


def section(name: str, text: str) -> str:
    return f"# {name}\n\n(The names of its tools and prompts begin with `{name}__` here.)\n\n{text}"


@pytest.mark.parametrize("version", CLIENTS)
def test_instructions_of_all_servers_are_merged(tmp_path: Path, version: str) -> None:
    both = {f"of_{era}": server(era, instructions=f"Be {era}.") for era in ERAS}
    with serve(tmp_path, version, {**both, "silent": server()}) as client:
        sections = [section(f"of_{era}", f"Be {era}.") for era in ERAS]
        assert instructions(client) == "\n\n".join(sections)
    with serve(tmp_path, version, {"silent": server()}) as client:
        assert instructions(client) is None


def test_a_server_that_can_not_be_started_is_not_waited_for(tmp_path: Path) -> None:
    missing: dict[str, object] = {"command": [str(tmp_path / "missing")], "dialect": "mcp"}
    backends = {"missing": missing, "m": server(instructions="Hello")}
    with serve(tmp_path, "2025-11-25", backends) as client:
        assert instructions(client) == section("m", "Hello")


def test_a_slow_server_is_quoted_from_the_last_time(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    backends = {"m": server(instructions="Use hold.", slow_file=slow)}
    slow.write_text("30")
    began = time.monotonic()
    with serve(tmp_path, "2025-11-25", backends, program=SOURCE) as client:
        assert instructions(client) is None
        assert time.monotonic() - began < 10
    slow.unlink()
    kept = tmp_path / "cache" / "duet-rpc" / "lists"
    with serve(tmp_path, "2025-11-25", backends, program=SOURCE):
        wait_until(
            lambda: any("Use hold." in each.read_text() for each in kept.glob("*.json")), "kept"
        )
    slow.write_text("30")
    with serve(tmp_path, "2025-11-25", backends, program=SOURCE) as client:
        assert instructions(client) == section("m", "Use hold.")


def test_long_instructions_are_cut_with_a_note(tmp_path: Path) -> None:
    long = {f"m{n}": server(instructions="xy", times=4000) for n in range(5)}
    with serve(tmp_path, "2025-11-25", long) as client:
        text = instructions(client)
    assert text.count("… (4800 more characters)") == 5
    assert len(text) < 17_000
