"""`duet-rpc rpc` as its client sees it: a real process at the end of real pipes."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from duet_rpc import __version__
from tests.hostile import AFTER_LOSS, AT_END, GOOD, ROWS, Answer, Row, check
from tests.method_files import SIX
from tests.support import (
    SOURCE,
    TOP,
    WITH_METHODS,
    daemon,
    frame,
    notification,
    request,
    run,
    shortest,
    wait_for_file,
)

GATED = [*SOURCE, "rpc", "--methods", str(TOP / "tests" / "cancel_methods.py")]


def results(data: bytes) -> list[object]:
    code, replies, _ = run(data)
    assert code == 0
    return [reply.get("result", reply.get("error")) for reply in replies]


# The table of hostile inputs.


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_after_a_hostile_input_the_next_good_request_is_answered(row: Row) -> None:
    with daemon() as client:
        expected = [*row.expected, Answer("good")]
        replies = client.exchange(row.data + GOOD, len(expected))
        check([Row(row.name, b"", expected)], replies)
        code, rest, log = client.finish()
    assert (code, rest) == (0, [])
    assert "Traceback" not in log


def test_a_refused_frame_is_not_executed_after_a_fault_either() -> None:
    rows = [Row(row.name, row.data + GOOD, [*row.expected, Answer("good")]) for row in AFTER_LOSS]
    code, replies, _ = run(b"".join(row.data for row in rows))
    check(rows, replies)
    assert code == 0


def test_a_refused_shutdown_after_a_broken_frame_is_not_executed() -> None:
    data = frame("{nonsense") + b"Content-Type: text/plain\r\n" + request("x", "shutdown")
    with daemon() as client:
        replies = client.exchange(data + GOOD, 3)
    assert [reply["id"] for reply in replies] == [None, "x", "good"]
    assert replies[1]["error"]["data"] == {"reason": "unsupported-content-type"}
    assert "result" in replies[2]


@pytest.mark.parametrize("row", AT_END, ids=lambda row: row.name)
def test_the_end_of_input_is_answered_and_left_in_peace(row: Row) -> None:
    code, replies, log = run(row.data)
    check([row], replies)
    assert code == 0
    assert "stdin closed, shutting down gracefully" in log


def test_oversize_is_answered_before_any_of_the_body_has_come() -> None:
    with daemon() as client:
        client.send(b"Content-Length: 10485761\r\n\r\n")
        assert client.receive()["error"]["data"] == {"reason": "oversize"}


def test_a_request_typed_slowly_is_a_request() -> None:
    with daemon() as client:
        for byte in request(1):
            client.send(bytes([byte]))
        assert client.receive()["result"] == {"version": __version__}


# The six methods.


def test_the_six_methods() -> None:
    calls = [request(n, method) for n, method in enumerate(SIX[:4])]
    calls += [request(4, "setLogLevel", {"level": "WARN"}), request(5, "shutdown")]
    initialize, listed, described, version, level, bye = results(b"".join(calls))
    assert initialize == {
        "serverInfo": {"name": "duet-rpc", "version": __version__},
        "protocolVersion": "2.0",
    }
    assert isinstance(listed, list)
    assert [each["name"] for each in listed] == SIX
    assert all(set(each) == {"name", "description"} for each in listed)
    assert all(each["description"].endswith(".") for each in listed)
    assert isinstance(described, list)
    assert [each["name"] for each in described] == SIX
    assert all(set(each) == {"name", "params", "returns"} for each in described)
    assert [each["params"] for each in described] == [[], [], [], [], ["level: string"], []]
    assert version == {"version": __version__}
    assert level == {"level": "warn", "success": True}
    assert bye == {"message": "Shutting down gracefully"}


@pytest.mark.parametrize("method", [*SIX[1:4], "shutdown", "rpc.discover"])
@pytest.mark.parametrize("params", ["null", "{}", "[]", '{"_meta":{}}'])
def test_a_method_without_params_takes_none_in_every_form(method: str, params: str) -> None:
    body = f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}'
    assert "code" not in json.dumps(results(frame(body))[0])


@pytest.mark.parametrize("method", [*SIX[1:4], "shutdown", "rpc.discover"])
@pytest.mark.parametrize(
    ("params", "data"),
    [
        ([None], {"param": "[0]", "expected": "0 parameters at most", "received": "null"}),
        ({"x": 1.5}, {"param": "x", "expected": "no parameter of this name", "received": "number"}),
    ],
)
def test_anything_more_is_invalid(method: str, params: object, data: object) -> None:
    error, version = results(request(1, method, params) + request(2))
    assert isinstance(error, dict)
    assert error["code"] == -32602
    assert error["data"] == data
    assert version == {"version": __version__}


def test_initialize_takes_what_lsp_clients_send() -> None:
    who = {"serverInfo": {"name": "duet-rpc", "version": __version__}, "protocolVersion": "2.0"}
    ignored = {"processId": 1, "clientInfo": {"name": "eglot"}, "rootUri": None}
    assert results(request(1, "initialize", ignored)) == [who]
    assert results(request(1, "initialize", {**ignored, "capabilities": {}})) == [
        {**who, "capabilities": {}}
    ]
    error = results(request(1, "initialize", [1]))[0]
    assert isinstance(error, dict)
    assert error["code"] == -32602


@pytest.mark.parametrize(
    ("params", "received"),
    [
        ({"level": "loud"}, "loud"),
        (["loud"], "loud"),
        ({"level": "x" * 500}, "x" * 80),
        ({"level": 3}, "integer"),
        ({"level": None}, "null"),
        ({"level": ["info"]}, "array"),
        ({}, "missing"),
        ([], "missing"),
        (None, "missing"),
    ],
)
def test_a_wrong_level_is_told_the_right_ones(params: object, received: str) -> None:
    (error,) = results(request(1, "setLogLevel", params))
    assert isinstance(error, dict)
    assert error["code"] == -32602
    assert error["data"]["param"] == "level"
    assert error["data"]["received"] == received
    assert error["data"]["accepted"] == ["debug", "info", "warn", "error"]


def test_a_new_log_level_is_in_force_at_once() -> None:
    _, _, log = run(
        request(1, "setLogLevel", ["Debug"])
        + request(2)
        + request(3, "setLogLevel", {"level": "ERROR"})
        + request(4)
        + request(5, "nonsense")
    )
    assert "method=version id=2 answered in" in log
    assert "id=4" not in log
    assert "nonsense" not in log


def test_shutdown_ends_it_and_what_stands_behind_is_not_served() -> None:
    code, replies, log = run(request(1, "shutdown") + request(2))
    assert code == 0
    assert [reply["id"] for reply in replies] == [1]
    assert "shutdown requested" in log
    code, replies, _ = run(notification("shutdown") + request(2))
    assert (code, replies) == (0, [])


def test_shutdown_with_the_input_still_open_ends_it_quickly() -> None:
    def attempt() -> float:
        with daemon() as client:
            client.call("shutdown")
            code, seconds = client.wait()
        assert code == 0
        return seconds

    assert shortest(attempt, 0.5) < 0.5


def test_discover_stands_in_no_list_and_describes_the_six() -> None:
    (document,) = results(request(1, "rpc.discover"))
    assert isinstance(document, dict)
    assert document["openrpc"].startswith("1.")
    assert [each["name"] for each in document["methods"]] == SIX
    level = document["methods"][4]["params"][0]
    assert level["required"] is True
    assert level["schema"] == {"type": "string", "enum": ["debug", "info", "warn", "error"]}


# Messages.


def test_replies_come_in_the_order_of_the_requests() -> None:
    data = b"".join(request(number) for number in range(2000))
    code, replies, _ = run(data)
    assert code == 0
    assert [reply["id"] for reply in replies] == list(range(2000))


def test_a_notification_gets_no_reply_whatever_happens() -> None:
    _, replies, log = run(
        notification("version")
        + notification("unknown.thing")
        + notification("setLogLevel", {"level": "loud"})
        + notification("boom")
        + request(1),
        WITH_METHODS,
    )
    assert [reply["id"] for reply in replies] == [1]
    assert "WARN  method=unknown.thing Method not found" in log
    assert "WARN  method=setLogLevel Invalid params" in log
    assert "ERROR method=boom Internal error" in log


def test_an_unexpected_response_is_dropped_with_a_warning() -> None:
    _, replies, log = run(frame('{"jsonrpc":"2.0","id":"r","result":1}'))
    assert replies == []
    assert 'WARN  id="r" dropped a response that nobody asked for' in log


ODD = ['"\\ud800"', "0." + "1234567890" * 4, "-0", "1.0", "1e400", "9" * 30, '""', "null"]


@pytest.mark.parametrize(
    ("header", "body", "code"),
    [
        ("Content-Type: text/plain\r\n", '{"jsonrpc":"2.0","id":ID,"method":"version"}', -32600),
        ("", '{"jsonrpc":"2.0","id":ID,"method":"unknown"}', -32601),
        ("", '{"jsonrpc":"2.0","id":ID,"method":"version","params":[1]}', -32602),
        ("", '{"jsonrpc":"2.0","id":ID,"method":7}', -32600),
        ("", '{"jsonrpc":"2.0","id":ID,"method":"version","params":[NaN]}', -32700),
        ("", '{"params":DEEP,"id":ID}', -32700),
        ("", '{"id":ID,"params":{"a":' + '[{"b":' * 9000, -32700),
        ("", '{"id":ID,"params":"\\q\\"', -32700),
    ],
)
def test_an_odd_id_comes_back_exactly_with_any_error(header: str, body: str, code: int) -> None:
    with daemon() as client:
        for id in ODD:
            text = body.replace("ID", id).replace("DEEP", "[" * 100_000 + "]" * 100_000)
            client.send(f"Content-Length: {len(text)}\r\n{header}\r\n{text}".encode())
            reply = client.receive_raw()
            assert reply.startswith(
                f'{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},'.encode()
            )


def test_an_unknown_method_is_named() -> None:
    (error,) = results(request(1, "no\nsuch\x1b[31m" + "x" * 200))
    assert error == {"code": -32601, "message": "Method not found: no?such?[31m" + "x" * 68}


# What methods do.


def call_with_methods(method: str, params: object = None) -> tuple[dict[str, object], str]:
    _, replies, log = run(request(1, method, params) + request(2), WITH_METHODS)
    assert replies[1]["result"] == {"version": __version__}
    return replies[0], log


@pytest.mark.parametrize("method", ["boom", "leave", "refuse_badly"])
def test_a_failing_method_is_logged_with_its_place(method: str) -> None:
    reply, log = call_with_methods(method)
    assert reply["error"] == {"code": -32603, "message": "Internal error"}
    assert "ERROR" in log
    assert ".py:" in log
    assert "hunter2" not in log
    assert "Traceback" not in log


@pytest.mark.parametrize("number", range(5))
def test_an_error_without_code_or_message_is_internal(number: int) -> None:
    reply, log = call_with_methods("refuse_in_odd_words", [number])
    assert reply["error"] == {"code": -32603, "message": "Internal error"}
    assert re.search(
        r"Internal error: TypeError \(daemon_with_methods\.py:\d+ in refuse_in_odd_words\)", log
    )


@pytest.mark.parametrize("what", ["nan", "infinity", "object", "circle", "complex"])
def test_the_log_says_why_a_result_cannot_be_json(what: str) -> None:
    reply, log = call_with_methods("give", {"what": what})
    assert reply["error"] == {"code": -32603, "message": "Internal error"}
    why = {"complex": "a value of type complex has no form in JSON", "circle": "Circular reference"}
    assert f"method=give id=1 Internal error: BadResult: {why.get(what, '')}" in log
    assert re.search(r"\(returned by daemon_with_methods\.py:\d+\)\n", log)


def test_a_method_refuses_in_its_own_words() -> None:
    reply, _ = call_with_methods("refuse")
    assert reply["error"] == {"code": -32001, "message": "Not today", "data": {"when": "tomorrow"}}


def test_lone_surrogates_are_replaced_and_other_letters_are_not() -> None:
    assert call_with_methods("give", ["surrogate"])[0]["result"] == "a�b"
    assert call_with_methods("give", ["unicode"])[0]["result"] == "日本語 ✓ 😀 \u2028"


def test_nothing_but_frames_reaches_stdout() -> None:
    reply, log = call_with_methods("noise")
    assert reply["result"] == "quiet"
    for words in ("from print", "from os.write", "from C", "from a child"):
        assert words in log


def test_a_child_does_not_read_the_daemons_requests() -> None:
    reply, _ = call_with_methods("child_reads")
    assert reply["result"] == ""


def test_a_module_that_prints_at_import_does_no_harm() -> None:
    code = "import sys; sys.argv=['duet-rpc','rpc']; from duet_rpc.cli import main; main()"
    _, replies, _ = run(request(1), [SOURCE[0], "-c", code])
    assert replies[0]["result"] == {"version": __version__}


def test_a_reply_larger_than_a_pipe_arrives_whole() -> None:
    with daemon(WITH_METHODS) as client:
        assert client.call("big", [5_000_000]) == "x" * 5_000_000
        assert client.call("version", id=2) == {"version": __version__}


def test_replies_before_a_slow_method_do_not_wait_for_it(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with daemon(GATED) as client:
        client.send(request(1) + request(2, "until", [str(tmp_path / "mark"), str(gate)]))
        client.send(request(3))
        assert client.receive()["id"] == 1
        gate.touch()
        assert client.receive()["id"] == 2
        assert client.receive()["id"] == 3


def test_a_request_that_comes_while_methods_are_loaded_is_answered(tmp_path: Path) -> None:
    slow, mark = tmp_path / "slow.py", tmp_path / "mark"
    slow.write_text(f"import time\nopen({str(mark)!r}, 'w').close()\ntime.sleep(1.0)\n")
    with daemon([*SOURCE, "rpc", "--methods", str(slow)]) as client:
        client.call("version")
        wait_for_file(mark)  # idle for long enough: the file is being loaded
        client.send(request("meanwhile"))
        assert client.receive()["id"] == "meanwhile"


def test_what_comes_while_a_method_runs_keeps_its_order() -> None:
    # Reading the large ones takes longer than the time between two looks at the input.
    large = request("large", "version", [["x" * 100] * 40_000])
    with daemon(WITH_METHODS) as client:
        client.call("version")
        client.send(request("slow", "sleep", [2.0]))
        client.send(
            b"".join(
                [*(request(n) for n in range(50)), large, *(request(n) for n in range(50, 100))] * 2
            )
        )
        ids = [client.receive()["id"] for _ in range(203)]
    round = [*range(50), "large", *range(50, 100)]
    assert ids == ["slow", *round, *round]


def test_a_large_request_is_taken_in_while_a_method_runs(tmp_path: Path) -> None:
    large = request("large", "version", [["x" * 100] * 80_000])
    gate = tmp_path / "gate"
    with daemon(GATED) as client:
        client.call("version")
        client.send(request("slow", "until", [str(tmp_path / "mark"), str(gate)]))
        for at in range(0, len(large), 4096):  # as Emacs does it, which has more to do
            client.send(large[at : at + 4096])
            time.sleep(0.0001)
        assert client.silent_for(0.1)
        gate.touch()
        assert [client.receive()["id"] for _ in range(2)] == ["slow", "large"]
