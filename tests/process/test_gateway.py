"""The gateway itself, with real processes on both sides: its own methods, and its own faults.

Its eight rules are in test_gateway_messages.py (ids, questions, cancel and progress, what is no
message), test_gateway_exits.py (death and leaving), test_gateway_flow.py (back-pressure) and
test_gateway_tools.py (MCP).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from duet_rpc.jsonrpc.framing import FRAMINGS
from tests.gateway import (
    SHORT_TIMES,
    backend,
    gateway,
    logged,
    mcp,
    patience_for_depth,
    pids,
    write_config,
)
from tests.hostile import AT_END, GOOD, ROWS, Answer, Row, check
from tests.machine import wait_for_loguru
from tests.support import PATIENCE, TOP, frame, notification, request, wait_until

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
        wait_for_loguru(client.process.pid)  # nothing is asked: it puts its house in order
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
    def discarded() -> int:
        return logged(tmp_path).count("discarded a frame that was not complete")

    with gateway(tmp_path, {"a": backend()}, times={"read": 0.2}) as client:
        client.ask("a/pid")
        client.send(request(1)[:-3])
        wait_until(lambda: discarded() == 1, "it is discarded")
        assert client.ask("version", id=2)["result"]
        client.send(request(9, "a/raw", ["Content-Length: 999\r\n\r\n{"]))
        client.ask("version", id=3)
        wait_until(lambda: discarded() == 2, "the same holds for a backend")
        assert client.ask("a/id", id=4)["result"] > 0
    assert discarded() == 2


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
        time.sleep(2.0)  # in which nothing is to happen
        assert switches() - before <= 1


def test_stdin_may_be_a_file(tmp_path: Path) -> None:
    config = write_config(tmp_path / "c.toml", {"a": backend()})
    (tmp_path / "in").write_bytes(request(1, "a/id") + request(2))
    env = {**os.environ, "DUET_RPC_CONFIG": str(config), "PYTHONPATH": "."}
    with open(tmp_path / "in", "rb") as source, open(tmp_path / "out", "wb") as out:
        done = subprocess.run(
            [*SHORT_TIMES, "--"], stdin=source, stdout=out, env=env, timeout=PATIENCE, check=False
        )
    assert done.returncode == 0
    assert b'"version"' in (tmp_path / "out").read_bytes()
