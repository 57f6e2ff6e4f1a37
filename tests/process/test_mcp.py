"""`duet-rpc mcp`: every version of the protocol, the tools it lists, broken lines, and the end."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from duet_rpc.mcp.tools import NAME_MAX, WRAPPED, name_tools
from duet_rpc.methods.method import Method
from tests.machine import wait_until_computing
from tests.mcp_client import EVERY, HANDSHAKE, INFO, MODERN, TOOLS, client_end, mcp, meta
from tests.support import SOURCE, TOP, daemon

# Which version.


@pytest.mark.parametrize("version", HANDSHAKE)
def test_a_handshake_version_is_echoed(version: str) -> None:
    with mcp() as client:
        reply = client.ask("initialize", {"protocolVersion": version, "capabilities": {}})
        assert reply["result"] == {
            "protocolVersion": version,
            "capabilities": {
                **{each: {"listChanged": True} for each in ("tools", "resources", "prompts")},
                **({"completions": {}} if version >= "2025-03-26" else {}),
                "logging": {},
            },
            "serverInfo": INFO,
        }


@pytest.mark.parametrize("version", ["2026-07-28", "2023-01-01", "", "latest", "2999-01-01"])
def test_any_other_is_answered_with_the_last_that_shakes_hands(version: str) -> None:
    with mcp() as client:
        reply = client.ask("initialize", {"protocolVersion": version})
        assert reply["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize("params", [{}, {"protocolVersion": 5}])
def test_a_handshake_without_a_version_is_refused(params: dict[str, object]) -> None:
    with mcp() as client:
        assert client.ask("initialize", params)["error"]["code"] == -32602
        assert client.ask("tools/list")["error"]["code"] == -32602


@pytest.mark.parametrize("method", ["tools/list", "tools/call", "resources/list", "nonsense"])
def test_before_the_handshake_nothing_is_answered_but_ping(method: str) -> None:
    with mcp() as client:
        assert client.ask(method)["error"]["code"] == -32602
        assert client.ask("ping")["result"] == {}


def test_discover() -> None:
    with mcp(MODERN) as client:
        result = client.ask("server/discover")["result"]
        assert result.pop("_meta") == {"io.modelcontextprotocol/serverInfo": INFO}
        assert result == {
            "resultType": "complete",
            "supportedVersions": [MODERN, *reversed(HANDSHAKE)],
            "capabilities": {
                each: {} for each in ("tools", "resources", "prompts", "completions", "logging")
            },
            "ttlMs": 0,
            "cacheScope": "private",
        }


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        5,
        {},
        {"io.modelcontextprotocol/clientCapabilities": {}},
        {"io.modelcontextprotocol/protocolVersion": MODERN},
        meta(version=20260728),
        {**meta(), "io.modelcontextprotocol/clientCapabilities": None},
    ],
)
@pytest.mark.parametrize("method", ["server/discover", "tools/list"])
def test_a_stateless_request_says_version_and_capabilities(method: str, wrong: object) -> None:
    with mcp() as client:
        assert client.ask(method, {"_meta": wrong})["error"]["code"] == -32602


@pytest.mark.parametrize("version", ["2027-01-01", "2025-11-25", "", "x" * 1000])
def test_an_unsupported_version_is_told_what_there_is(version: str) -> None:
    with mcp() as client:
        error = client.ask("server/discover", {"_meta": meta(version)})["error"]
        assert error["code"] == -32022
        assert error["data"] == {
            "supported": [MODERN, *reversed(HANDSHAKE)],
            "requested": version[:80],
        }


def test_a_stateless_request_needs_no_state_and_leaves_none() -> None:
    with mcp() as client:
        assert "result" in client.ask("tools/list", {"_meta": meta()})
        assert client.ask("tools/list")["error"]["code"] == -32602
        client.ask("initialize", {"protocolVersion": "2025-06-18"})
        assert "resultType" not in client.ask("tools/list")["result"]
        assert client.ask("tools/list", {"_meta": meta()})["result"]["resultType"] == "complete"


def test_what_the_stateless_version_has_no_more() -> None:
    with mcp(MODERN) as client:
        assert client.ask("ping")["error"]["code"] == -32601
        assert client.ask("logging/setLevel", {"level": "info"})["error"]["code"] == -32601


@pytest.mark.parametrize("version", EVERY)
@pytest.mark.parametrize("method", ["resources/subscribe", "version", "shutdown"])
def test_an_unknown_method_is_not_found(version: str, method: str) -> None:
    with mcp(version) as client:
        assert client.ask(method)["error"]["code"] == -32601


def test_the_stateless_version_has_no_handshake() -> None:
    with mcp(MODERN) as client:
        assert client.ask("initialize")["error"]["code"] == -32601
        # But a client that puts its `_meta` on all it sends may still shake hands.
        said = client.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}})
        assert said["result"]["protocolVersion"] == "2025-06-18"


# Listing.


@pytest.mark.parametrize("version", EVERY)
def test_the_list_has_the_users_methods_in_their_order(version: str) -> None:
    with mcp(version) as client:
        names = list(client.tools())
        assert names == list(client.tools())
    assert names == [
        "text.stats", "add", "greet", "nothing", "gr__e_of_it", "anything", "liar", "boom",
        "refuse", "steps", "forever", "noisy", "takes_its_time", "claims_to_be_cancelled", "box",
        "wrong_inside", "forgets",
    ]  # fmt: skip


@pytest.mark.parametrize("version", EVERY)
def test_a_tool_is_described_in_the_words_of_the_version(version: str) -> None:
    with mcp(version) as client:
        tools = client.tools()
    stats = tools["text.stats"]
    assert stats["description"] == "Count the words of a text.\n\nAnd find the longest one."
    assert stats["inputSchema"] == {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "unit": {"type": "string", "enum": ["words", "lines"], "default": "words"},
        },
        "required": ["text"],
        "additionalProperties": False,
    }
    assert ("title" in stats) == (version >= "2025-06-18")
    assert ("outputSchema" in stats) == (version >= "2025-06-18")
    assert ("annotations" in stats) == (version >= "2025-03-26")
    if version >= "2025-03-26":
        assert stats["annotations"] == {
            "title": "Statistics of a text",
            "readOnlyHint": True,
            "openWorldHint": False,
        }
        assert tools["add"]["annotations"] == {"destructiveHint": False}
    assert "annotations" not in tools["greet"]
    assert "title" not in tools["greet"]
    assert tools["nothing"]["inputSchema"] == {"type": "object", "additionalProperties": False}
    for tool in tools.values():
        Draft202012Validator.check_schema(tool["inputSchema"])
        if "outputSchema" in tool:
            Draft202012Validator.check_schema(tool["outputSchema"])
            assert tool["outputSchema"]["type"] == "object"
    if version >= "2025-06-18":  # FastMCP's client looks whether it has to unwrap a result
        wrapped = {each for each in tools if tools[each].get("outputSchema", {}).get(WRAPPED)}
        assert {"add", "greet", "nothing", "gr__e_of_it"} <= wrapped
        assert not {"text.stats", "box"} & wrapped
    assert tools["gr__e_of_it"]["inputSchema"]["properties"]["box"]["prefixItems"] == [
        {"type": "integer"},
        {"type": "number"},
    ]


@pytest.mark.parametrize("version", EVERY)
def test_a_tool_has_a_description_and_what_is_required_first(version: str, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "from duet_rpc import command, method\n"
        "@method\ndef countWords(a: int = 1, *, z: int, b: int = 2, c: str): ...\n"
        "@command\ndef tidy_up(): ' '\n"
        "@method('été')\ndef f(): ...\n"
    )
    with mcp(version, [*SOURCE], "--methods", "system", "--methods", str(file)) as client:
        tools = client.tools()
    assert all(tool["description"].strip() for tool in tools.values())
    assert tools["countWords"]["description"] == "Count words"
    assert tools["tidy_up"]["description"] == "Tidy up"
    schema = tools["countWords"]["inputSchema"]
    assert schema["required"] == ["z", "c"]
    assert [*schema["properties"]] == ["z", "c", "a", "b"]
    assert tools["system.echo"]["inputSchema"]["required"] == ["message"]


def test_a_stateless_list_says_how_long_it_is_valid() -> None:
    with mcp(MODERN) as client:
        result = client.ask("tools/list")["result"]
    assert (result["ttlMs"], result["cacheScope"], result["resultType"]) == (
        0,
        "private",
        "complete",
    )
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"] == INFO


def test_a_cursor_that_we_never_gave_is_refused() -> None:
    with mcp("2025-11-25") as client:
        assert client.ask("tools/list", {"cursor": "x"})["error"]["code"] == -32602
        assert "result" in client.ask("tools/list", {"cursor": None})


def test_names_are_allowed_and_never_the_same() -> None:
    names = ["a b", "a_b", "a/b", "a_b_2", "", "_", "é" * 200, "x" * 128, "x" * 129, "ok.name-1"]
    tools = name_tools(Method(name, "", print, returns={}) for name in names)
    assert len(tools) == len(names)
    assert [method.name for method in tools.values()] == names
    allowed = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
    for tool, method in tools.items():
        assert 1 <= len(tool) <= NAME_MAX
        assert set(tool) <= allowed
        if method.name and len(method.name) <= NAME_MAX and set(method.name) <= allowed:
            assert tool == method.name


# Batches, the line, the end.


@pytest.mark.parametrize("version", EVERY)
def test_a_batch_is_taken_in_2025_03_alone(version: str) -> None:
    with mcp(version) as client:
        calls = [
            {"jsonrpc": "2.0", "id": 1, "method": "ping"},
            {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"},
            {"jsonrpc": "2.0", "id": 2, "method": "nonsense"},
        ]
        client.say(calls)
        reply = json.loads(client.receive_raw())
        if version == "2025-03-26":
            assert [each["id"] for each in reply] == [1, 2]
        else:
            assert reply["error"]["data"]["reason"] == "batch-not-supported"


def test_batch_allows_arrays_in_every_version() -> None:
    with daemon([*SOURCE, "mcp", "--batch", "--methods", TOOLS], framing="lines") as client:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
        first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        client.send(json.dumps(first).encode() + b"\n" + json.dumps([ping, ping]).encode() + b"\n")
        assert client.receive()["id"] == 1
        assert [each["id"] for each in json.loads(client.receive_raw())] == [2, 2]


@pytest.mark.parametrize(
    "broken", ["{", "nonsense", '{"id":3}', "[1]", '{"jsonrpc":"2.0","id":1,"method":5}']
)
def test_a_broken_line_costs_one_error(broken: str) -> None:
    with mcp("2025-11-25") as client:
        client.say(broken)
        assert "error" in client.receive()
        assert client.ask("ping")["result"] == {}


def test_nothing_but_messages_is_on_stdout_and_little_on_stderr() -> None:
    with mcp("2025-11-25") as client:
        client.tools()
        client.tool("noisy")
        out, err = client_end(client)
        assert client.process.returncode == 0
    assert out == b""
    lines = err.splitlines()
    assert [each[-5:] for each in lines].count("noise") == 1
    assert len(lines) == 3


@pytest.mark.parametrize("state", ["idle", "busy"])
@pytest.mark.parametrize("end", ["eof", signal.SIGTERM, signal.SIGINT])
def test_it_leaves_within_two_seconds(state: str, end: str | signal.Signals) -> None:
    with mcp("2025-11-25") as client:
        client.tools()
        if state == "busy":
            client.post("tools/call", {"name": "forever"})
            wait_until_computing(client.process.pid)
        if isinstance(end, signal.Signals):
            client.signal(end)
        else:
            client.close_input()
        code, seconds = client.wait()
    assert code == 0
    assert seconds < 4


def test_the_pyz_has_it_too() -> None:
    with mcp(MODERN, [sys.executable, TOP / "dist" / "duet-rpc.pyz"]) as client:
        assert client.tool("add", a=41)["structuredContent"] == {"result": 42}


def test_mcp_has_one_framing() -> None:
    with daemon([*SOURCE, "mcp", "--framing", "lines"]) as client:
        assert client.wait()[0] == 2
