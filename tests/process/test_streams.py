"""Pieces, progress and notifications that a method sends: over the wire of `duet-rpc rpc`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.machine import wait_until_idle
from tests.peer import Peer, client, peer
from tests.support import frame, notification, request

__all__ = ["client"]


# Streams.


def pieces(client: Peer, id: object) -> tuple[list[Any], Any]:
    """Read what comes up to a reply."""
    found: list[Any] = []
    while True:
        message = client.get()
        if message.get("id") == id:
            return found, message
        assert message["method"] == "$/progress"
        found.append(message["params"]["value"])


def test_a_stream_comes_piece_by_piece_and_then_null(client: Peer) -> None:
    client.post(1, "count", {"n": 3, "pause": 0.1}, partialResultToken="p")
    assert client.get()["params"] == {"token": "p", "value": "0 "}
    found, reply = pieces(client, 1)
    assert found == ["1 ", "2 "]
    assert reply["result"] is None


def test_pieces_in_quick_succession_are_joined(client: Peer) -> None:
    start = time.monotonic()
    client.post(1, "count", {"n": 5000}, partialResultToken="p")
    found, reply = pieces(client, 1)
    seconds = time.monotonic() - start
    assert "".join(found) == "".join(f"{number} " for number in range(5000))
    assert len(found) <= seconds * 50 + 2
    assert reply["result"] is None


def test_a_piece_does_not_wait_for_the_next_one(client: Peer, tmp_path: Path) -> None:
    client.post(1, "two_then_wait", {"file": str(tmp_path / "go")}, partialResultToken="p")
    assert client.get()["params"]["value"] == "a"
    assert client.get()["params"]["value"] == "b"
    (tmp_path / "go").touch()
    assert client.get()["params"]["value"] == "c"
    assert client.result(1) is None


def test_pieces_that_are_no_texts_come_as_lists(client: Peer) -> None:
    client.post(1, "rows", {"n": 100}, partialResultToken="p")
    found, reply = pieces(client, 1)
    assert [row for each in found for row in each] == [{"row": number} for number in range(100)]
    assert reply["result"] is None


@pytest.mark.parametrize(
    ("method", "n", "result"),
    [
        ("count", 3, "0 1 2 "),
        ("count", 0, ""),
        ("rows", 2, [{"row": 0}, {"row": 1}]),
        ("rows", 0, []),
    ],
)
def test_without_a_token_the_reply_has_it_all(
    client: Peer, method: str, n: int, result: object
) -> None:
    client.post(1, method, {"n": n})
    assert client.result(1) == result


@pytest.mark.parametrize("token", ["1", "1.0", "-0", '"\\ud800"', "1e400"])
def test_a_partial_token_comes_back_as_it_was_written(client: Peer, token: str) -> None:
    params = f'{{"n":1,"_meta":{{"partialResultToken":{token}}}}}'
    client.send(frame(f'{{"jsonrpc":"2.0","id":1,"method":"count","params":{params}}}'))
    assert f'"token":{token},'.encode() in client.receive_raw()
    client.result(1)


def test_to_cancel_a_stream_closes_the_generator(client: Peer, tmp_path: Path) -> None:
    client.post(1, "endless", {"file": str(tmp_path / "closed")}, partialResultToken="p")
    client.get()
    client.send(notification("$/cancelRequest", {"id": 1}))
    _, reply = pieces(client, 1)
    assert reply["error"]["code"] == -32800
    assert (tmp_path / "closed").exists()


def test_a_chunk_that_violates_the_hint_fails_the_call(client: Peer) -> None:
    client.post(1, "wrong_piece", {}, partialResultToken="p")
    found, reply = pieces(client, 1)
    assert found == [[1]]
    assert reply["error"]["code"] == -32603


def test_a_stream_may_ask(client: Peer) -> None:
    client.post(1, "stream_and_ask", {}, partialResultToken="p")
    assert client.get()["params"]["value"] == "before, "
    client.answer(client.asked(), "Ada")
    found, reply = pieces(client, 1)
    assert "".join(found) == "Ada, after"
    assert reply["result"] is None


def test_a_stream_is_described_as_one(client: Peer) -> None:
    client.send(request(1, "rpc.discover"))
    methods = {each["name"]: each for each in client.result(1)["methods"]}
    assert methods["count"]["x-stream"] is True
    assert methods["count"]["result"]["schema"] == {"type": "string"}
    assert methods["rows"]["result"]["schema"]["type"] == "array"
    assert "x-stream" not in methods["add"]


def test_a_stream_that_nobody_reads_is_bounded() -> None:
    with peer() as client:
        client.post(1, "count", {"n": 3_000_000}, partialResultToken="p")
        assert client.get()
        status = Path(f"/proc/{client.process.pid}/status")
        if status.exists():
            wait_until_idle(client.process.pid)  # it waits for its reader, or has yielded them all
            peak = next(line for line in status.read_text().splitlines() if "VmHWM" in line)
            assert int(peak.split()[1]) < 100_000, "kB"
        client.close_input()
        assert client.wait()[0] == 0


def test_progress_is_sent_fifty_times_a_second_at_most(client: Peer) -> None:
    start = time.monotonic()
    client.post(1, "report", {"n": 100_000}, progressToken="t")
    found, reply = pieces(client, 1)
    seconds = time.monotonic() - start
    assert reply["result"] == 100_000
    assert found[0]["done"] == 1
    assert found[-1]["done"] == 100_000, "the last one is never left out"
    assert len(found) <= seconds * 50 + 2


# Notifications at any time.


def test_notify_from_a_thread_during_and_after_the_call(client: Peer) -> None:
    client.post(1, "push", {"topic": "files", "count": 100})
    messages = [client.get() for _ in range(101)]
    assert {"jsonrpc": "2.0", "id": 1, "result": None} in messages
    pushed = [each for each in messages if "method" in each]
    assert {each["method"] for each in pushed} == {"client/notify"}
    assert [each["params"] for each in pushed] == [
        {"topic": "files", "params": {"number": number}} for number in range(100)
    ]


def test_a_fork_tells_the_client_nothing(client: Peer) -> None:
    client.post(1, "fork_and_notify")
    assert client.result(1) == 7
