"""Questions, streams and pushes of workers, and AI clients that call them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.method_files import env_for, write
from tests.support import PATIENCE, SOURCE, frame, request
from tests.workers import BLOCK, plain_file, rpc, worker_file

# Questions, streams and other clients.


def test_a_question_of_a_worker_is_answered_through_the_router(
    tmp_path: Path, folder: Path
) -> None:
    text = "def rename(ctx: Context) -> list[object]:\n"
    text += "    return [ctx.ask('To?', default='x'), ctx.confirm('Sure?')]\n"
    write(folder, plain_file("a"), "a.py")
    write(folder, worker_file("b", text), "b.py")
    client_says = {"client": {"name": "test", "can": ["ask", "confirm"], "call": 5}}
    with rpc(tmp_path) as client:
        client.send(request(1, "rename", {"_meta": client_says}))
        asked = client.note("client/ask")
        assert asked["params"] == {"prompt": "To?", "default": "x", "_meta": {"call": 5}}
        # What the client calls while it answers is served at once, wherever it lives.
        for method in ("b_pid", "a_pid", "version"):
            params = {} if method == "version" else {"_meta": {"during": asked["id"]}}
            assert "result" in client.ask(method, params or None, id=f"inside {method}")
        client.send(frame(f'{{"jsonrpc":"2.0","id":{json.dumps(asked["id"])},"result":"y"}}'))
        sure = client.note("client/confirm")
        client.send(frame(f'{{"jsonrpc":"2.0","id":{json.dumps(sure["id"])},"result":true}}'))
        assert client.receive()["result"] == ["y", True]


def test_a_call_inside_questions_of_two_workers_is_served_at_once(
    tmp_path: Path, folder: Path
) -> None:
    for name in ("a", "b"):
        text = f"def ask_{name}(ctx: Context) -> str:\n    return ctx.ask('{name}?')\n"
        write(folder, worker_file(name, text), f"{name}.py")
    says = {"client": {"name": "test", "can": ["ask"]}}
    with rpc(tmp_path) as client:
        client.send(request(1, "ask_a", {"_meta": says}))
        outer = client.note("client/ask", prompt="a?")
        client.send(request(2, "ask_b", {"_meta": {**says, "during": outer["id"]}}))
        inner = client.note("client/ask", prompt="b?")
        # Both wait for a client that has one thread, and is at the innermost question.
        for method, mark in [("a_pid", inner["id"]), ("b_pid", outer["id"]), ("a_pid", "old")]:
            reply = client.ask(method, {"_meta": {"during": mark}}, id=f"{method} {mark}")
            assert "result" in reply
        for question in (inner, outer):
            client.send(
                frame(f'{{"jsonrpc":"2.0","id":{json.dumps(question["id"])},"result":"y"}}')
            )
            assert client.receive()["result"] == "y"


def test_streams_and_pushes_of_a_worker_reach_the_client(tmp_path: Path, folder: Path) -> None:
    text = "def count() -> Iterator[str]:\n    duet_rpc.notify('topic', {'a': 1})\n"
    text += "    for number in range(3):\n        yield str(number)\n        time.sleep(0.05)\n"
    head = "import duet_rpc\nfrom collections.abc import Iterator\n"
    write(folder, BLOCK + head + plain_file("b", text), "b.py")
    with rpc(tmp_path) as client:
        client.send(request(1, "count", {"_meta": {"partialResultToken": "p"}}))
        assert client.receive()["result"] is None
        assert client.note("client/notify")["params"] == {"topic": "topic", "params": {"a": 1}}
        pieces = [each["params"] for each in client.notes if each["method"] == "$/progress"]
        assert {each["token"] for each in pieces} == {"p"}
        assert "".join(each["value"] for each in pieces) == "012"


@pytest.mark.parametrize("flags", [(), ("--gateway",)])
def test_an_ai_client_has_the_methods_of_all_workers(
    flags: tuple[str, ...], tmp_path: Path, folder: Path
) -> None:
    write(folder, plain_file("a"), "a.py")
    write(folder, worker_file("b"), "b.py")
    (tmp_path / "home").mkdir(exist_ok=True)
    with mcp_server(tmp_path, *flags) as ask:
        listed = [each["name"] for each in ask("tools/list")["tools"]]
        assert listed == ["a_pid", "a_sleep", "b_pid", "b_sleep"]
        pids = {ask("tools/call", name=f"{name}_pid")["content"][0]["text"] for name in "ab"}
        assert len(pids) == 2


def test_a_first_worker_is_found_by_a_running_mcp_server(tmp_path: Path, folder: Path) -> None:
    write(folder, plain_file("a"), "a.py")
    with mcp_server(tmp_path) as ask:
        assert [each["name"] for each in ask("tools/list")["tools"]] == ["a_pid", "a_sleep"]
        write(folder, worker_file("b"), "b.py")
        assert "b_pid" in [each["name"] for each in ask("tools/list")["tools"]]
        assert ask("tools/call", name="b_pid")["isError"] is False


@contextmanager
def mcp_server(tmp_path: Path, *flags: str) -> Iterator[Callable[..., Any]]:
    """Run `duet-rpc mcp` and shake hands with it."""
    (tmp_path / "home").mkdir(exist_ok=True)
    process = subprocess.Popen(
        [*SOURCE, "mcp", *flags], stdin=-1, stdout=-1, env={**os.environ, **env_for(tmp_path)}
    )
    assert process.stdin is not None
    assert process.stdout is not None
    numbers = count(1)

    def ask(method: str, **params: object) -> Any:
        id = next(numbers)
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        process.stdin.write(json.dumps(message).encode() + b"\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        while True:
            reply = json.loads(process.stdout.readline())  # type: ignore[union-attr]
            if reply.get("id") == id:
                return reply["result"]

    try:
        ask("initialize", protocolVersion="2025-11-25", capabilities={})
        yield ask
    finally:
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
        process.stdout.close()
