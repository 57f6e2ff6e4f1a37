"""`duet-rpc mcp`: a call of a tool, its result, its failure, its progress and its end."""

from __future__ import annotations

import json
import time

import pytest
from jsonschema import Draft202012Validator

from tests.machine import wait_until_computing
from tests.mcp_client import EVERY, MODERN, client_end, mcp

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
