"""Progress of a method: in order, in whole frames, before the reply, and only if it is wanted."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.machine import wait_until_idle
from tests.method_files import env_for, write
from tests.support import SOURCE, WITH_METHODS, Client, daemon, frame, request, run


def test_progress_is_sent_before_the_reply_with_a_token() -> None:
    for token in ("t", 5):
        params = {"count": 3, "pause": 0.1, "_meta": {"progressToken": token}}
        with daemon(WITH_METHODS) as client:
            client.call("version", id="up")
            client.send(request(1, "steps", params))
            notes = [json.loads(client.receive_raw()) for _ in range(3)]
            assert client.receive()["result"] == "done"
        assert notes == [
            {
                "jsonrpc": "2.0",
                "method": "$/progress",
                "params": {
                    "token": token,
                    "value": {"done": n, "total": 3, "message": f"step {n}"},
                },
            }
            for n in (1, 2, 3)
        ]


@pytest.mark.parametrize("token", ["1e400", "1e2", "1.0", '"t"', "7"])
def test_a_progress_token_comes_back_as_it_went_in(token: str) -> None:
    params = f'{{"count":1,"_meta":{{"progressToken":{token}}}}}'
    with daemon(WITH_METHODS) as client:
        client.send(frame(f'{{"jsonrpc":"2.0","id":1,"method":"steps","params":{params}}}'))
        progress, reply = client.receive_raw(), client.receive()
    assert f'"token":{token},'.encode() in progress
    assert reply["result"] == "done"


@pytest.mark.parametrize(
    "params", [[2], {"count": 2}, {"count": 2, "_meta": {}}, {"count": 2, "_meta": 5}]
)
def test_without_a_token_there_is_no_progress(params: object) -> None:
    _, replies, _ = run(request(1, "steps", params), WITH_METHODS)
    assert [reply["result"] for reply in replies] == ["done"]


THREADS = """
import time
from concurrent.futures import ThreadPoolExecutor
from duet_rpc import Context, method

KEPT = []

@method
def pool(text: str, ctx: Context) -> str:
    def work(thread):
        for step in range(100):
            ctx.progress(step, 100, f"{thread} {text}")
            with ctx.uninterrupted():
                ctx.log.info("a line")
        return ctx.cancelled
    with ThreadPoolExecutor(4) as threads:
        assert not any(threads.map(work, range(4)))
    return "done"

@method
def flood(ctx: Context) -> int:
    for step in range(20_000):
        ctx.progress(step, 20_000)
    time.sleep(0.2)
    ctx.progress(20_000, 20_000)
    return step

@method
def keep(ctx: Context) -> str:
    KEPT.append(ctx)
    KEPT[0].progress(len(KEPT))
    return "kept"
"""


def until_reply(client: Client) -> tuple[list[Any], object]:
    """Return the values of all progress until the next reply, and that reply."""
    notes: list[Any] = []
    while True:
        message = json.loads(client.receive_raw())
        if "id" in message:
            return notes, message
        notes.append(message["params"]["value"])


def test_a_flood_of_progress_costs_the_caller_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, THREADS)
    with daemon([*SOURCE, "rpc", "--methods", path], env_for(tmp_path)) as client:
        client.call("version")
        began = time.monotonic()
        client.send(request(1, "flood", {"_meta": {"progressToken": 1}}))
        notes, reply = until_reply(client)
        assert reply == {"jsonrpc": "2.0", "id": 1, "result": 19_999}
        done = [note["done"] for note in notes]
        assert done == sorted(done)
        assert (done[0], done[-1]) == (0, 20_000)  # the first, and what follows a pause
        assert len(done) <= 12 + 50 * (time.monotonic() - began)


@pytest.mark.parametrize("size", [10, 20_000])
def test_threads_of_a_method_report_progress_in_whole_frames(tmp_path: Path, size: int) -> None:
    path = write(tmp_path, THREADS)
    meta = {"progressToken": 1}
    with daemon([*SOURCE, "rpc", "--methods", path], env_for(tmp_path)) as client:
        client.call("version")
        client.send(request(1, "pool", {"text": "x" * size, "_meta": meta}) + request(2))
        wait_until_idle(client.process.pid)  # the pipe is full, and all threads want to write
        notes, reply = until_reply(client)
        assert notes
        for thread in range(4):
            mine = [note["done"] for note in notes if note["message"].startswith(f"{thread} ")]
            assert mine == sorted(mine)
        assert notes[-1]["done"] == 99, "the last report is never left out"
        assert reply == {"jsonrpc": "2.0", "id": 1, "result": "done"}
        assert client.receive()["id"] == 2
        client.send(request(3, "pool", {"text": "x" * 20_000, "_meta": meta}))
        wait_until_idle(client.process.pid)
        client.close_input()  # while they are stuck
        assert client.wait()[0] == 0


def test_there_is_no_progress_of_a_request_that_was_answered(tmp_path: Path) -> None:
    path = write(tmp_path, THREADS)
    with daemon([*SOURCE, "rpc", "--methods", path], env_for(tmp_path)) as client:
        client.send(request(1, "keep", {"_meta": {"progressToken": "t"}}))
        assert json.loads(client.receive_raw())["params"]["value"]["done"] == 1
        assert client.receive()["id"] == 1
        assert client.call("keep", id=2) == "kept"
