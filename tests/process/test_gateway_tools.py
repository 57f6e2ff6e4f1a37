"""The gateway's rule for servers that speak MCP: one list of tools, called by their names."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.gateway import (
    backend,
    gateway,
    logged,
    mcp,
)
from tests.support import notification, request

MCP = {"dialect": "mcp", "framing": "lines"}


# Rule 8: MCP.


def test_tools_of_all_servers_are_one_list(tmp_path: Path) -> None:
    one = {"a": mcp("pages=3"), "b": mcp(), "plain": backend()}
    with gateway(tmp_path, one) as client:
        client.send(request(1, "tools/list"))
        while True:
            body = client.receive_raw().decode()
            if '"tools"' in body:
                break
        names = [each["name"] for each in json.loads(body)["result"]["tools"]]
        assert names == ["a__tool0", "a__tool1", "a__tool2", "b__tool0", "b__tool1"]
        assert body.count('"default":1.0') == 5, "the rest is as it came"
        assert "_meta" not in json.loads(body)["result"]
        assert "plain" not in [each["params"].get("name") for each in client.notes]
        call = {"name": "a__tool1", "arguments": {"x": 1.0}}
        assert client.ask("tools/call", call)["result"] == {**call, "name": "tool1"}
        named = {"name": "tool1", "arguments": {"x": 1.0}}
        assert client.ask("a__tool1", {"x": 1.0})["result"] == named
        assert client.ask("a__tool1")["result"] == {"name": "tool1", "arguments": {}}
        assert client.ask("a__tool1", [1])["error"]["code"] == -32602
        assert client.ask("tools/call", {"name": "c__x"})["error"]["code"] == -32602
        listed = [each["name"] for each in client.call("listMethods")]
        assert listed[-5:] == names
        discovered = client.call("rpc.discover")["methods"][-1]
        assert discovered["name"] == "b__tool1"
        schema = {"default": 1.0}
        assert discovered["params"] == [{"name": "x", "required": False, "schema": schema}]
        assert client.call("describeMethods")[-1] == {
            "name": "b__tool1", "params": ["x: any = ..."], "returns": "object",
        }  # fmt: skip


def test_a_tool_without_a_name_is_left_out(tmp_path: Path) -> None:
    nameless = [
        "{}",
        "1",
        "null",
        "[]",
        *(f'{{"name":{each}}}' for each in ("5", "null", "{}", '""')),
    ]
    tools = f'tools=[{",".join(nameless)},{{"name":"t"}}]'
    with gateway(tmp_path, {"a": mcp(tools)}) as client:
        assert client.call("tools/list") == {"tools": [{"name": "a__t"}]}
    assert logged(tmp_path).count("left out a tool without a name") == len(nameless)


def test_meta_of_a_tool_called_by_name_is_no_argument(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": mcp()}) as client:
        result = client.ask("a__t", {"x": 1, "_meta": {"progressToken": "bar"}})["result"]
        assert result["arguments"] == {"x": 1}
        assert result["_meta"]["progressToken"].startswith("duet-rpc-")


def test_a_dead_or_slow_server_delays_no_other_list(tmp_path: Path) -> None:
    one: dict[str, Mapping[str, object]] = {
        "a": mcp(),
        "dead": mcp("die-at-once=1"),
        "slow": mcp("slow-handshake=20"),
        "slower": mcp("slow-tools=20"),
        "none": {"command": ["/no/such/program"], "dialect": "mcp"},
    }
    with gateway(tmp_path, one, times={"list": 1.0}) as client:
        client.call("tools/list")
        start = time.monotonic()
        result = client.call("tools/list", id=2)
        assert time.monotonic() - start < 3
        assert [each["name"] for each in result["tools"]] == ["a__tool0", "a__tool1"]
        absent = result["_meta"]["duet-rpc/unavailable"]
        assert set(absent) == {"dead", "slow", "slower", "none"}
        assert absent["slow"] == "starting"
        assert not [each for each in client.notes if "list_changed" in each["method"]]
        assert client.ask("a/id")["result"] > 0


def test_tools_that_come_late_are_announced(tmp_path: Path) -> None:
    one = {"a": mcp("slow-handshake=0.8"), "b": mcp("slow-tools=0.8", "pages=1"), "c": mcp()}
    with gateway(tmp_path, one, times={"list": 0.5}) as client:
        client.ask("c/pid")
        names = [each["name"] for each in client.call("tools/list")["tools"]]
        assert names == ["c__tool0", "c__tool1"]
        client.note("notifications/tools/list_changed")
        client.note("notifications/tools/list_changed")
        assert len(client.call("tools/list")["tools"]) == 5


def test_the_handshake_is_made_again_after_a_restart(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": mcp()}, times={"restart": "0.1,0.1"}) as client:
        for _ in range(2):
            answer = client.ask("a/initialize", {"anything": 1})["result"]
            assert answer["serverInfo"] == {"name": "hostile", "version": "1.0"}
            client.send(notification("a/notifications/initialized"))
            seen = [each["method"] for each in client.ask("a/seen")["result"]]
            assert seen == ["notifications/initialized"]
            client.ask("a/die")
            client.state("a", "backoff")
            client.state("a", "starting")
            client.state("a", "ready")


@pytest.mark.parametrize("habit", ["slow-handshake=20", "refuse-handshake"])
def test_a_handshake_that_fails_is_a_death(tmp_path: Path, habit: str) -> None:
    times = {"start": 0.5, "restart": "0.1"}
    with gateway(tmp_path, {"a": mcp(habit), "b": mcp()}, times=times) as client:
        error = client.ask("a/id")["error"]
        assert (error["code"], error["data"]["reason"]) == (-32803, "died")
        assert "handshake" in error["message"]
        client.state("a", "failed")
        assert client.ask("b/pid")["result"] > 0


def test_an_unreadable_handshake_is_not_waited_for(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": mcp("broken-handshake")}) as client:
        error = client.ask("a/id")["error"]
        assert "sent an invalid reply to the handshake" in error["message"]
        assert error["data"]["reason"] == "died"


def test_a_handshake_may_take_longer_than_a_request(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": mcp("slow-handshake=1.5", timeout=0.4)}) as client:
        assert client.ask("a/id")["error"]["data"]["reason"] == "timeout"
        client.state("a", "ready")
        assert client.ask("a/pid")["result"] > 0
        assert client.status("a")["restarts"] == 0


def test_a_list_that_changed_is_asked_for_again(tmp_path: Path) -> None:
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    with gateway(tmp_path, {"a": mcp()}) as client:
        client.call("tools/list")
        client.send(request(1, "a/ask", {"id": 1, "method": "ping", "before": [changed]}))
        client.receive()
        assert client.note("notifications/tools/list_changed")
        assert client.note("a/notifications/tools/list_changed")
        assert len(client.call("tools/list")["tools"]) == 2


def test_a_list_that_changes_meanwhile_is_requested_again(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": mcp("restless=1")}) as client:
        for _ in range(2):
            names = [each["name"] for each in client.call("tools/list")["tools"]]
            assert names == ["a__v1-first", "a__v1-last"]
        assert len([each for each in client.notes if each["method"].startswith("noti")]) == 1


def test_a_list_that_keeps_changing_is_shown_as_is(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": mcp("restless=1000000")}) as client:
        first, second = (
            {each["name"] for each in client.call("tools/list")["tools"]} for _ in "12"
        )
        assert len(first) == len(second) == 2
        assert first != second, "it is not kept"
