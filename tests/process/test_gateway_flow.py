"""The gateway's fifth rule: nobody who reads or writes without measure holds up the others."""

from __future__ import annotations

import statistics
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from duet_rpc.jsonrpc.framing import FRAMINGS
from tests.gateway import backend, gateway, logged
from tests.machine import cpu_seconds, wait_until_idle
from tests.support import frame, notification, request


def test_a_backend_that_never_reads_affects_no_other(tmp_path: Path) -> None:
    text = "x" * 100_000
    with gateway(tmp_path, {"a": backend("never-read"), "b": backend()}) as client:
        count = 60
        client.send(b"".join(request(number, "a/echo", [text]) for number in range(count)))
        client.send(request("b", "b/pid"))
        replies: dict[object, Any] = {}
        while "b" not in replies:
            reply = client.receive()
            replies[reply["id"]] = reply
        refused = [each for each in replies if isinstance(each, int)]
        assert 10 < len(refused) < 30
        error = replies[refused[0]]["error"]
        assert error["code"] == -32803
        assert error["data"]["reason"] == "queue-full"
        start = time.monotonic()
        for number in range(50):
            client.ask("b/echo", [number], id="e")
        assert time.monotonic() - start < 5
        client.send(notification("a/lost"))
        client.ask("version")
    assert "method=a/lost dropped: backend a does not read" in logged(tmp_path)


def test_a_slow_client_slows_the_backends_and_loses_nothing(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend(), "b": backend()}) as client:
        client.ask("a/pid")
        client.send(request("f", "a/flood", {"count": 40_000, "size": 1000}))
        client.send(request("v", "version"))
        wait_until_idle(client.process.pid)
        status = Path(f"/proc/{client.process.pid}/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0]) if "VmHWM" in status else 0
        assert peak < 60_000, "kB, with 40 MB to come"
        numbers = []
        ids: list[object] = []
        while len(ids) < 2:
            message = client.message()
            if message.get("method") == "a/flood":
                numbers.append(message["params"]["number"])
            elif "id" in message:
                ids.append(message["id"])
        assert numbers == list(range(40_000))


@pytest.mark.parametrize("framing", FRAMINGS)
def test_no_reply_is_lost_while_the_client_pauses(tmp_path: Path, framing: str) -> None:
    with gateway(tmp_path, {"a": backend(framing=framing)}, times={"read": 1}) as client:
        sizes = [150_000 + 7 * number for number in range(40)]
        for number, size in enumerate(sizes):
            client.send(request(number, "a/big", [size]))
        time.sleep(2.5)  # longer than a frame may take
        replies = client.replies(len(sizes))
        assert [len(replies[each]["result"]) for each in range(len(sizes))] == sizes


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_steady_stream_may_take_longer_than_a_frame(tmp_path: Path, framing: str) -> None:
    with gateway(tmp_path, {"a": backend(framing=framing)}, times={"read": 1}) as client:
        count = client.ask("a/stream", [2.5])["result"]
        numbers = [each["params"]["number"] for each in client.notes if each["method"] == "a/n"]
        assert numbers == list(range(count))


def test_no_request_of_a_client_that_pauses_is_lost(
    tmp_path: Path,
) -> None:
    with gateway(tmp_path, {"a": backend()}, times={"read": 1}) as client:
        count = 4000
        data = b"".join(request(number, "rpc.discover") for number in range(count))
        sending = threading.Thread(target=client.send, args=(data,))
        sending.start()
        time.sleep(2.5)  # longer than a frame may take
        replies = client.replies(count)
        sending.join()
        assert set(replies) == set(range(count))


def test_a_flooding_backend_does_not_delay_the_others(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend(), "b": backend()}) as client:
        client.ask("b/pid")
        client.send(request("f", "a/flood", {"count": 50_000}))
        client.note("a/flood")
        behind = 0
        client.send(request("b", "b/id"))
        while True:
            message = client.message()
            if message.get("id") == "b":
                break
            behind += 1
        assert behind < 25_000, "it came before the flood was over"


def test_backends_that_flood_have_short_turns(tmp_path: Path) -> None:
    floods = {f"f{number}": backend(framing="lines") for number in range(4)}
    with gateway(tmp_path, {**floods, "b": backend()}) as client:
        client.ask("b/id")
        for name in floods:
            client.ask(f"{name}/babble")
        took = []
        for number in range(15):
            before = cpu_seconds(client.process.pid)
            client.ask("b/id", id=number)
            took.append(cpu_seconds(client.process.pid) - before)
        # Each has 5,000 messages in its pipe at any time: 150 ms were they all taken at once.
        assert statistics.median(took) < 0.04


def test_a_backend_may_ask_without_end_and_never_read(tmp_path: Path) -> None:
    asks = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in range(200)]
    with gateway(tmp_path, {"m": backend("mcp", framing="lines", dialect="mcp")}) as client:
        answer = client.ask("m/ask", {"id": "q", "method": "ping", "before": asks})["result"]
        assert answer == {"jsonrpc": "2.0", "id": "q", "result": {}}


def test_a_backend_that_reads_its_replies_is_always_read(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        for size in (*[30_000] * 150, 5_000_000, 30_000):  # in all and at once more than the limit
            client.send(request("r", "a/ask", {"id": 1, "method": "x"}))
            answer = {"jsonrpc": "2.0", "id": client.note("a/x")["id"], "result": "y" * size}
            client.send(frame(answer))
            assert len(client.receive()["result"]["result"]) == size


def test_thousands_waiting_for_a_handshake_fail_at_once(tmp_path: Path) -> None:
    slow = backend("mcp", "slow-handshake=30", framing="lines", dialect="mcp", timeout=2)
    with gateway(tmp_path, {"m": slow, "b": backend()}) as client:
        count = 9990
        client.send(b"".join(request(number, "m/x") for number in range(count)))
        client.receive()
        start = time.monotonic()
        client.replies(count - 1)
        assert time.monotonic() - start < 5, "one look at all of them for each was 7 s"
        assert client.ask("b/pid")["result"] > 0
