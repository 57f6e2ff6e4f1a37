"""What an author is told of an exception, and that nobody else is told as much."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.author import ONE, rpc
from tests.method_files import env_for, write
from tests.support import PYZ, SOURCE, daemon, notification, request, wait_for_file

# Errors that can be used.

FAILING = """
from duet_rpc import method
import json

def inner(text):
    return json.loads(text)

@method
def f(text: str):
    try:
        return inner(text)
    except ValueError as error:
        raise KeyError("a secret") from error
"""


def test_without_debug_an_exception_has_only_type_and_place(tmp_path: Path, folder: Path) -> None:
    write(folder, FAILING, "a.py")
    with rpc(tmp_path) as author:
        assert author.ask("f", ["{"])["error"] == {"code": -32603, "message": "Internal error"}
        log = author.finish()[2]
    assert "KeyError (a.py:13 in f)" in log
    assert "secret" not in log
    assert "Traceback" not in log


def test_the_author_is_told_type_text_place_and_traceback(tmp_path: Path, folder: Path) -> None:
    path = write(folder, FAILING, "a.py")
    with rpc(tmp_path, "--debug") as author:
        data = author.ask("f", ["{"])["error"]["data"]
        log = author.finish()[2]
    assert (data["type"], data["text"]) == ("KeyError", "'a secret'")
    assert data["place"] == f"{path}:13"
    trace = data["traceback"]
    assert trace.startswith("Traceback (most recent call last):")
    assert trace.endswith("KeyError: 'a secret'")
    assert f'File "{path}", line 6, in inner' in trace
    assert "The above exception was the direct cause of the following exception:" in trace
    assert "duet_rpc/server" not in trace
    assert "KeyError: 'a secret' (a.py:13 in f)" in log
    assert all(f"  {line}" in log.splitlines() for line in trace.splitlines() if line)


def test_the_place_is_the_deepest_line_of_the_user(tmp_path: Path, folder: Path) -> None:
    path = write(folder, FAILING.replace("except ValueError", "except OSError"), "a.py")
    with rpc(tmp_path, "--debug") as author:
        assert author.ask("f", ["{"])["error"]["data"]["place"] == f"{path}:6"


def test_the_place_of_a_wrong_result_is_its_function(tmp_path: Path, folder: Path) -> None:
    path = write(
        folder, "from duet_rpc import method\n\n@method\ndef f() -> int:\n    return 'a'\n", "a.py"
    )
    with rpc(tmp_path, "--debug") as author:
        data = author.ask("f")["error"]["data"]
    assert data["text"] == "returned by a.py:3: expected integer, got string"
    assert data["place"] == f"{path}:3"


def test_a_failure_after_a_cancel_is_explained_to_the_author(tmp_path: Path, folder: Path) -> None:
    mark = tmp_path / "runs"
    text = (
        "import time\nfrom duet_rpc import method\n@method\ndef f():\n    try:\n"
        f"        open({str(mark)!r}, 'x').close()\n        time.sleep(60)\n"
        "    finally:\n        {}['x']\n"
    )
    write(folder, text, "a.py")
    with rpc(tmp_path, "--debug") as author:
        author.client.send(request(5, "f"))
        wait_for_file(mark)
        author.client.send(notification("$/cancelRequest", {"id": 5}))
        data = author.reply()["error"]["data"]
    assert (data["type"], data["text"]) == ("KeyError", "'x'")
    assert data["place"] == f"{folder / 'a.py'}:9"


def test_an_mcp_client_is_never_told_more(tmp_path: Path, folder: Path) -> None:
    write(folder, FAILING, "a.py")
    write(folder, "oops(", "b.py")
    calls = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25",
         "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}},
        {"id": 2, "method": "tools/call", "params": {"name": "f", "arguments": {"text": "{"}}},
    ]  # fmt: skip
    with daemon([*SOURCE, "mcp", "--debug"], env_for(tmp_path), framing="lines") as client:
        for each in calls:
            client.send(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n")
            reply = client.receive_raw().decode()
            assert json.loads(reply)["id"] == each["id"]
        client.close_input()
        _, err = client.process.communicate(timeout=20)
    assert "secret" not in reply
    assert "a.py" not in reply
    assert b"KeyError: 'a secret'" in err


def test_breakpoint_says_how_to_debug_a_method_and_goes_on(tmp_path: Path, folder: Path) -> None:
    write(folder, ONE.format("f", "breakpoint() or 1"), "a.py")
    with rpc(tmp_path, "--debug") as author:
        assert author.call("f") == 1
        assert author.said == [
            "breakpoint() at a.py:3 is ignored in the daemon; to stop there, run "
            "`python -m duet_rpc call --pdb METHOD ...` in a terminal"
        ]


def test_breakpoint_names_the_program_with_its_full_path(tmp_path: Path, folder: Path) -> None:
    write(folder, ONE.format("f", "breakpoint() or 1"), "a.py")
    with rpc(tmp_path, "--debug", program=[sys.executable, str(PYZ)]) as author:
        assert author.call("f") == 1
        assert f"run `python3 {PYZ} call --pdb METHOD ...` in a" in author.said[0]


# Errors that can hardly be read.

RAISED = {
    "a text that raises": "def __str__(self): raise ValueError",
    "a text that is none": "def __str__(self): return 5",
    "a text that ends the process": "def __str__(self): raise SystemExit",
    "a text without end": "def __str__(self): return 'x' * 10_000_000",
    "a filename that raises": "filename = property(lambda self: 1 / 0)",
    "a traceback that raises": "__traceback__ = property(lambda self: 1 / 0)",
    "a cause that raises": "__cause__ = property(lambda self: 1 / 0)",
    "a class that raises": "__class__ = property(lambda self: 1 / 0)",
    "a repr that raises": "def __repr__(self): raise KeyboardInterrupt",
}


@pytest.mark.parametrize("debug", [(), ("--debug",)], ids=["plain", "debug"])
@pytest.mark.parametrize("kind", RAISED)
def test_an_unreadable_exception_is_an_internal_error(
    tmp_path: Path, folder: Path, kind: str, debug: tuple[str, ...]
) -> None:
    text = f"class Odd(Exception):\n    {RAISED[kind]}\n"
    text += "from duet_rpc import method\n@method\ndef f(): raise Odd('x')\n"
    write(folder, text, "a.py")
    with rpc(tmp_path, *debug) as author:
        error = author.ask("f")["error"]
        assert (error["code"], error["message"]) == (-32603, "Internal error")
        if debug:
            assert error["data"]["type"] == "Odd"
        assert "version" in author.call("version")
        assert author.finish()[0] == 0


ODD_ERRORS = [
    "RpcError('x', 'y')", "RpcError(1.5, 'y')", "RpcError(True, 'y')", "RpcError(None, 'y')",
    "RpcError(-32001, 5)", "RpcError(-32001, 'y', object())", "RpcError(-32001, 'y', {1: {2}})",
    "RpcError(-32001, 'y', float('nan'))", "RpcError(-32001, '\\ud800')",
    "RpcError(10 ** 5000, 'y')",
]  # fmt: skip


@pytest.mark.parametrize("raised", ODD_ERRORS)
def test_an_error_with_odd_parts_is_still_an_error(
    tmp_path: Path, folder: Path, raised: str
) -> None:
    text = f"from duet_rpc import method, RpcError\n@method\ndef f(): raise {raised}\n"
    write(folder, text, "a.py")
    with rpc(tmp_path) as author:
        error = author.ask("f")["error"]
        assert type(error["code"]) is int
        assert type(error["message"]) is str
        assert "version" in author.call("version")
