"""Requests that are cancelled, and others that wait for their turn meanwhile."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.machine import wait_until_computing, wait_until_idle
from tests.method_files import env_for, write
from tests.support import CANCELLED, SOURCE, WITH_METHODS, cancel, daemon, frame, request, run

# Cancel.


@pytest.mark.parametrize(
    ("id", "others"), [("1e400", ["2e400", "1e401"]), ("1.0", ["1", '"1.0"', "1e0"]), ("-0", ["0"])]
)
def test_a_cancel_names_an_id_as_it_is_spelled(id: str, others: list[str]) -> None:
    cancels = [
        frame(f'{{"jsonrpc":"2.0","method":"$/cancelRequest","params":{{"id":{each}}}}}')
        for each in (*others, id)
    ]
    with daemon(WITH_METHODS) as client:
        client.call("version", id="up")
        client.send(frame(f'{{"jsonrpc":"2.0","id":{id},"method":"give_up"}}'))
        client.send(b"".join(cancels[:-1]))
        assert client.silent_for(0.4)
        client.send(cancels[-1])
        assert client.receive_raw().startswith(f'{{"jsonrpc":"2.0","id":{id},"error"'.encode())


def test_a_second_cancel_interrupts_a_method_that_caught_the_first() -> None:
    with daemon(WITH_METHODS) as client:
        client.call("version", id="up")
        client.send(request(1, "stubborn"))
        wait_until_idle(client.process.pid)
        client.send(cancel(1))
        assert client.silent_for(0.5)
        client.send(cancel(1) + request(2))
        assert client.receive()["error"] == CANCELLED
        assert client.receive()["id"] == 2


@pytest.mark.parametrize("id", [1, "one", 1.5, -3, 10**40, "\ud800"])
@pytest.mark.parametrize("method", ["give_up", "forget_me"])
def test_a_running_method_is_interrupted_and_the_next_request_served(
    method: str, id: object
) -> None:
    with daemon(WITH_METHODS) as client:
        client.call("version", id="up")
        client.send(request(id, method, [30.0] if method == "forget_me" else None))
        wait = wait_until_idle if method == "forget_me" else wait_until_computing
        wait(client.process.pid)
        start = time.monotonic()
        client.send(cancel(id) + request(2))
        reply = client.receive()
        assert (reply["id"], reply["error"]) == (id, CANCELLED)
        assert client.receive()["id"] == 2
        assert time.monotonic() - start < 5.0
        code, _, log = client.finish()
    assert code == 0
    assert "Request cancelled" in log
    assert "WARN" not in log


def test_a_method_is_cancelled_while_it_is_being_loaded(tmp_path: Path) -> None:
    text = (
        "import time\nfrom duet_rpc import method\ntime.sleep(0.5)\n"
        "@method\ndef slow() -> None: time.sleep(60)\n"
    )
    path = write(tmp_path, text)
    with daemon([*SOURCE, "rpc", "--methods", path], env_for(tmp_path)) as client:
        client.send(request(1, "slow") + cancel(1) + request(2))
        assert client.receive()["error"] == CANCELLED
        assert client.receive()["id"] == 2


def test_a_method_behind_a_stuck_reply_can_be_cancelled() -> None:
    with daemon(WITH_METHODS) as client:
        client.send(request(1, "big", [1_000_000]) + request(2, "give_up") + cancel(2) + request(3))
        wait_until_idle(client.process.pid)
        assert client.receive()["id"] == 1
        assert client.receive()["error"] == CANCELLED
        assert client.receive()["id"] == 3


def test_a_cancel_of_another_id_changes_nothing() -> None:
    with daemon(WITH_METHODS) as client:
        client.call("version", id="up")
        client.send(request(1, "forget_me", [1.0]))
        wait_until_idle(client.process.pid)
        client.send(cancel("1") + cancel(1.0) + cancel(2) + cancel(None) + cancel([]))
        assert client.receive()["result"] == "remembered"


def test_a_queued_request_is_dropped_and_answered_in_its_turn() -> None:
    with daemon(WITH_METHODS) as client:
        client.call("version", id="up")
        client.send(request(1, "forget_me", [1.0]) + request(2, "forget_me", [30.0]) + request(3))
        wait_until_idle(client.process.pid)
        client.send(cancel(2))
        assert client.receive()["result"] == "remembered"
        reply = client.receive()
        assert (reply["id"], reply["error"]) == (2, CANCELLED)
        assert client.receive()["id"] == 3


def test_a_cancel_that_comes_too_late_is_no_noise() -> None:
    _, replies, log = run(request(1) + cancel(1) + request(2))
    assert [reply["id"] for reply in replies] == [1, 2]
    assert "WARN" not in log


def test_what_must_not_be_interrupted_is_not() -> None:
    with daemon(WITH_METHODS) as client:
        client.call("version", id="up")
        client.send(request(1, "careful"))
        wait_until_computing(client.process.pid)
        client.send(cancel(1))
        assert client.receive()["error"] == CANCELLED
        _, _, log = client.finish()
    assert "saved, cancelled: True" in log


def test_cancelling_amid_progress_never_breaks_a_frame() -> None:
    for _ in range(5):
        with daemon(WITH_METHODS) as client:
            client.call("version", id="up")
            params = {"count": 10_000_000, "_meta": {"progressToken": "t" * 500}}
            client.send(request(1, "steps", params))
            for _ in range(50):
                client.receive_raw()
            client.send(cancel(1) + request(2))
            while True:
                message = json.loads(client.receive_raw())
                if "id" in message:
                    break
            assert message["error"] == CANCELLED
            assert client.receive()["id"] == 2


# Input while a method runs.


def test_input_during_a_method_is_answered_in_order() -> None:
    with daemon(WITH_METHODS) as client:
        client.call("version", id="up")
        client.send(request(1, "forget_me", [0.8]))
        wait_until_idle(client.process.pid)
        client.send(request(2) + b"garbage\n" + request(3) + frame("{") + request(4))
        replies = [client.receive() for _ in range(6)]
    assert [reply["id"] for reply in replies] == [1, 2, None, 3, None, 4]


def test_input_beyond_the_cap_is_served_later() -> None:
    large = request(0, "setLogLevel", ["x" * 4_000_000])
    with daemon(WITH_METHODS) as client:
        client.call("version", id="up")
        client.send(request(1, "forget_me", [2.0]))
        replies = client.exchange(large * 5 + request(2), 7)
    assert [reply["id"] for reply in replies] == [1, 0, 0, 0, 0, 0, 2]
