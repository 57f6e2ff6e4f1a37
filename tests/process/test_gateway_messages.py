"""The gateway's rules for messages: ids, questions, cancel and progress, what is no message."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from duet_rpc.jsonrpc.framing import FRAMINGS
from tests.gateway import (
    backend,
    gateway,
    logged,
    mcp,
)
from tests.support import frame, notification, request, wait_until

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
        wait_until(lambda: not client.status()["pending"], "the gateway has answered")
        (answer,) = client.ask("a/seen")["result"]
        assert (answer["id"], answer["error"]["code"]) == ("q", -32803)
        client.send(frame({"jsonrpc": "2.0", "id": asked["id"], "result": "too late"}))
        assert len(client.ask("a/seen")["result"]) == 1


def test_each_backend_is_answered_within_its_own_time(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend(), "b": backend(timeout=0.3)}) as client:
        for name in "ab":
            client.send(notification(f"{name}/ask", {"id": "q", "method": "x"}))
            client.note(f"{name}/x")
        wait_until(lambda: client.status()["pending"] <= 1, "one of them is answered")
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
        time.sleep(1.1)  # lines are counted for each second
        client.ask("a/stderr", ["end\n"])
        assert client.call("gateway/log", ["a"])["lines"][-1].endswith("end")
    assert logged(tmp_path).count("backend a: line") < 2000
    assert "lines were left out" in logged(tmp_path)
