"""The gateway's eight rules, each with real processes on both sides.

The fifth, back-pressure, is in test_gateway_flow.py.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from duet_rpc.jsonrpc.framing import FRAMINGS
from tests.gateway import SHORT_TIMES, backend, gateway, mcp_server, patience_for_depth
from tests.hostile import AT_END, GOOD, ROWS, Answer, Row, check
from tests.machine import wait_for_loguru
from tests.support import PATIENCE, TOP, frame, notification, request, shortest
from tests.terminal import is_alive, is_gone

MCP = {"dialect": "mcp", "framing": "lines"}


def mcp(*habits: str, **keys: object) -> dict[str, object]:
    return backend("mcp", *habits, framing="lines", dialect="mcp", **keys)


def logged(path: Path) -> str:
    return (path / "log").read_text()


# The six methods, and what is not there.


def test_the_six_methods_answer_in_the_gateway(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        assert set(client.call("version")) == {"version"}
        assert client.call("initialize")["protocolVersion"] == "2.0"
        names = [each["name"] for each in client.call("listMethods")]
        assert names[:6] == ["initialize", "listMethods", "describeMethods", "version",
                             "setLogLevel", "shutdown"]  # fmt: skip
        assert "gateway/status" in names
        assert client.call("setLogLevel", ["debug"])["success"] is True
        found = [each["name"] for each in client.call("rpc.discover")["methods"]]
        assert found == names
        assert [each["name"] for each in client.call("describeMethods")] == names
        client.send(request(5, "shutdown") + request(6))
        assert client.receive()["result"] == {"message": "Shutting down gracefully"}
        code, replies, _ = client.finish()
        assert (code, replies) == (0, [])
        assert not client.notes, "a lazy backend was started"


@pytest.mark.parametrize("method", ["listMethods", "describeMethods", "rpc.discover"])
def test_a_list_takes_no_params(tmp_path: Path, method: str) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        for params in ([1], {"x": 1}):
            error = client.ask(method, params)["error"]
            assert error["code"] == -32602
            assert set(error["data"]) >= {"param", "expected", "received"}
        whole = client.ask(method)["result"]
        for nothing in ("[]", "{}", "null", '{"_meta": {"client": {}}}'):
            assert client.ask(method, json.loads(nothing))["result"] == whole
        client.send(request(2, "a/hold") + request(2, method, [1]))
        assert client.receive()["error"]["code"] == -32600, "its id is in flight"


@pytest.mark.parametrize(
    ("method", "code"),
    [
        ("nonsense", -32601), ("b/id", -32601), ("a/", -32601), ("a", -32601), ("a__id", -32601),
        ("gateway/nonsense", -32601), ("tools/call", -32602),
    ],
)  # fmt: skip
def test_what_is_not_there_is_said_not_to_be_there(tmp_path: Path, method: str, code: int) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        assert client.ask(method)["error"]["code"] == code
        client.send(notification(method))
        assert "result" in client.ask("version")


def test_an_error_of_a_backend_comes_with_its_own_words(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        error = {"code": -32601, "message": "Method not found", "data": "nonsense"}
        assert client.ask("a/nonsense")["error"] == error, "without a further member"


@pytest.mark.parametrize("framing", FRAMINGS)
def test_params_and_results_are_forwarded_unchanged(tmp_path: Path, framing: str) -> None:
    params = '{"a":1.0, "b":123456789012345678901234567890.10,"c":"\\ud800 \\u2028é","d":1e400}'
    with gateway(tmp_path, {"a": backend(framing=framing)}) as client:
        head = '{"method":"a\\/echo", "id" : 1e2,"params":'
        client.send(frame(head + params + ',"jsonrpc":"2.0"}'))
        while True:
            body = client.receive_raw().decode()
            if '"method"' not in body:
                break
        assert body == '{"jsonrpc":"2.0","id":1e2,"result":' + params + "}"
        pretty = '{\n "jsonrpc": "2.0",\r\n "id": 2, "method": "a/echo",\n "params": [\n1,\n"\\n"]}'
        client.send(frame(pretty))
        assert client.receive()["result"] == [1, "\n"]
        client.send(frame('{"jsonrpc":"2.0","id":3,"method":"a/big","params":[3000000]}'))
        assert client.receive()["result"] == "x" * 3000000


def test_a_broken_frame_of_the_client_costs_one_error(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        client.send(frame("{nonsense") + frame("[]") + frame('{"id":7,"jsonrpc":"2.0"}'))
        errors = [client.receive() for _ in range(3)]
        assert [each["error"]["code"] for each in errors] == [-32700, -32600, -32600]
        assert errors[2]["id"] == 7
        assert client.ask("a/id")["result"] == 1


def test_hostile_input_is_answered_as_by_the_daemon(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        for row in ROWS:
            expected = [*row.expected, Answer("good")]
            replies = client.exchange(row.data + GOOD, len(expected))
            check([Row(row.name, b"", expected)], replies)
    assert "Traceback" not in logged(tmp_path)


ELSEWHERE = """
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_gateway_whose_files_are_deleted_goes_on(tmp_path: Path) -> None:
    files = tmp_path / "files"
    shutil.copytree(TOP / "duet_rpc", files / "duet_rpc")
    program = [sys.executable, "-c", ELSEWHERE, str(files), *SHORT_TIMES[1:]]
    backends = {framing: backend(framing=framing) for framing in FRAMINGS}
    with gateway(tmp_path, {**backends, "m": mcp()}, program=program) as client:
        client.ask("version")
        time.sleep(1)  # nothing is asked: a moment to put its house in order
        shutil.rmtree(files)
        for name in (*backends, "m"):
            assert client.ask(f"{name}/pid")["result"] > 0
            assert client.ask(f"{name}/reply", ['{"id":ID,"result":[}'])["error"]["data"]
        client.send(frame("[" + "1," * 1_000_000 + "}"))
        assert client.receive()["error"]["code"] == -32700
        for row in ROWS:
            expected = [*row.expected, Answer("good")]
            replies = client.exchange(row.data + GOOD, len(expected))
            check([Row(row.name, b"", expected)], replies)
        assert client.ask("tools/list")["result"]["tools"]
        assert client.ask("rpc.discover")["result"]["openrpc"]
    assert "internal error" not in logged(tmp_path)


@pytest.mark.parametrize("row", AT_END, ids=lambda row: row.name)
def test_the_end_of_input_is_answered_as_by_the_daemon(tmp_path: Path, row: Row) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        client.send(row.data)
        code, replies, _ = client.finish()
        check([row], replies)
        assert code == 0


def test_a_frame_that_does_not_become_whole_is_dropped(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}, times={"read": 0.2}) as client:
        client.ask("a/pid")
        client.send(request(1)[:-3])
        time.sleep(0.5)
        assert client.ask("version", id=2)["result"]
        client.send(request(9, "a/raw", ["Content-Length: 999\r\n\r\n{"]))
        client.ask("version", id=3)
        time.sleep(0.5)
        assert client.ask("a/id", id=4)["result"] > 0, "the same holds for a backend"
    assert logged(tmp_path).count("discarded a frame that was not complete") == 2


DEEP = range(940, 1000)
"""Of arrays in arrays; among these are some that can be read once and not a second time."""


def test_what_is_nested_too_deeply_costs_one_error(tmp_path: Path) -> None:
    backends = {"a": backend("never-read"), "m": mcp("never-read")}
    codes = []
    with gateway(tmp_path, backends) as client:
        for depth in DEEP:
            deep = "[" * depth + "]" * depth
            for method, params in (
                ("$/cancelRequest", f'{{"id":2,"x":{deep}}}'),
                ("$/progress", f'{{"token":2,"x":{deep}}}'),
                ("a/x", f'{{"_meta":{{"progressToken":1}},"x":{deep}}}'),
                ("tools/call", f'{{"name":"m__x","x":{deep}}}'),
                ("m__x", f'{{"x":{deep},"_meta":{{"progressToken":1}}}}'),
            ):
                id = "" if method.startswith("$") else '"id":1,'
                client.send(frame(f'{{"jsonrpc":"2.0",{id}"method":"{method}","params":{params}}}'))
                if id:
                    client.send(notification("$/cancelRequest", {"id": 1}))
                    reply = client.receive()
                    while reply["id"] is None:  # of what has no id
                        assert reply["error"]["code"] == -32700
                        reply = client.receive()
                    codes.append(reply["error"]["code"])
        assert client.status()["pending"] == 0
    assert set(codes) <= {-32800, -32700}, "it is taken, or refused"
    assert codes[0] == -32800


def test_what_a_backend_nests_too_deeply_costs_one_error(tmp_path: Path) -> None:
    backends = {"a": backend(), "m": mcp("deeper=940")}
    with patience_for_depth(), gateway(tmp_path, backends) as client:
        for depth in DEEP:
            deep = "[" * depth + "]" * depth
            error = f'{{"code":1,"message":"x","more":1,"data":{deep}}}'
            text = f'{{"jsonrpc":"2.0","id":ID,"error":{error}}}'
            assert client.ask("a/reply", [text])["error"]["code"] in (1, -32603)
            for head in ('"id":"q","method":"x"', '"method":"$/progress"'):
                params = f'{{"_meta":{{"progressToken":1}},"token":1,"x":{deep}}}'
                text = f'{{"jsonrpc":"2.0",{head},"params":{params}}}'
                client.send(request("r", "a/reply", [text]))
                client.ask("a/held", id=2)
                client.send(notification("$/cancelRequest", {"id": "r"}))
                assert client.receive()["id"] == "r"
            for each in client.notes:
                if each["method"] == "a/x":
                    client.send(frame({"jsonrpc": "2.0", "id": each["id"], "result": 0}))
            assert client.ask("rpc.discover")["result"]["openrpc"]
            client.notes.clear()
        assert client.status()["pending"] == 0
        answers = client.ask("a/seen")["result"]
    assert len([each for each in answers if each.get("id") == "q"]) == len(DEEP)


# A gateway with a fault of its own.
FAULTY = """
import runpy, sys
from duet_rpc.gateway.backend import Backend
from duet_rpc.gateway.client_requests import ClientRequests
from duet_rpc.gateway.pending import Call
Call.__repr__ = lambda call: call.method
def break_at(owner, name, word):
    def replaced(*arguments, function=getattr(owner, name)):
        if word in str(arguments):
            raise ZeroDivisionError
        return function(*arguments)
    setattr(owner, name, replaced)
break_at(Backend, "request", "fault 1")
break_at(ClientRequests, "finish", "fault 2")
break_at(Backend, "reply", "fault 3")
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_an_internal_fault_costs_only_its_own_message(tmp_path: Path) -> None:
    program = [sys.executable, "-c", FAULTY, *SHORT_TIMES[1:]]
    with gateway(tmp_path, {"a": backend()}, program=program) as client:
        client.send(request("held", "a/hold"))
        for _ in range(2):
            error = client.ask("a/fault 1", id=1)["error"]
            assert error == {"code": -32603, "message": "Internal error"}
        error = client.ask("a/echo", ["fault 2"], id=2)["error"]
        assert (error["code"], error["data"]["reason"]) == (-32603, "bad-reply")
        client.send(request("r", "a/ask", {"id": 1, "method": "x"}))
        asked = client.note("a/x")
        client.send(frame({"jsonrpc": "2.0", "id": asked["id"], "result": "fault 3"}))
        client.send(request(3, "a/release"))
        assert set(client.replies(2)) == {"held", 3}
        client.send(notification("$/cancelRequest", {"id": "r"}))
        assert client.receive()["id"] == "r"
        assert client.status()["pending"] == 0
    assert logged(tmp_path).count("internal error: ZeroDivisionError") == 4


# Rule 1: ids.


def test_backends_see_fresh_integers_and_clients_their_own_ids(tmp_path: Path) -> None:
    ids = ["1", '"1"', "1.0", "-0", "1e400", "null", '"\\ud800"', "123456789012345678901234567890"]
    with gateway(tmp_path, {"a": backend(), "b": backend(framing="lines")}) as client:
        for number, id in enumerate(ids):
            name = "ab"[number % 2]
            client.send(frame(f'{{"jsonrpc":"2.0","id":{id},"method":"{name}/hold"}}'))
        client.send(request("r", "a/release") + request("s", "b/release"))
        found: dict[str, object] = {}
        while len(found) < len(ids) + 2:
            body = client.receive_raw().decode()
            if '"result"' in body:
                id, result = body.removeprefix('{"jsonrpc":"2.0","id":')[:-1].split(',"result":')
                found[id] = result if "released" in result else int(result)
        assert {*ids, '"r"', '"s"'} == set(found)
        seen = sorted(each for each in found.values() if isinstance(each, int))
        assert seen == list(range(1, len(ids) + 1))
        assert client.status()["pending"] == 0


def test_a_second_request_with_an_id_in_flight_is_refused(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend(), "b": backend()}) as client:
        client.send(request(1, "a/hold") + request(1, "b/id"))
        error = client.receive()["error"]
        assert (error["code"], "in flight" in error["message"]) == (-32600, True)
        assert client.ask("a/held", id=2)["result"] == [1], "the first is kept"
        client.send(request(3, "a/release"))
        assert set(client.replies(2)) == {1, 3}
        assert client.ask("b/pid", id=1)["result"] > 0


def test_that_holds_for_whatever_answers_the_second(tmp_path: Path) -> None:
    none = {"command": ["/no/such/program"]}
    with gateway(tmp_path, {"a": backend(), "m": mcp(), "none": none}) as client:
        client.ask("m/pid")
        client.ask("none/x")
        client.send(request(5, "a/hold"))
        for method in (
            "version", "gateway/status", "nonsense", "tools/list", "tools/call", "m__tool0",
            "m/initialize", "m/ping", "none/x", "shutdown",
        ):  # fmt: skip
            error = client.ask(method, id=5)["error"]
            assert (error["code"], "in flight" in error["message"]) == (-32600, True), method
        client.send(request(6, "a/release"))
        assert "result" in client.replies(2)[5], "the first is kept"
        assert client.status()["pending"] == 0


def test_ten_backends_and_a_thousand_requests_in_flight(tmp_path: Path) -> None:
    names = [f"b{number}" for number in range(10)]
    backends = {name: backend(framing=[*FRAMINGS][at % 3]) for at, name in enumerate(names)}
    numbers = list(range(1000))
    random.Random(1).shuffle(numbers)  # noqa: S311
    with gateway(tmp_path, backends) as client:
        client.send(b"".join(request(each, f"b{each % 10}/hold") for each in numbers))
        assert client.status()["pending"] == 1000
        client.send(b"".join(request(name, f"{name}/release") for name in names))
        replies = client.replies(1010)
        assert set(replies) == {*numbers, *names}
        assert all("result" in reply for reply in replies.values())
        assert client.status()["pending"] == 0


@pytest.mark.parametrize("method", ["twice", "reply"])
def test_an_answer_for_nobody_and_a_second_one_are_dropped(tmp_path: Path, method: str) -> None:
    with gateway(tmp_path, {"a": backend(), "b": backend()}) as client:
        client.send(request("held", "b/hold"))
        if method == "reply":  # the id that the other backend has in flight
            client.ask("b/held")
            client.send(request(9, "a/reply", ['{"jsonrpc":"2.0","id":1,"result":"stolen"}']))
        assert client.ask("a/twice", id=2)["result"] == 1
        assert client.ask("a/pid", id=3)["result"] > 0
        client.send(request(4, "b/release"))
        assert set(client.replies(2)) == {"held", 4}


def test_an_id_of_thousands_of_digits_is_nobodys(tmp_path: Path) -> None:
    head = '{"jsonrpc":"2.0","id":' + "1" * 5000
    with gateway(tmp_path, {"a": backend(), "b": backend()}) as client:
        client.ask("b/pid")
        client.send(frame(head + ',"result":1}'))
        for number, rest in enumerate((',"result":1}', ',"result":1,"x":}', ',"result":NaN}')):
            client.send(request(f"r{number}", "a/reply", [head + rest]))
            assert client.ask("a/held", id=1)["result"] == []
        assert client.ask("b/pid", id=2)["result"] > 0
        assert client.status()["pending"] == 3
    assert "dropped a reply to no request of ours" in logged(tmp_path)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ('{"jsonrpc":"2.0","id":ID,"result":NaN}', "NaN is not JSON"),
        ('{"jsonrpc":"2.0","id":ID,"result":[}', "no JSON value"),
        ('{"jsonrpc":"2.0","id":ID,"error":"text"}', "error must be an object"),
        ('{"jsonrpc":"2.0","id":ID,"error":{"code":"1","message":"x"}}', "an integer for its code"),
        ('{"jsonrpc":"2.0","id":ID,"result":1,"error":{"code":1,"message":"x"}}', "not both"),
        ('{"jsonrpc":"2.0","id":ID,"result":1,"error":null}', "not both"),
        ('{"jsonrpc":"1.0","id":ID,"result":1}', 'jsonrpc must be "2.0"'),
        ('{"jsonrpc":2.0,"id":ID,"result":1}', 'jsonrpc must be "2.0"'),
        ('{"id":ID,"result":1}', 'jsonrpc must be "2.0"'),
        ('{"id":ID,"error":{"code":1,"message":"x"}}', 'jsonrpc must be "2.0"'),
        ('{"jsonrpc":"2.0","id":ID}', "method must be a string"),
    ],
)
def test_an_invalid_reply_is_an_error_at_once(tmp_path: Path, reply: str, reason: str) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        error = client.ask("a/reply", [reply])["error"]
        assert error["code"] == -32603
        assert "backend a sent an invalid reply: " in error["message"]
        assert reason in error["message"]
        assert error["data"] == {"backend": "a", "reason": "bad-reply"}
        assert client.status()["pending"] == 0
        assert client.ask("a/id", id=2)["result"] == 2, "and it goes on"


@pytest.mark.parametrize("inside", ['"method":"GET",', '"a":"\\"","params":[],"method":1,'])
def test_a_broken_reply_with_a_method_is_not_a_request(tmp_path: Path, inside: str) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        broken = f'{{"jsonrpc":"2.0","id":ID,"result":{{{inside}"x":NaN}}}}'
        assert client.ask("a/reply", [broken])["error"]["data"]["reason"] == "bad-reply"
        assert client.ask("a/seen")["result"] == []


def test_an_answer_that_is_too_large_is_an_error(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        error = client.ask("a/big", [11 * 1024 * 1024])["error"]
        assert error["data"]["reason"] == "bad-reply"
        assert client.ask("a/id", id=2)["result"] == 2


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("size", [11, 20])
def test_it_ends_the_request_it_answers_and_no_other(
    tmp_path: Path, framing: str, size: int
) -> None:
    with gateway(tmp_path, {"a": backend(framing=framing)}) as client:
        client.send(request("first", "a/hold") + request("second", "a/hold"))
        reply = client.ask("a/big", [size * 1024 * 1024], id="big")
        assert reply["error"]["data"]["reason"] == "bad-reply"
        assert client.ask("a/held", id=2)["result"] == [1, 2]
        client.send(request("third", "a/release"))
        assert client.replies(3).keys() == {"first", "second", "third"}


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize(
    "head",
    [
        '"method":"log","params":"', '"params":"', '"id":"q","method":"log","params":"',
        '"id":987654,"result":"',
    ],
)  # fmt: skip
def test_an_oversized_message_without_an_id_ends_no_request(
    tmp_path: Path, framing: str, head: str
) -> None:
    with gateway(tmp_path, {"a": backend(framing=framing)}) as client:
        client.ask("a/too-large", [f'{{"jsonrpc":"2.0",{head}'], id=1)
        assert client.ask("a/too-large", [f'{{"jsonrpc":"2.0",{head}'], id=2)["result"] == "done"
        refused = [each["error"]["code"] for each in client.ask("a/seen")["result"]]
        assert refused == ([-32600] * 2 if '"q"' in head else [])


# Rule 2: backends ask.


def test_backends_with_the_same_id_get_their_own_answers(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend(), "b": backend(framing="lines")}) as client:
        ask = {"id": 1, "method": "window/show", "params": {"x": 1.0}}
        client.send(request("a", "a/ask", ask) + request("b", "b/ask", ask))
        to_a, to_b = client.note("a/window/show"), client.note("b/window/show")
        assert to_a["params"] == {"x": 1.0}
        assert to_a["id"] != to_b["id"]
        client.send(
            frame({"jsonrpc": "2.0", "id": to_b["id"], "error": {"code": 5, "message": "b"}})
        )
        client.send(frame({"jsonrpc": "2.0", "id": to_a["id"], "result": "for a"}))
        replies = client.replies(2)
        assert replies["a"]["result"] == {"jsonrpc": "2.0", "id": 1, "result": "for a"}
        assert replies["b"]["result"]["id"] == 1
        assert replies["b"]["result"]["error"] == {"code": 5, "message": "b"}
        client.send(frame({"jsonrpc": "2.0", "id": to_a["id"], "result": "once more"}))
        assert client.status()["pending"] == 0


@pytest.mark.parametrize(
    "rest",
    [
        '"jsonrpc":"2.0","result":1,"error":{"code":1,"message":"x"}', '"jsonrpc":"1.0","result":1',
        '"result":1', '"jsonrpc":"2.0","error":{"code":1}', '"jsonrpc":"2.0","result":NaN',
    ],
)  # fmt: skip
def test_an_invalid_reply_of_the_client_fails_the_request(tmp_path: Path, rest: str) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        client.send(request("r", "a/ask", {"id": "q", "method": "x"}))
        client.send(frame(f'{{"id":{client.note("a/x")["id"]},{rest}}}'))
        reply = client.receive()
        assert reply["id"] == "r", "the first message, for an error would name an id of ours"
        assert (reply["result"]["id"], reply["result"]["error"]["code"]) == ("q", -32603)
        assert client.status()["pending"] == 0


def test_where_the_client_never_answers_the_gateway_does(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend(timeout=0.3)}) as client:
        client.send(notification("a/ask", {"id": "q", "method": "x"}))
        asked = client.note("a/x")
        while client.status()["pending"]:
            time.sleep(0.05)
        (answer,) = client.ask("a/seen")["result"]
        assert (answer["id"], answer["error"]["code"]) == ("q", -32803)
        client.send(frame({"jsonrpc": "2.0", "id": asked["id"], "result": "too late"}))
        assert len(client.ask("a/seen")["result"]) == 1


def test_each_backend_is_answered_within_its_own_time(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend(), "b": backend(timeout=0.3)}) as client:
        for name in "ab":
            client.send(notification(f"{name}/ask", {"id": "q", "method": "x"}))
            client.note(f"{name}/x")
        until = time.monotonic() + PATIENCE
        while client.status()["pending"] > 1 and time.monotonic() < until:
            time.sleep(0.05)
        (answer,) = client.ask("b/seen")["result"]
        assert (answer["id"], answer["error"]["code"]) == ("q", -32803)
        assert client.ask("a/seen")["result"] == []


def test_a_backend_cannot_reuse_an_id_in_flight(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        twice = {"jsonrpc": "2.0", "id": 1, "method": "second"}
        client.send(request(1, "a/ask", {"id": 1, "method": "first", "after": [twice]}))
        assert client.receive()["result"]["error"]["code"] == -32600
        assert client.note("a/first")
        assert not [each for each in client.notes if each["method"] == "a/second"]


def test_a_notification_of_a_backend_carries_its_name(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        client.ask("a/flood", {"count": 2})
        assert client.note("a/flood")["params"]["number"] == 0
        assert client.note("a/flood")["params"]["number"] == 1
        client.send(notification("a/hello", {"x": 1.5}))
        hello = {"jsonrpc": "2.0", "method": "hello", "params": {"x": 1.5}}
        assert client.ask("a/seen")["result"] == [hello]


# Rule 3: cancel and progress.


@pytest.mark.parametrize("id", [5, "5", 5.5, "\ud800"])
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("kind", ["plain", "mcp"])
def test_a_cancel_reaches_the_backend_in_its_dialect(
    tmp_path: Path, id: object, direct: bool, kind: str
) -> None:
    with gateway(tmp_path, {"a": mcp() if kind == "mcp" else backend()}) as client:
        client.ask("a/pid")
        client.send(request(id, "a/hold"))
        held = client.ask("a/held")["result"]
        cancel = notification("$/cancelRequest", {"id": id})
        if direct and kind == "mcp":
            cancel = notification("a/notifications/cancelled", {"requestId": id})
        elif direct:
            cancel = notification("a/$/cancelRequest", {"id": id})
        client.send(notification("$/cancelRequest", {"id": "another"}) + cancel + cancel)
        reply = client.receive()
        assert (reply["id"], reply["error"]["code"]) == (id, -32800)
        seen = [each for each in client.ask("a/seen")["result"] if "ancel" in each["method"]]
        key = "requestId" if kind == "mcp" else "id"
        assert [each["params"] for each in seen] == [{key: held[0]}]
        assert client.ask("a/release", id=2)["result"] == "released", "the late answer is dropped"
        assert client.status()["pending"] == 0


def test_a_cancel_of_what_still_waits_for_the_handshake(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": mcp("slow-handshake=0.5")}) as client:
        client.send(request(1, "a/hold") + request(2, "a/held"))
        client.send(notification("$/cancelRequest", {"id": 1}))
        replies = client.replies(2)
        assert replies[1]["error"]["code"] == -32800
        assert replies[2]["result"] == [], "it was never sent"
        seen = [each["method"] for each in client.ask("a/seen")["result"]]
        assert seen == ["notifications/initialized"]


def test_a_backend_cancels_what_it_asked(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        cancel = {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": "q"}}
        client.send(request(1, "a/ask", {"id": "q", "method": "x", "after": [cancel]}))
        answer = client.receive()["result"]
        assert (answer["id"], answer["error"]["code"]) == ("q", -32800)
        asked = client.note("a/x")
        assert client.note("$/cancelRequest")["params"] == {"id": asked["id"]}
        assert client.status()["pending"] == 0


@pytest.mark.parametrize("token", [1, "1", 1.5, "duet-rpc-1-0"])
@pytest.mark.parametrize("kind", ["plain", "lsp", "mcp"])
def test_progress_comes_with_the_clients_token(tmp_path: Path, token: object, kind: str) -> None:
    backends = {"plain": backend(), "lsp": backend(dialect="lsp"), "mcp": mcp()}
    with gateway(tmp_path, {"a": backends[kind]}) as client:
        params: dict[str, Any] = {"_meta": {"x": 1, "progressToken": token}}
        if kind == "lsp":
            params["partialResultToken"] = "second"
        theirs = client.ask("a/progress", params)["result"]
        assert len(theirs) == len(params)
        assert all(isinstance(each, str) for each in theirs)
        notes = [each["params"] for each in client.notes if each["method"] == "$/progress"]
        value: Any = {"done": 1.0}
        if kind == "mcp":
            value = {"done": 1, "total": None, "message": "m"}
        expected = [{"token": token, "value": value}]
        if kind == "lsp":
            expected.insert(0, {"token": "second", "value": value})
        assert notes == expected
        assert client.note("a/$/progress")["params"] == {"token": "my own", "value": 2}


def test_progress_that_comes_after_the_answer_is_dropped(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        client.ask("a/progress-too-late", {"_meta": {"progressToken": 1}})
        client.ask("a/pid")
        assert not [each for each in client.notes if "progress" in each["method"]]


def test_progress_of_the_client_comes_with_the_backends_token(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend(), "m": mcp()}) as client:
        ask = {"id": 1, "method": "x", "params": {"_meta": {"progressToken": 7}}}
        for name in "am":
            client.send(request(name, f"{name}/ask", ask))
            asked = client.note(f"{name}/x")
            token = asked["params"]["_meta"]["progressToken"]
            client.send(notification("$/progress", {"token": token, "value": {"done": 1.0}}))
            client.send(frame({"jsonrpc": "2.0", "id": asked["id"], "result": 0}))
            assert client.receive()["id"] == name
            client.send(notification("$/progress", {"token": token, "value": 2}))  # too late
            seen = client.ask(f"{name}/seen")["result"]
            progress = [each["params"] for each in seen if "progress" in each["method"]]
            assert progress == [
                {"token": 7, "value": {"done": 1.0}} if name == "a"
                else {"progressToken": 7, "progress": 1.0}
            ]  # fmt: skip


@pytest.mark.parametrize("value", ["5", "null", '"x"', "[1]", None])
def test_progress_that_is_no_object_is_progress_all_the_same(
    tmp_path: Path, value: str | None
) -> None:
    with gateway(tmp_path, {"m": mcp()}) as client:
        ask = {"id": 1, "method": "x", "params": {"_meta": {"progressToken": 7}}}
        client.send(request("r", "m/ask", ask))
        token = json.dumps(client.note("m/x")["params"]["_meta"]["progressToken"])
        given = "" if value is None else f',"value":{value}'
        params = f'{{"token":{token}{given}}}'
        client.send(frame(f'{{"jsonrpc":"2.0","method":"$/progress","params":{params}}}'))
        seen = client.ask("m/seen")["result"]
        assert seen[-1]["params"] == {"progressToken": 7, "progress": 0}


def test_a_timeout_ends_the_request_and_tells_the_backend(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend(timeout=0.3), "b": backend()}) as client:
        client.send(request("b", "b/hold"))
        error = client.ask("a/hold")["error"]
        assert error["code"] == -32803
        assert error["data"] == {"backend": "a", "reason": "timeout"}
        seen = client.ask("a/seen")["result"]
        assert [each["method"] for each in seen] == ["$/cancelRequest"]
        client.send(request(2, "b/release"))
        assert set(client.replies(2)) == {"b", 2}


# Rule 4: death.


def test_all_pending_requests_of_a_crashed_backend_get_errors(tmp_path: Path) -> None:
    times = {"restart": "0.2,0.2"}
    with gateway(tmp_path, {"a": backend(), "b": backend()}, times=times) as client:
        client.send(request("other", "b/hold"))
        client.send(b"".join(request(number, "a/hold") for number in range(50)))
        client.send(request("die", "a/die", {"code": 7}))
        replies = client.replies(51)
        for number in (*range(50), "die"):
            error = replies[number]["error"]
            assert error["code"] == -32803
            assert error["data"] == {
                "backend": "a", "reason": "died", "exitCode": 7, "stderr": "last words",
            }  # fmt: skip
        assert client.ask("a/pid", id=4)["result"] > 0, "it waits for the restart"
        assert client.status("a")["restarts"] == 1
        client.send(request(5, "b/release"))
        assert set(client.replies(2)) == {"other", 5}, "the other noticed nothing"
        assert "backend a: last words" in logged(tmp_path)


def test_a_crash_shows_only_the_stderr_of_its_process(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}, times={"restart": "0.1"}) as client:
        client.ask("a/stderr", ["the first life\n"])
        assert client.ask("a/die")["error"]["data"]["stderr"] == "the first life\nlast words"
        client.state("a", "backoff")
        client.state("a", "ready")
        error = client.ask("a/die", {"signal": "SIGKILL"})["error"]
        assert error["data"]["stderr"] == "last words"
        lines = client.call("gateway/log", ["a"])["lines"]
        assert lines == ["the first life", "last words", "last words"]


def test_what_can_not_be_started_again_fails_in_the_end(tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy(sys.executable, program)
    one = {**backend(), "command": [str(program), *backend()["command"][1:]]}  # type: ignore[index]
    times = {"restart": "0.1,0.1,0.1", "stable": "0.5"}
    with gateway(tmp_path, {"a": one}, times=times) as client:
        client.ask("a/pid")
        time.sleep(0.7)  # its life was stable
        program.unlink()
        program.symlink_to(program)
        client.ask("a/die")
        for state in ("ready", "backoff", "backoff", "backoff", "failed"):
            last = client.note("gateway/stateChanged")["params"]
            assert last["state"] == state
        assert last["restarts"] == 3


def test_what_it_said_before_its_death_counts(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        count = 300
        client.send(b"".join(request(number, "a/echo", [number]) for number in range(count)))
        client.send(request("die", "a/die", {"signal": "SIGKILL"}))
        replies = client.replies(count + 1)
        assert [replies[each]["result"] for each in range(count)] == [[n] for n in range(count)]
        assert replies["die"]["error"]["data"]["signal"] == "SIGKILL"


def test_restarts_back_off_and_then_the_backend_has_failed(tmp_path: Path) -> None:
    times = {"restart": "0.1,0.3"}
    one = backend("die-at-once=4", start="eager")
    with gateway(tmp_path, {"a": one, "b": backend()}, times=times) as client:
        start = time.monotonic()
        failed = client.note("gateway/stateChanged", name="a", state="failed")["params"]
        assert time.monotonic() - start > 0.4
        assert failed["restarts"] == 2
        assert "exit code 4" in failed["reason"]
        states = [each["params"]["state"] for each in client.notes]
        assert states == ["ready", "backoff", "ready", "backoff", "ready"]
        error = client.ask("a/id")["error"]
        assert error["data"] == {
            "backend": "a", "reason": "unavailable", "state": "failed",
            "stderr": "not today\nnot today\nnot today",
        }  # fmt: skip
        assert client.ask("b/pid")["result"] > 0
        client.notes.clear()
        assert client.call("gateway/restart", {"backend": "a"}) == {"name": "a", "state": "ready"}
        client.state("a", "backoff")
        client.state("a", "failed")


def test_notifications_keep_a_request_alive_beyond_its_timeout(tmp_path: Path) -> None:
    """As an ACP agent's `session/update` do; without them the request ends."""
    with gateway(tmp_path, {"a": backend(timeout=0.5)}) as client:
        started = time.monotonic()
        assert client.ask("a/stream", [1.5])["result"] > 0
        assert time.monotonic() - started >= 1.5
        assert "did not reply within 0.5 s" in client.ask("a/hold")["error"]["message"]


@pytest.mark.parametrize("dialect", ["plain", "lsp", "mcp"])
def test_what_our_client_says_of_itself_stays_here(tmp_path: Path, dialect: str) -> None:
    with gateway(tmp_path, {"a": backend(dialect=dialect, framing="lines")}) as client:
        meta = {"client": {"name": "emacs"}, "during": 1, "mine": 1.0}
        echoed = client.ask("a/echo", {"_meta": meta, "x": 1})["result"]
        assert echoed == {"_meta": {"mine": 1.0}, "x": 1}
        assert client.ask("a/echo", {"_meta": {"client": {}}, "x": 1})["result"] == {"x": 1}


def test_lists_of_resources_and_prompts_are_merged_and_routed(tmp_path: Path) -> None:
    servers = {name: mcp_server(name=name) for name in ("m", "n")}
    with gateway(tmp_path, {**servers, "a": backend()}) as client:
        listed = client.call("resources/list")["resources"]
        assert [each["uri"] for each in listed] == ["m://one", "same://uri", "n://one"]
        prompts = client.call("prompts/list")["prompts"]
        assert [each["name"] for each in prompts] == ["m__greet", "n__greet"]
        templates = client.call("resources/templates/list")["resourceTemplates"]
        assert [each["uriTemplate"] for each in templates] == ["m://item/{id}", "n://item/{id}"]
        (content,) = client.call("resources/read", {"uri": "n://item/1"})["contents"]
        assert content["text"] == "n://item/1 of n"
        assert client.call("prompts/get", {"name": "n__greet"})["messages"]
        for method, params in [("resources/read", {"uri": "x"}), ("prompts/get", {"name": "x"})]:
            assert client.ask(method, params)["error"]["code"] == -32602


def test_a_stable_time_makes_its_deaths_forgotten(tmp_path: Path) -> None:
    times = {"restart": "0.05", "stable": "0.2"}
    with gateway(tmp_path, {"a": backend()}, times=times) as client:
        for _ in range(3):
            client.ask("a/pid")
            time.sleep(0.3)
            assert client.ask("a/die")["error"]["data"]["exitCode"] == 3
            client.state("a", "backoff")
            client.state("a", "ready")
        client.ask("a/die")
        client.state("a", "failed")


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"command": ["/no/such/program"]}, "/no/such/program can't be started: No such file"),
        ({"command": ["no-such-program"]}, "no-such-program can't be started: No such file"),
        ({"command": ["/etc/passwd"]}, "/etc/passwd can't be started: Permission denied"),
        ({"command": ["true"], "cwd": "/no/where"}, "working directory can't be entered: No such"),
    ],
)
def test_what_can_not_be_started_has_failed_at_once(
    tmp_path: Path, keys: Mapping[str, object], reason: str
) -> None:
    with gateway(tmp_path, {"a": keys}) as client:
        error = client.ask("a/id")["error"]
        assert error["code"] == -32803
        assert reason in error["message"]
        assert client.status("a")["state"] == "failed"
        assert reason in client.ask("a/id")["error"]["message"]


def test_a_backend_that_closes_its_stdout_is_ended(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}, times={"restart": "0.1"}) as client:
        pid = client.ask("a/pid")["result"]
        error = client.ask("a/close-stdout")["error"]
        assert "closed its stdout and was ended by SIGKILL" in error["message"]
        assert is_gone(pid)
        client.state("a", "backoff")
        client.state("a", "ready")


def test_what_a_dead_backend_had_asked_is_taken_back(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        client.send(request(1, "a/ask", {"id": 1, "method": "x"}) + request(2, "a/die"))
        client.replies(2)
        asked = client.note("a/x")
        assert client.note("$/cancelRequest")["params"] == {"id": asked["id"]}
        client.send(frame({"jsonrpc": "2.0", "id": asked["id"], "result": 1}))
        assert client.status()["pending"] == 0


def test_restart_and_stop_by_hand(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        pid = client.ask("a/pid")["result"]
        client.send(request("held", "a/hold"))
        client.send(request("restart", "gateway/restart", ["a"]))
        replies = client.replies(2)
        assert replies["held"]["error"]["data"] == {"backend": "a", "reason": "stopped"}
        client.state("a", "stopped")
        client.state("a", "ready")
        other = client.ask("a/pid")["result"]
        assert other != pid
        assert is_gone(pid)
        client.ask("gateway/stop", ["a"])
        client.state("a", "stopped")
        assert is_gone(other)
        assert client.ask("a/pid")["result"] not in (pid, other), "the next request starts it"
        error = client.ask("gateway/restart", ["nobody"])["error"]
        assert (error["code"], error["data"]["accepted"]) == (-32602, ["a"])
        client.ask("a/stderr", ["one\ntwo\n"])
        assert client.call("gateway/log", ["a"]) == {"lines": ["one", "two"]}


@pytest.mark.parametrize("seconds", [3e6, 9e8])
def test_a_timeout_may_be_as_long_as_one_likes(tmp_path: Path, seconds: float) -> None:
    with gateway(tmp_path, {"a": backend(timeout=seconds), "b": backend(timeout=0.2)}) as client:
        client.send(request("held", "a/hold") + request("late", "b/hold"))
        late = client.receive()
        assert (late["id"], late["error"]["data"]["reason"]) == ("late", "timeout")
        assert client.ask("a/held")["result"] == [1]


def test_a_parent_that_blocks_signals_stops_no_clock(tmp_path: Path) -> None:
    blocked = (signal.SIGALRM, signal.SIGCHLD)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        with gateway(tmp_path, {"a": backend(timeout=0.2)}) as client:
            assert client.ask("a/hold")["error"]["data"]["reason"] == "timeout"
            assert client.ask("a/die")["error"]["data"]["reason"] == "died"
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_environment_and_working_directory(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    one = backend(env={"BACKEND_TEST": "é"}, cwd="below")
    with gateway(tmp_path, {"a": one}) as client:
        assert client.ask("a/env")["result"] == ["é", str(tmp_path / "below")]


# Rule 6: what is no message.


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_banner_is_skipped_and_logged(tmp_path: Path, framing: str) -> None:
    one = backend("banner=Welcome\\x1b[1m to the server!\\n", framing=framing)
    with gateway(tmp_path, {"a": one}) as client:
        assert client.ask("a/id")["result"] == 1
        client.ask("a/stderr", ["a \x1b[31mred {line}\n" * 3])
        client.ask("a/id", id=3)
    log = logged(tmp_path)
    assert "backend a: skipped output on stdout that is not a JSON-RPC message" in log
    assert "Welcome" not in log
    assert "backend a: a \\x1b[31mred {line}" in log


def test_a_batch_of_a_backend_is_skipped(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        client.send(request("r", "a/reply", ['[{"jsonrpc":"2.0","id":ID,"result":1}]']))
        assert client.ask("a/id", id=2)["result"] == 2
    assert "is not a JSON-RPC message: a batch" in logged(tmp_path)


def test_a_request_is_logged_twice_at_debug(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}, "--log-level", "debug") as client:
        client.ask("a/id", id="x")
        client.ask("version", id="y")
    lines = logged(tmp_path)
    for where in ('method=a/id id="x"', 'method=version id="y"'):
        assert f"{where} received" in lines
        assert f"{where} answered in " in lines


def test_stderr_without_end_is_drained_and_the_log_is_spared(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        for number in range(30):
            client.ask("a/stderr", ["line\n" * 10_000], id=number)
        client.ask("a/stderr", ["x" * 300_000], id="long")
        time.sleep(1.1)
        client.ask("a/stderr", ["end\n"])
        assert client.call("gateway/log", ["a"])["lines"][-1].endswith("end")
    assert logged(tmp_path).count("backend a: line") < 2000
    assert "lines were left out" in logged(tmp_path)


# Rule 7: leaving.


def pids(client: Any, *names: str) -> list[int]:
    return [client.ask(f"{name}/pid")["result"] for name in names]


@pytest.mark.parametrize("how", ["EOF", "SIGTERM", "SIGINT", "SIGHUP", "shutdown"])
def test_all_backends_are_closed_and_none_is_left(tmp_path: Path, how: str) -> None:
    one = {"a": backend(), "b": backend(framing="lines"), "m": mcp()}

    def attempt() -> float:
        with gateway(tmp_path, one) as client:
            found = pids(client, *one)
            client.send(request("held", "a/hold"))
            client.ask("a/held")
            start = time.monotonic()
            if how == "EOF":
                client.close_input()
            elif how == "shutdown":
                client.send(request("bye", "shutdown"))
                assert client.receive()["id"] == "bye"
            else:
                client.signal(signal.Signals[how])
            reply = client.receive()
            assert (reply["id"], reply["error"]["data"]["reason"]) == ("held", "stopped")
            code, _ = client.wait()
            took = time.monotonic() - start
            assert code == 0
            assert not [pid for pid in found if is_alive(pid)]
        return took

    assert shortest(attempt, 2.0) < 2.0


def test_with_quick_backends_leaving_is_quick(tmp_path: Path) -> None:
    def attempt() -> float:
        with gateway(tmp_path, {"a": backend(), "b": backend()}) as client:
            pids(client, "a", "b")
            client.close_input()
            return client.wait()[1]

    assert shortest(attempt, 0.7) < 0.7


@pytest.mark.parametrize("how", ["EOF", "SIGTERM"])
def test_backends_that_ignore_signals_are_killed_within_two_seconds(
    tmp_path: Path, how: str
) -> None:
    stubborn = {f"s{n}": backend("ignore-term", "stay") for n in range(5)}

    def attempt() -> float:
        with gateway(tmp_path, {**stubborn, "n": backend("never-read"), "g": backend()}) as client:
            found = pids(client, *stubborn, "g")
            found.append(client.ask("g/grandchild")["result"])
            client.send(request("n", "n/id") + request("d", "s0/deaf"))
            client.ask("version")
            start = time.monotonic()
            if how == "EOF":
                client.close_input()
            else:
                client.signal(signal.SIGTERM)
            code, _ = client.wait()
            took = time.monotonic() - start
            assert code == 0
            assert not [pid for pid in found if is_alive(pid)]
        return took

    assert shortest(attempt, 2.3) < 2.3


def test_no_orphan_is_left_by_a_gateway_that_is_killed(tmp_path: Path) -> None:
    one = {"a": backend(), "s": backend("ignore-term", "stay"), "m": mcp("stay")}
    with gateway(tmp_path, one, start_new_session=True) as client:
        found = pids(client, *one)
        found.append(client.ask("a/grandchild")["result"])
        client.ask("gateway/restart", ["a"])
        client.state("a", "stopped")
        client.state("a", "ready")
        found += pids(client, "a")
        os.killpg(client.process.pid, signal.SIGKILL)
        assert [pid for pid in found if not is_gone(pid)] == []


def test_nor_where_what_watches_over_it_was_killed_before(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend("stay"), "b": backend("stay")}) as client:
        found = pids(client, "a")
        children = Path(f"/proc/{client.process.pid}/task/{client.process.pid}/children")
        if not children.exists():
            pytest.skip("no /proc here")
        for pid in {int(each) for each in children.read_text().split()} - set(found):
            os.kill(pid, signal.SIGKILL)
            assert is_gone(pid)
        found += pids(client, "b")
        client.process.kill()
        assert [pid for pid in found if not is_gone(pid)] == []


def test_what_a_dead_backend_leaves_behind_is_ended(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        pid = client.ask("a/grandchild")["result"]
        client.ask("a/die")
        assert is_gone(pid)


def test_a_language_server_is_asked_to_leave(tmp_path: Path) -> None:
    file = tmp_path / "seen"
    with gateway(tmp_path, {"a": backend(f"lsp={file}", dialect="lsp")}) as client:
        client.ask("a/pid")
        client.close_input()
        assert client.wait()[0] == 0
        assert file.read_text().splitlines() == ["exit"]


@pytest.mark.parametrize("politely", [True, False])
def test_a_language_server_ended_by_its_client_stays_stopped(
    tmp_path: Path, politely: bool
) -> None:
    one = backend(f"lsp={tmp_path / 'seen'}", dialect="lsp")
    with gateway(tmp_path, {"a": one}, times={"restart": "0.1"}) as client:
        client.ask("a/shutdown" if politely else "a/pid")
        client.send(notification("a/exit"))
        client.state("a", "ready")
        client.state("a", "stopped")
        assert client.ask("a/pid")["result"] > 0
        assert client.status("a")["restarts"] == 0


def test_the_client_is_gone(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        pid = client.ask("a/pid")["result"]
        assert client.process.stdout is not None
        client.process.stdout.close()
        client.send(request(1))
        assert client.wait()[0] == 1
        assert is_gone(pid)
        client.process.stdout = None
    assert "stdout is closed: the client is gone" in logged(tmp_path)
    assert "Traceback" not in logged(tmp_path)


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


def test_idle_means_asleep(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend(), "m": mcp()}) as client:
        pids(client, "a", "m")
        wait_for_loguru(client.process.pid)
        fields = Path(f"/proc/{client.process.pid}/status")
        if not fields.exists():
            pytest.skip("no /proc here")

        def switches() -> int:
            return int(fields.read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0])

        before = switches()
        time.sleep(2.0)
        assert switches() - before <= 1


def test_stdin_may_be_a_file(tmp_path: Path) -> None:
    from tests.gateway import write_config

    config = write_config(tmp_path / "c.toml", {"a": backend()})
    (tmp_path / "in").write_bytes(request(1, "a/id") + request(2))
    env = {**os.environ, "DUET_RPC_CONFIG": str(config), "PYTHONPATH": "."}
    with open(tmp_path / "in", "rb") as source, open(tmp_path / "out", "wb") as out:
        done = subprocess.run(
            [*SHORT_TIMES, "--"], stdin=source, stdout=out, env=env, timeout=PATIENCE, check=False
        )
    assert done.returncode == 0
    assert b'"version"' in (tmp_path / "out").read_bytes()
