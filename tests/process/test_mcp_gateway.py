"""`duet-rpc mcp --gateway`: other servers' tools and the user's methods as one MCP server."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from duet_rpc.gateway.eras import as_stateless
from tests.gateway import SHORT_TIMES, backend, patience_for_depth, write_config
from tests.machine import wait_until_idle
from tests.mcp_client import EVERY, HANDSHAKE, INFO, MODERN, TOOLS, Mcp, mcp
from tests.support import PATIENCE, SOURCE, TOP, shortest, wait_until

# Another server with the same tools, and one that hands back what it is called with.
OTHER = {"command": [*SOURCE, "mcp", "--methods", str(TOOLS)], "dialect": "mcp"}
ECHO = backend("mcp", framing="lines", dialect="mcp")
OWN = ["text.stats", "add", "greet"]


class OneServer(Mcp):
    """A client; news of tools and progress are kept apart from replies."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.notes: list[dict[str, Any]] = []

    def receive_raw(self) -> bytes:
        """Read the next reply."""
        while True:
            body = super().receive_raw()
            message = json.loads(body)
            if not isinstance(message, dict) or "method" not in message:
                return body
            self.notes.append(message)

    def note(self) -> dict[str, Any]:
        """Wait for the next message that is no reply, unless one has come."""
        if not self.notes:
            self.notes.append(json.loads(super().receive_raw()))
        return self.notes.pop(0)


@contextmanager
def serve(
    tmp_path: Path,
    version: str,
    backends: Mapping[str, Mapping[str, object]],
    methods: Path | None = TOOLS,
    *flags: str,
) -> Iterator[OneServer]:
    config = write_config(tmp_path / "config.toml", backends)
    env = {"DUET_RPC_CONFIG": str(config), "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    named = [] if methods is None else ["--methods", str(methods)]
    # Lists are to have what the servers have: this machine may be slow.
    command = [*SHORT_TIMES, "list_at_once=3", "--", "mcp", "--gateway", *named, *flags]
    client = OneServer(command, env, framing="lines", cwd=TOP)
    try:
        if version in HANDSHAKE:
            reply = client.ask("initialize", {"protocolVersion": version, "capabilities": {}})
            offered = reply["result"].pop("capabilities")
            assert reply["result"] == {"protocolVersion": version, "serverInfo": INFO}
            assert offered["tools"] == offered["prompts"] == {"listChanged": True}
            assert offered["resources"] == {"listChanged": True, "subscribe": True}
            assert ("completions" in offered) == (version > "2024-11-05")
            client.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        client.version = version
        yield client
    finally:
        client.process.terminate()
        client.process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("version", EVERY)
def test_one_list_and_every_tool_in_it_can_be_called(tmp_path: Path, version: str) -> None:
    with serve(tmp_path, version, {"other": OTHER, "echo": ECHO}) as client:
        result = client.ask("tools/list")["result"]
        names = [each["name"] for each in result["tools"]]
        assert names[:3] == OWN
        assert [name for name in names if name.startswith("other__")][:3] == [
            f"other__{name}" for name in OWN
        ]
        assert names[-2:] == ["echo__tool0", "echo__tool1"]
        called = [client.tool("add", a=1), client.tool("other__add", a=1)]
        echoed = client.tool("echo__tool0", x=1.0)
    for each in called:
        assert each["content"] == [{"type": "text", "text": "2"}]
        assert each["isError"] is False
    assert echoed["name"] == "tool0"
    assert echoed["arguments"] == {"x": 1.0}
    for each in (result, *called, echoed):
        assert each.get("resultType") == ("complete" if version == MODERN else None)
    if version == MODERN:
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
        assert result["_meta"] == {"io.modelcontextprotocol/serverInfo": INFO}


def test_wrong_requests_are_answered_as_without_the_gateway(
    tmp_path: Path,
) -> None:
    with serve(tmp_path, "", {"echo": ECHO}) as client:
        assert client.ask("tools/list")["error"]["code"] == -32602
        assert client.ask("ping")["result"] == {}
        client.say('{"jsonrpc":"2.0","id":null,"method":"ping"}')
        assert client.receive()["error"]["code"] == -32600
        client.say("nonsense")
        assert client.receive()["error"]["code"] == -32700
        client.ask("initialize", {"protocolVersion": "2025-11-25"})
        assert client.ask("resources/lists")["error"]["code"] == -32601
        assert client.ask("subscriptions/listen")["error"]["code"] == -32601
        assert client.ask("echo/pid")["error"]["code"] == -32601
        assert client.ask("gateway/status")["error"]["code"] == -32601
        for params in ({}, {"name": 5}, {"name": "nope"}, {"name": "other__x"}):
            assert client.ask("tools/call", params)["error"]["code"] == -32602
        assert client.ask("tools/call", {"name": "add", "arguments": {}})["result"]["isError"]


def test_every_name_is_allowed_and_none_stands_for_two(tmp_path: Path) -> None:
    methods = tmp_path / "mine.py"
    methods.write_text(
        'from duet_rpc import method\n@method("m__t")\ndef one() -> str:\n    return "mine"\n'
    )
    names = ["t", "with space", "with_space", "x" * 128, "x" * 129]
    tools = "tools=" + json.dumps([{"name": name} for name in names])
    server = backend("mcp", tools, framing="lines", dialect="mcp")
    with serve(tmp_path, "2025-11-25", {"m": server}, methods) as client:
        listed = [each["name"] for each in client.ask("tools/list")["result"]["tools"]]
        assert len(set(listed)) == len(listed) == 6
        assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", each) for each in listed)
        assert listed[:4] == ["m__t", "m__t_2", "m__with_space_2", "m__with_space"]
        assert client.tool("m__t")["structuredContent"] == {"result": "mine"}
        assert [client.tool(each)["name"] for each in listed[1:]] == names


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
def test_a_deeply_nested_tool_delays_no_list(tmp_path: Path, version: str) -> None:
    server = backend("mcp", "deeper=950", framing="lines", dialect="mcp")
    backends = {"deep": server, "echo": ECHO}
    with patience_for_depth(), serve(tmp_path, version, backends, None) as client:
        for _ in range(50):
            assert "echo__tool0" in client.tools()


@pytest.mark.parametrize("version", HANDSHAKE)
def test_ones_own_methods_are_those_of_the_version_agreed_on(tmp_path: Path, version: str) -> None:
    wrong = {"name": "add", "arguments": {"a": "x"}}
    with mcp(version) as alone, serve(tmp_path, version, {}) as client:
        assert client.tools() == alone.tools()
        assert client.tool("add", a=1) == alone.tool("add", a=1)
        replies = [each.ask("tools/call", wrong) for each in (client, alone)]
        assert replies[0] == {**replies[1], "id": replies[0]["id"]}


def test_without_methods_of_ones_own_there_are_the_servers_tools(tmp_path: Path) -> None:
    with serve(tmp_path, "2025-11-25", {"echo": ECHO}, methods=None) as client:
        assert list(client.tools()) == ["echo__tool0", "echo__tool1"]
        error = client.ask("tools/call", {"name": "add"})["error"]
        assert error["code"] == -32602
        assert "Unknown tool: add" in error["message"]


MINE = "from duet_rpc import method\n@method\ndef mine() -> int:\n    return 7\n"


def children(client: OneServer) -> int:
    """Return how many processes a server has started."""
    pid = client.process.pid
    return len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


@pytest.mark.parametrize("first", ["list", "call"])
def test_methods_that_appear_while_it_runs_are_offered(tmp_path: Path, first: str) -> None:
    with serve(tmp_path, "2025-11-25", {"echo": ECHO}, methods=None) as client:
        assert "mine" not in client.tools()
        before = children(client)
        assert "Unknown tool" in client.ask("tools/call", {"name": "mine"})["error"]["message"]
        assert children(client) == before, "there is nothing to start a process for"
        folder = tmp_path / "duet-rpc" / "methods"
        folder.mkdir(parents=True)
        (folder / "mine.py").write_text(MINE)
        if first == "list":
            assert "mine" in client.tools()
        assert client.tool("mine")["structuredContent"] == {"result": 7}
        assert "mine" in client.tools()
        (folder / "mine.py").unlink()
        assert list(client.tools()) == ["echo__tool0", "echo__tool1"]
        assert "Unknown tool" in client.ask("tools/call", {"name": "mine"})["error"]["message"]
        wait_until(lambda: children(client) == before, "the process of the methods has ended")
        (folder / "mine.py").write_text(MINE.replace("7", "8"))
        assert "mine" in client.tools()
        assert client.tool("mine")["structuredContent"] == {"result": 8}


def test_a_list_that_changed_is_announced_and_requested_again(tmp_path: Path) -> None:
    growing = backend("mcp", "tools=[]", framing="lines", dialect="mcp")
    with serve(tmp_path, "2025-11-25", {"m": growing, "echo": ECHO}, None) as client:
        assert "m__new0" not in client.tools()
        for number in range(3):
            client.notes.clear()
            client.tool("m__grow")
            assert [each["method"] for each in client.notes] == ["notifications/tools/list_changed"]
            assert f"m__new{number}" in client.tools()


def test_changes_without_end_are_announced_once_until_the_client_asks(tmp_path: Path) -> None:
    growing = backend("mcp", "tools=[]", framing="lines", dialect="mcp")
    with serve(tmp_path, "2025-11-25", {"m": growing}, None) as client:
        client.tools()
        for _ in range(2):
            client.notes.clear()
            for _ in range(20):
                client.tool("m__grow")
            assert len(client.notes) == 1
            known = list(client.tools())
        assert known == [f"m__new{number}" for number in range(40)]


def test_thousands_of_tools_whose_names_become_one_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([{"name": chr(0x4E00 + number)} for number in range(8000)]))
    server = backend("mcp", f"tools-file={path}", framing="lines", dialect="mcp")

    def attempt() -> float:
        with serve(tmp_path, "2025-11-25", {"m": server, "echo": ECHO}, None) as client:
            start = time.monotonic()
            names = list(client.tools())
            took = time.monotonic() - start
            assert len(set(names)) == len(names) == 8002
            assert client.tool(names[7777])["name"] == chr(0x4E00 + 7777)
        return took

    assert shortest(attempt, 2.0) < 2.0


# Batches.


def call(id: object, name: str, **arguments: object) -> dict[str, object]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


@pytest.mark.parametrize("version", HANDSHAKE)
@pytest.mark.parametrize("flag", [True, False])
def test_a_batch_is_answered_as_without_the_gateway(
    tmp_path: Path, version: str, flag: bool
) -> None:
    flags = ["--batch"] if flag else []
    with serve(tmp_path, version, {"echo": ECHO}, TOOLS, *flags) as client:
        client.tools()
        calls = [
            call(1, "add", a=1),
            {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"},
            call("two", "echo__tool0", x=1),
            {"jsonrpc": "2.0", "id": 3, "method": "ping"},
            {"jsonrpc": "2.0", "id": 3, "method": "ping"},
            {"jsonrpc": "2.0", "id": 4, "method": "nonsense"},
            5,
            call(1, "add", a=1),
        ]
        client.say(calls)
        reply = json.loads(client.receive_raw())
        if not flag and version != "2025-03-26":
            assert reply["error"]["data"]["reason"] == "batch-not-supported"
            return
        assert [each["id"] for each in reply] == [1, "two", 3, 3, 4, None, 1]
        assert ["error" in each for each in reply] == [False] * 4 + [True] * 3
        assert reply[1]["result"]["arguments"] == {"x": 1}
        client.say([])
        assert json.loads(client.receive_raw())["error"]["code"] == -32600
        client.say([{"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}])
        assert client.ask("ping")["result"] == {}


def test_a_batch_does_not_wait_for_what_was_cancelled(tmp_path: Path) -> None:
    with serve(tmp_path, "2025-03-26", {"echo": ECHO}, None) as client:
        client.tools()
        client.say([call("slow", "echo__hold"), call("quick", "echo__tool0")])
        client.say(call("slow", "echo__tool0"))
        assert client.receive()["error"]["message"].endswith("in flight")
        cancel = {"requestId": "slow"}
        client.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel})
        assert [each["id"] for each in json.loads(client.receive_raw())] == ["quick"]


def test_the_replies_to_a_batch_are_limited_in_size(tmp_path: Path) -> None:
    with serve(tmp_path, "2025-03-26", {"echo": ECHO}, None) as client:
        client.tools()
        client.say([call(number, "echo__big", size=4_000_000) for number in range(5)])
        replies = json.loads(client.receive_raw())
        assert ["result" in each for each in replies] == [True, True, False, False, False]
        assert "larger than 10485760 bytes" in replies[4]["error"]["message"]


def test_servers_that_are_not_mcp_are_not_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    backends = {"plain": backend(f"pid-file={pids}", start="eager"), "echo": ECHO}
    with serve(tmp_path, "2025-11-25", backends) as client:
        assert "echo__tool0" in client.tools()
        assert not any(name.startswith("plain") for name in client.tools())
    assert not pids.exists()


@pytest.mark.parametrize("version", ["2025-06-18", MODERN])
@pytest.mark.parametrize("prefix", ["", "other__"])
def test_progress_and_cancel_reach_the_server(tmp_path: Path, version: str, prefix: str) -> None:
    with serve(tmp_path, version, {"other": OTHER}) as client:
        client.tools()
        params: dict[str, object] = {"name": f"{prefix}steps", "arguments": {"count": 2}}
        client.ask("tools/call", {**params, "_meta": {"progressToken": "mine"}})
        said = [each["params"] for each in client.notes if "progress" in each["method"]]
        assert [(each["progressToken"], each["progress"]) for each in said] == [
            ("mine", 0),
            ("mine", 1),
        ]
        id = client.post("tools/call", {"name": f"{prefix}forever"})
        wait_until_idle(client.process.pid)  # the server has the call
        cancel = {"requestId": id}
        client.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel})
        assert client.tool(f"{prefix}add", a=1)["isError"] is False


def test_a_second_request_with_an_id_in_flight_is_refused(tmp_path: Path) -> None:
    with serve(tmp_path, "2025-11-25", {"echo": ECHO}) as client:
        client.tools()
        client.say('{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"forever"}}')
        for method in ("ping", "tools/list", "tools/call", "nonsense", "initialize"):
            client.say(f'{{"jsonrpc":"2.0","id":"x","method":"{method}","params":{{}}}}')
            reply = client.receive()
            assert (reply["id"], reply["error"]["code"]) == ("x", -32600), method


def test_servers_work_at_the_same_time(tmp_path: Path) -> None:
    with serve(tmp_path, "2025-11-25", {"other": OTHER, "echo": ECHO}) as client:
        client.tools()
        slow = client.post("tools/call", {"name": "forever"})
        slower = client.post("tools/call", {"name": "other__forever"})
        assert client.tool("echo__tool0")["name"] == "tool0"
        for each in (slow, slower):
            cancel = {"requestId": each}
            client.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel})
        assert client.tool("add", a=1)["isError"] is False


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
def test_a_server_that_dies_costs_its_own_calls(tmp_path: Path, version: str) -> None:
    pids = tmp_path / "pids"
    dying = backend("mcp", f"pid-file={pids}", framing="lines", dialect="mcp")
    with serve(tmp_path, version, {"other": OTHER, "dying": dying}) as client:
        client.tools()
        id = client.post("tools/call", {"name": "other__forever"})
        os.kill(int(pids.read_text().split()[0]), signal.SIGKILL)
        assert client.tool("add", a=1)["isError"] is False
        reply = client.ask("tools/call", {"name": "dying__tool0", "arguments": {}})
        if "error" in reply:  # its death was noticed before; else it has been started again
            assert reply["error"]["data"]["backend"] == "dying"
        client.say(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}
        )
        assert client.tool("other__add", a=1)["isError"] is False


def test_a_slow_server_is_announced_when_it_is_ready(tmp_path: Path) -> None:
    slow = backend("mcp", "slow-handshake=7", framing="lines", dialect="mcp")
    with serve(tmp_path, "2025-11-25", {"slow": slow, "echo": ECHO}) as client:
        start = time.monotonic()
        assert "echo__tool0" in client.tools()
        assert time.monotonic() - start < 3.9
        assert client.note()["method"] == "notifications/tools/list_changed"
        assert "slow__tool0" in client.tools()


def test_what_the_client_cannot_answer_is_refused_and_messages_pass(tmp_path: Path) -> None:
    asking = backend("mcp", "ask-first", "pages=1", framing="lines", dialect="mcp")
    with serve(tmp_path, "2025-11-25", {"asking": asking}, methods=None) as client:
        client.tools()
        seen = client.tool("asking__seen")["seen"]
        assert [each["error"]["code"] for each in seen if each.get("id") == "q"] == [-32601]
        said = {"level": "info", "data": "hello", "logger": "asking"}
        assert [each["params"] for each in client.notes] == [said]


def test_the_log_level_reaches_the_users_methods(tmp_path: Path) -> None:
    config = write_config(tmp_path / "config.toml", {})
    env = {"DUET_RPC_CONFIG": str(config), "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    flags = ["--methods", TOOLS, "--log-level", "debug"]
    client = OneServer([*SOURCE, "mcp", "--gateway", *flags], env, framing="lines", cwd=TOP)
    client.ask("initialize", {"protocolVersion": "2025-11-25"})
    client.tool("add", a=1)
    client.close_input()
    _, err = client.process.communicate(timeout=PATIENCE)
    assert b"DEBUG worker main: method=tools/call" in err


def test_it_leaves_no_server_behind(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    stubborn = backend("mcp", "ignore-term", "stay", f"pid-file={pids}", framing="lines",
                       dialect="mcp")  # fmt: skip
    with serve(tmp_path, "2025-11-25", {"stubborn": stubborn}) as client:
        client.tools()
        start = time.monotonic()
        client.close_input()
        assert client.process.wait(PATIENCE) == 0
        assert time.monotonic() - start < 4
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids.read_text()), 0)


def test_a_result_of_the_stateless_era_says_so_once() -> None:
    meta = '"_meta":{"io.modelcontextprotocol/serverInfo":' + json.dumps(INFO).replace(": ", ":")
    meta = meta.replace(", ", ",") + "}"
    assert as_stateless("{}") == f'{{"resultType":"complete",{meta}}}'
    assert as_stateless('{ "a":1.0}') == f'{{"resultType":"complete",{meta}, "a":1.0}}'
    assert as_stateless('{"_meta":{}}') == '{"resultType":"complete","_meta":{}}'
    assert as_stateless('{"resultType":"x"}') == '{"resultType":"x"}'


@pytest.mark.parametrize("words", [["rpc", "--gateway"], ["gateway", "--gateway"], ["--gateway"]])
def test_the_flag_goes_with_mcp_only(words: list[str]) -> None:
    client = Mcp([*SOURCE, *words])
    _, err = client.process.communicate(timeout=PATIENCE)
    assert client.process.returncode == 2
    assert b"--gateway is an option of mcp, " in err
