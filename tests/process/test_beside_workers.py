"""Files with a block of their own are called, and fail, just as files without one do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.gateway import GatewayClient, ended
from tests.mcp_client import MODERN, Mcp
from tests.support import SOURCE, notification, request, wait_for_file
from tests.terminal import environment, invoke

METHODS = """\
import logging, os, sys
from collections.abc import Iterator
from duet_rpc import Context, RpcError, command, method

@command
def sort_words(text: str, top: int = 3) -> str:
    '''Sort words.'''
    return " ".join(sorted(text.split())[:top])

@method
def fails(text: str) -> str:
    return {}[text]

@method
def refuses() -> str:
    raise RpcError(7, "not today", {"x": 1})

@method
def is_no_number() -> int:
    return "x"

@method
def spell(text: str) -> Iterator[str]:
    yield from text

@method
def asks(ctx: Context) -> str:
    return ctx.ask("Name?")

@method
def logs(ctx: Context) -> str:
    print("printed")
    logging.warning("logged")
    ctx.log.info("info")
    ctx.log.error("error")
    return "done"

@method
def leaves() -> None:
    sys.exit(3)

@method
def crashes() -> None:
    os._exit(9)
"""

BLOCK = "# /// script\n# ///\n"
NO_BLOCK = "# A file of\n# methods.\n"

DOUBLE = "from duet_rpc import method\n@method\ndef double(x: int) -> int: return 2 * x\n"

REGISTERED = """\
from duet_rpc import method
class Words:
    def count(self, text: str) -> int:
        return len(text.split())
for name in ("count.words", "words.count"):
    method(name)(Words().count)
"""


def home_with(home: Path, text: str) -> dict[str, str]:
    """Make a home directory with a file of methods; return the environment of who lives there."""
    folder = home / ".config/duet-rpc/methods"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(text)
    return environment(home)


def normalize(text: str, home: Path) -> str:
    """Return what was written to stderr, without when and where."""
    return re.sub(r"^\d{4}-\S+", "TIME", text.replace(str(home), "~"), flags=re.MULTILINE)


@pytest.mark.parametrize(
    "words",
    [
        "sort_words text=b",
        "sort_words",
        "sort_words text=5",
        "sort_word text=b",
        "fails text=x",
        "fails text=x --debug",
        "fails text=x --log-level warn",
        "refuses",
        "is_no_number",
        "spell text=abc",
        "asks",
        "logs",
        "leaves",
        "crashes",
        "version",
        "setLogLevel level=nonsense",
    ],
)
def test_a_call_prints_the_same_with_a_block_and_without(tmp_path: Path, words: str) -> None:
    printed = []
    for name, first in (("without", NO_BLOCK), ("with", BLOCK)):
        env = home_with(tmp_path / name, first + METHODS)
        code, out, err = invoke(["call", *words.split()], env, tracebacks=True)
        printed.append((code, out, normalize(err, tmp_path / name)))
    assert printed[0] == printed[1]
    asked = "--debug" in words or "--log-level" in words
    assert asked or "Traceback" not in printed[1][2]


LIFECYCLE = "duet-rpc 0|stdin closed|worker mine.py: (started|ended|was ended)"

CALLS: list[tuple[object, str, object]] = [
    ("abc", "sort_words", {"text": 5}),
    (1.5, "fails", {"text": "x"}),
    (None, "refuses", None),
    (9, "is_no_number", []),
    (10, "asks", {}),
    (11, "logs", {}),
    ("id=3 a", "leaves", {}),
    (12, "no such method", {}),
    (13, "setLogLevel", {"level": "nonsense"}),
]


@pytest.mark.parametrize("level", ["info", "warn", "error"])
def test_the_log_says_the_same_with_a_block_and_without(tmp_path: Path, level: str) -> None:
    messages = [{"jsonrpc": "2.0", "id": id, "method": m, "params": p} for id, m, p in CALLS]
    lines = "".join(json.dumps(each) + "\n" for each in messages).encode()
    logs = []
    for name, first in (("without", NO_BLOCK), ("with", BLOCK)):
        env = home_with(tmp_path / name, first + METHODS)
        words = ["rpc", "--framing", "lines", "--log-level", level]
        log = normalize(invoke(words, env, lines)[2], tmp_path / name)
        # Of its workers a router says besides when they start and end.
        about_calls = [line for line in log.splitlines() if not re.search(LIFECYCLE, line)]
        logs.append(sorted(line.replace("worker mine.py: ", "") for line in about_calls))
    assert logs[0] == logs[1]
    assert "TIME INFO  method=logs id=11 printed" in logs[1], "whatever the level"


@pytest.mark.parametrize("method", ["count.words", "words.count"])
def test_a_method_that_no_decorator_declares_can_be_called(tmp_path: Path, method: str) -> None:
    env = home_with(tmp_path, BLOCK + REGISTERED)
    assert invoke(["call", method, "text=a b"], env) == (0, "2\n", "")


def test_and_by_a_client_that_has_asked_for_no_list(tmp_path: Path) -> None:
    with ended(GatewayClient([*SOURCE, "rpc"], home_with(tmp_path, BLOCK + REGISTERED))) as client:
        # Both wait for the worker to say what it has; the second one is taken back meanwhile.
        client.send(request(1, "count.words", {"text": "a b"}))
        client.send(request(2, "words.count", {"text": "a b"}))
        client.send(notification("$/cancelRequest", {"id": 2}))
        replies = client.replies(2)
        assert replies[1]["result"] == 2
        assert replies[2]["error"]["code"] == -32800
        assert client.ask("words.count", {"text": "a"})["result"] == 1
        assert client.ask("count.letters", {"text": "a"})["error"]["code"] == -32601


def test_methods_of_other_files_do_not_wait_for_that(tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    waits = f"import os, time\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.01)\n"
    env = home_with(tmp_path, BLOCK + waits + REGISTERED)
    (tmp_path / ".config/duet-rpc/methods/plain.py").write_text(DOUBLE)
    with ended(GatewayClient([*SOURCE, "rpc"], env)) as client:
        client.send(request(1, "count.words", {"text": "a b"}) + request(2, "double", {"x": 2}))
        assert client.receive()["id"] == 2
        go_on.touch()
        assert client.receive()["id"] == 1


def test_a_cancelled_reload_keeps_nobody_waiting(tmp_path: Path) -> None:
    env = home_with(tmp_path, BLOCK + REGISTERED)
    plain, begun = tmp_path / ".config/duet-rpc/methods/plain.py", tmp_path / "begun"
    plain.write_text(DOUBLE)
    with ended(GatewayClient([*SOURCE, "rpc"], env)) as client:
        assert client.call("double", {"x": 2}) == 4
        plain.write_text(f"import time\nopen({str(begun)!r}, 'w')\ntime.sleep(60)\n")
        client.send(request(7, "reloadMethods"))
        wait_for_file(begun)
        client.send(notification("$/cancelRequest", {"id": 7}))
        assert client.receive()["error"]["code"] == -32800
        assert client.call("count.words", {"text": "a"}) == 1
        assert client.call("double", {"x": 3}) == 6, "what it had is kept"


def test_a_file_that_is_loaded_is_in_the_reply(tmp_path: Path) -> None:
    env = home_with(tmp_path, BLOCK + REGISTERED)
    (tmp_path / ".config/duet-rpc/methods/plain.py").write_text(DOUBLE)
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(DOUBLE.replace("double", "twice"))
    bad.write_text("oops(\n")
    with ended(GatewayClient([*SOURCE, "rpc"], env)) as client:
        names = ["count.words", "double", "words.count"]
        assert sorted(client.call("reloadMethods")["methods"]) == names
        loaded = client.call("loadMethods", [str(good)])
        assert sorted(loaded["methods"]) == sorted([*names, "twice"])
        assert loaded["problems"] == []
        (problem,) = client.call("loadMethods", [str(bad)])["problems"]
        assert problem.startswith("bad.py:1: SyntaxError: ")
        assert client.call("twice", {"x": 2}) == 4


def test_a_name_that_is_wrong_is_corrected_from_all_files(tmp_path: Path) -> None:
    env = home_with(tmp_path, BLOCK + REGISTERED)
    code, out, err = invoke(["call", "count.word"], env)
    assert (code, out) == (1, "")
    lines = ["duet-rpc: Method not found: count.word (-32601)", "  did you mean 'count.words'?"]
    assert err.splitlines() == lines


@pytest.mark.parametrize("name", ["plain.py", "mine.py", "fresh.py"])
def test_an_ai_client_sees_each_saved_file_at_once(tmp_path: Path, name: str) -> None:
    env = home_with(tmp_path, BLOCK + REGISTERED)
    folder = tmp_path / ".config/duet-rpc/methods"
    (folder / "plain.py").write_text(DOUBLE)
    client = Mcp([*SOURCE, "mcp"], env, framing="lines")
    client.version = MODERN
    try:
        before = set(client.tools())
        assert before == {"count.words", "double", "words.count"}
        assert set(client.tools()) == before
        block = "" if name == "plain.py" else BLOCK
        (folder / name).write_text(block + DOUBLE.replace("double", "saved"))
        assert "saved" in client.tools()
    finally:
        client.process.kill()
        client.process.communicate()


def test_the_first_call_of_an_ai_client_is_no_warning(tmp_path: Path) -> None:
    env = home_with(tmp_path, BLOCK + METHODS)
    (tmp_path / ".config/duet-rpc/methods/plain.py").write_text(DOUBLE)
    about = {"capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    hello = {"protocolVersion": "2025-11-25", **about}
    call = {"name": "double", "arguments": {"x": 2}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    lines = "".join(json.dumps(each) + "\n" for each in messages)
    _, out, err = invoke(["mcp"], env, lines.encode())
    results = {reply["id"]: reply["result"] for reply in map(json.loads, out.splitlines())}
    assert results[2]["structuredContent"] == {"result": 4}
    assert "WARN" not in err
