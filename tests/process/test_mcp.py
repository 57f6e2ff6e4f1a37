"""`duet-rpc mcp`: the methods as tools, in every version of the protocol."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from duet_rpc import __version__
from duet_rpc.mcp.tools import NAME_MAX, WRAPPED, name_tools
from duet_rpc.methods.method import Method
from tests.machine import wait_until_computing
from tests.support import SOURCE, TOP, Client, daemon

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


# Calling.


@pytest.mark.parametrize("version", EVERY)
@pytest.mark.parametrize(
    ("name", "arguments", "text", "structured"),
    [
        ("add", {"a": 2, "b": 3}, "5", {"result": 5}),
        ("nothing", {}, "null", {"result": None}),
        ("greet", {"name": "Ada"}, None, {"result": "Hello, Ada! \u2028 日本語\nsecond line"}),
        (
            "text.stats",
            {"text": "a bb"},
            '{"words":2,"longest":"bb"}',
            {"words": 2, "longest": "bb"},
        ),
        ("gr__e_of_it", {"box": [1, 2.5]}, "[1,2.5,null]", {"result": [1, 2.5, None]}),
        ("anything", {"value": {"a": 1}}, '{"a":1}', {"a": 1}),
        ("anything", {"value": [1]}, "[1]", {"result": [1]}),
        ("noisy", {}, "quiet", {"result": "quiet"}),
    ],
)
def test_a_result_is_text_and_from_2025_06_on_structured(
    version: str, name: str, arguments: dict[str, object], text: str | None, structured: object
) -> None:
    with mcp(version) as client:
        tool = client.tools()[name]
        result = client.tool(name, **arguments)
    # A text stands as it is, all else as JSON.
    shown = structured["result"] if text is None else text  # type: ignore[index]
    assert result["content"] == [{"type": "text", "text": shown}]
    assert result["isError"] is False
    assert ("structuredContent" in result) == (version >= "2025-06-18")
    if version >= "2025-06-18":
        assert result["structuredContent"] == structured
        if "outputSchema" in tool:
            Draft202012Validator(tool["outputSchema"]).validate(result["structuredContent"])
    assert result.get("resultType") == ("complete" if version == MODERN else None)


def test_no_arguments_are_an_empty_object() -> None:
    with mcp("2025-11-25") as client:
        for given in ({}, {"arguments": None}):
            reply = client.ask("tools/call", {"name": "nothing", **given})
            assert reply["result"]["isError"] is False


@pytest.mark.parametrize("version", EVERY)
@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("add", {"a": "2"}, "a: expected integer, received string"),
        ("add", {}, "a: expected integer, received missing"),
        ("add", {"a": 1, "c": 1}, "c: expected no parameter of this name"),
        ("text.stats", {"text": "", "unit": "pages"}, "one of words, lines, received pages"),
    ],
)
def test_bad_arguments(version: str, name: str, arguments: dict[str, object], words: str) -> None:
    with mcp(version) as client:
        reply = client.ask("tools/call", {"name": name, "arguments": arguments})
    if version >= "2025-11-25":
        assert reply["result"]["isError"] is True
        assert "structuredContent" not in reply["result"]
        assert words in reply["result"]["content"][0]["text"]
    else:
        assert reply["error"]["code"] == -32602
        assert words in reply["error"]["message"]


@pytest.mark.parametrize("version", EVERY)
def test_a_failing_method_is_a_result_that_says_so(version: str) -> None:
    with mcp(version) as client:
        crashed = client.tool("boom", secret="hunter2")  # noqa: S106
        refused = client.tool("refuse")
        lied = client.tool("liar")
        _, log = client_end(client)
    assert crashed["isError"] is refused["isError"] is lied["isError"] is True
    assert crashed["content"][0]["text"] == "boom failed; the log of duet-rpc says where"
    assert refused["content"][0]["text"] == 'Not on a Sunday\n{"day":"Sunday"}'
    assert "structuredContent" not in lied
    assert "tools.py:" in log
    assert "Traceback" not in log


@pytest.mark.parametrize("version", ["2025-06-18", MODERN])
@pytest.mark.parametrize(
    ("name", "arguments", "where"),
    [
        ("forgets", {}, "result"),
        ("wrong_inside", {"kind": "a"}, "a[1]"),
        ("wrong_inside", {"kind": "b"}, "b"),
        ("wrong_inside", {"kind": "c"}, "c[0]"),
        ("wrong_inside", {"kind": "d"}, "d[0]"),
    ],
)
def test_a_result_that_departs_from_its_schema_is_a_failure(
    version: str, name: str, arguments: dict[str, object], where: str
) -> None:
    with mcp(version) as client:
        result = client.tool(name, **arguments)
        _, log = client_end(client)
    assert result["isError"] is True
    assert "structuredContent" not in result
    words = f"{name} returned something else than its signature promises"
    assert result["content"][0]["text"] == f"{words}: {where}"
    assert f"{name}: BadResult: returned by tools.py:" in log
    assert where == "result" or f" {where}: expected" not in log, "a name that is data"


def test_a_result_may_have_more_members_than_its_schema() -> None:
    with mcp(MODERN) as client:
        schema = client.tools()["box"]["outputSchema"]
        for crate in (False, True):
            result = client.tool("box", crate=crate)
            assert result["structuredContent"]["area"] == 0
            Draft202012Validator(schema).validate(result["structuredContent"])
        found = client.tool("wrong_inside", kind="x")["structuredContent"]
        assert found == {"ok": [], "x": [1.0, -3]}


def client_end(client: Mcp) -> tuple[bytes, str]:
    client.close_input()
    out, err = client.process.communicate(timeout=20)
    return out, err.decode()


@pytest.mark.parametrize("version", EVERY)
@pytest.mark.parametrize(
    "params",
    [
        {"name": "version"}, {"name": "reloadMethods"}, {"name": "größe/of it"}, {"name": "no\n"},
        {"name": 5}, {}, {"name": "add", "arguments": [1]}, {"name": "add", "arguments": "a=1"},
    ],
)  # fmt: skip
def test_a_call_of_no_tool_is_an_error(version: str, params: dict[str, object]) -> None:
    with mcp(version) as client:
        assert client.ask("tools/call", params)["error"]["code"] == -32602


@pytest.mark.parametrize("id", ["null", "1.5", "1.0", "1e2", "true", "{}"])
def test_an_id_is_a_string_or_an_integer(id: str) -> None:
    with mcp("2025-11-25") as client:
        client.say(f'{{"jsonrpc":"2.0","id":{id},"method":"ping"}}')
        assert client.receive()["error"]["code"] == -32600
        assert client.ask("ping")["result"] == {}


@pytest.mark.parametrize("id", ["0", "-7", '"a"', '""', "123456789012345678901234567890"])
def test_and_such_a_one_comes_back(id: str) -> None:
    with mcp("2025-11-25") as client:
        client.say(f'{{"jsonrpc":"2.0","id":{id},"method":"ping"}}')
        assert client.receive_raw() == f'{{"jsonrpc":"2.0","id":{id},"result":{{}}}}'.encode()


def test_params_are_an_object() -> None:
    with mcp("2025-11-25") as client:
        for params in ("", ',"params":null', ',"params":[]'):
            client.say(f'{{"jsonrpc":"2.0","id":1,"method":"tools/call"{params}}}')
            assert client.receive()["error"]["code"] == -32602
        client.say('{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[1]}')
        assert client.receive()["error"]["code"] == -32602


# Notifications.


@pytest.mark.parametrize("version", EVERY)
def test_a_cancelled_call_gets_no_reply(version: str) -> None:
    with mcp(version) as client:
        client.tools()
        id = client.post("tools/call", {"name": "forever"})
        waiting = client.post("tools/call", {"name": "forever"})
        wait_until_computing(client.process.pid)
        for each in (waiting, id):
            params = {"requestId": each, "reason": "no time"}
            client.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        assert client.tool("add", a=1)["content"][0]["text"] == "2"


@pytest.mark.parametrize("way", ["returns", "ends late", "fails", "refuses"])
def test_a_cancelled_call_sends_nothing_more(way: str) -> None:
    with mcp("2025-11-25") as client:
        client.tools()
        wanted = {"_meta": {"progressToken": 1}}
        call: dict[str, object] = {"name": "takes_its_time", "arguments": {"way": way}, **wanted}
        id = client.post("tools/call", call)
        json.loads(client.receive_raw())  # the first of its progress
        cancel = {"method": "notifications/cancelled", "params": {"requestId": id}}
        client.say({"jsonrpc": "2.0", **cancel})
        before = time.monotonic()
        last = client.post("ping")
        said = json.loads(client.receive_raw())
        while said.get("method") == "notifications/progress":
            assert time.monotonic() - before < 4, "it goes on to tell of its progress"
            assert said["params"]["progress"] < 1001
            said = json.loads(client.receive_raw())
        assert said["id"] == last


def test_a_method_that_says_it_was_cancelled_gets_a_reply() -> None:
    with mcp("2025-11-25") as client:
        result = client.tool("claims_to_be_cancelled")
    assert result["isError"] is True
    assert result["content"][0]["text"] == "Not today"


@pytest.mark.parametrize("version", EVERY)
def test_progress_rises_and_stops_at_the_reply(version: str) -> None:
    with mcp(version) as client:
        for token in ("t", 7):
            wanted = {"_meta": {"progressToken": token}}
            id = client.post("tools/call", {"name": "steps", "arguments": {"count": 3}, **wanted})
            said = [json.loads(client.receive_raw())]
            while "id" not in said[-1]:
                said.append(json.loads(client.receive_raw()))
            assert said[-1]["id"] == id
            assert {each["method"] for each in said[:-1]} == {"notifications/progress"}
            numbers = [each["params"]["progress"] for each in said[:-1]]
            assert (numbers[0], numbers[-1]) == (0, 2)
            assert numbers == sorted(set(numbers))
            for number, each in zip(numbers, said):
                expected = {"progressToken": token, "progress": number, "total": 3}
                if version >= "2025-03-26":
                    expected["message"] = f"step {number}"
                assert each["params"] == expected


def test_without_a_token_there_is_no_progress() -> None:
    with mcp("2025-11-25") as client:
        assert client.tool("steps", count=3)["structuredContent"] == {"result": 3}


def test_odd_notifications_change_nothing() -> None:
    with mcp("2025-11-25") as client:
        for message in (
            {"method": "notifications/cancelled", "params": {"requestId": 99}},
            {"method": "notifications/cancelled"},
            {"method": "notifications/roots/list_changed"},
            {"method": "tools/call", "params": {"name": "forever"}},
            {"method": "nonsense"},
        ):
            client.say({"jsonrpc": "2.0", **message})
        assert client.ask("ping")["result"] == {}
        _, log = client_end(client)
    assert "method=nonsense Method not found" in log


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
