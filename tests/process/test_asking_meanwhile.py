"""While a method waits for an answer: what is served, and what ends its wait."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.peer import META, Peer, client, is_alive, peer
from tests.support import frame, notification, request, shortest

__all__ = ["client"]


# Cancel, and the end.


def test_a_cancel_ends_the_wait_and_withdraws_the_question(client: Peer, tmp_path: Path) -> None:
    client.post(1, "cancelled_in_a_question", {"file": str(tmp_path / "said")})
    question = client.asked()
    client.send(notification("$/cancelRequest", {"id": 1}))
    withdrawn = client.get()
    assert withdrawn["method"] == "$/cancelRequest"
    assert withdrawn["params"] == {"id": question["id"]}
    assert client.error(1)["code"] == -32800
    assert (tmp_path / "said").read_text() == "Cancelled"
    client.answer(question, "too late")
    assert is_alive(client)


def test_quitting_a_question_cancels_the_call(client: Peer, tmp_path: Path) -> None:
    client.post(1, "cancelled_in_a_question", {"file": str(tmp_path / "said")})
    client.refuse(client.asked(), -32800)
    assert client.error(1)["code"] == -32800
    assert (tmp_path / "said").read_text() == "Cancelled"
    assert is_alive(client)


def test_quitting_a_threads_question_cancels_the_call(client: Peer) -> None:
    client.post(1, "ask_in_threads", {"count": 1})
    client.refuse(client.asked(), -32800)
    assert client.error(1)["code"] == -32800
    assert is_alive(client)


def test_a_question_in_finally_is_not_asked_any_more(client: Peer, tmp_path: Path) -> None:
    client.post(1, "ask_in_finally", {"file": str(tmp_path / "said")})
    client.asked()
    client.send(notification("$/cancelRequest", {"id": 1}))
    client.get()  # which withdraws the first one
    assert client.error(1)["code"] == -32800
    assert "cancelled" in (tmp_path / "said").read_text()


def test_a_cancel_ends_a_question_in_an_uninterrupted_block() -> None:
    with peer() as client:
        client.post(1, "ask_uninterrupted")
        client.asked()
        client.send(notification("$/cancelRequest", {"id": 1}))
        client.get()
        assert client.error(1)["code"] == -32800
        assert "in the block: Declined: the call was cancelled" in client.finish()[2]


def test_an_alarm_of_the_method_ends_its_question(client: Peer) -> None:
    client.post(1, "ask_with_alarm")
    question = client.asked()
    assert client.get()["params"] == {"id": question["id"]}
    assert client.result(1) == "too late"
    assert is_alive(client)


@pytest.mark.parametrize("method", ["name", "ask_in_a_loop", "swallow"])
def test_the_end_of_input_ends_the_wait_at_once(method: str) -> None:
    def attempt() -> float:
        with peer() as client:
            client.post(1, method)
            client.asked()
            client.close_input()
            code, seconds = client.wait()
            assert code == 0
            return seconds

    assert shortest(attempt, 1.0) < 1.0


def test_an_answer_just_before_the_end_of_input_counts(client: Peer) -> None:
    client.post(1, "name")
    client.answer(client.asked(), "Ada")
    code, replies, _ = client.finish()
    assert (code, replies) == (0, [{"jsonrpc": "2.0", "id": 1, "result": "hello Ada"}])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_wait(number: signal.Signals) -> None:
    with peer() as client:
        client.post(1, "name")
        client.asked()
        client.signal(number)
        code, seconds = client.wait()
        assert code == 0
        assert seconds < 2


def test_a_client_that_stops_reading_ends_the_wait() -> None:
    with peer() as client:
        client.post(1, "name")
        client.asked()
        assert client.process.stdout is not None
        client.process.stdout.close()
        code, seconds = client.wait()
        assert code == 1
        assert seconds < 2


def test_shutdown_ends_the_wait() -> None:
    with peer() as client:
        client.post(1, "name")
        client.asked()
        client.send(request(2, "shutdown"))
        assert client.result(2) == {"message": "Shutting down gracefully"}
        assert client.error(1)["code"] == -32800
        assert client.wait()[0] == 0


# Meanwhile.


def test_built_in_methods_are_answered_while_a_method_waits(client: Peer) -> None:
    client.post(1, "name")
    question = client.asked()
    for id, method in enumerate(("version", "listMethods", "initialize", "rpc.discover"), 2):
        client.send(request(id, method))
        assert client.result(id)
    client.answer(question, "Ada")
    assert client.result(1) == "hello Ada"


def test_a_built_in_method_that_was_queued_before_is_answered(client: Peer, tmp_path: Path) -> None:
    client.post(1, "busy", {"file": str(tmp_path / "go")})
    client.post(2, "name")
    client.send(request(3, "add", {"a": 1, "b": 1}))
    client.send(request(4, "version"))
    (tmp_path / "go").touch()
    assert client.result(1) == "done"
    question = client.asked()
    assert client.result(4)
    client.answer(question, "Ada")
    assert client.result(2) == "hello Ada"
    assert client.result(3) == 2


def test_other_calls_wait_for_their_turn(client: Peer) -> None:
    client.post(1, "name")
    question = client.asked()
    client.send(request(2, "add", {"a": 1, "b": 2}))
    client.send(request(3, "version"))
    assert client.result(3), "the one before it is not served"
    client.answer(question, "Ada")
    assert client.result(1) == "hello Ada"
    assert client.result(2) == 3


def test_a_call_made_to_answer_is_served_inside_the_wait(client: Peer) -> None:
    client.post(1, "lisp", {"function": "f", "arguments": []})
    question = client.asked()
    client.post(2, "add", {"a": 1, "b": 2}, during=question["id"])
    sum = client.result(2)
    client.answer(question, sum)
    assert client.result(1) == 3


def test_calls_inside_calls_ask_as_well(client: Peer) -> None:
    depth = 20
    questions: list[dict[str, Any]] = []
    for number in range(depth):
        meta = {"during": questions[-1]["id"]} if questions else {}
        client.post(number, "lisp", {"function": f"f{number}", "arguments": []}, **meta)
        questions.append(client.asked())
    for number in reversed(range(depth)):
        client.answer(questions[number], number)
        assert client.result(number) == number
    assert is_alive(client)


def test_an_outer_answer_that_comes_first_is_kept(client: Peer) -> None:
    client.post(1, "name")
    outer = client.asked()
    client.post(2, "name", during=outer["id"])
    inner = client.asked()
    client.answer(outer, "outer")
    client.answer(inner, "inner")
    assert client.result(2) == "hello inner"
    assert client.result(1) == "hello outer"


def test_a_call_during_an_abandoned_question_is_served(client: Peer) -> None:
    client.post(1, "name")
    outer = client.asked()
    client.post(2, "ask_with_alarm", during=outer["id"])
    inner = client.asked()
    assert client.get()["params"] == {"id": inner["id"]}
    assert client.result(2) == "too late"
    client.post(3, "add", {"a": 1, "b": 2}, during=inner["id"])  # before the news has come
    assert client.result(3) == 3
    client.answer(outer, "Ada")
    assert client.result(1) == "hello Ada"


def test_to_cancel_the_outer_call_cancels_the_inner_one(client: Peer) -> None:
    client.post(1, "name")
    outer = client.asked()
    client.post(2, "name", during=outer["id"])
    inner = client.asked()
    client.send(notification("$/cancelRequest", {"id": 1}))
    assert client.get()["params"] == {"id": inner["id"]}
    assert client.error(2)["code"] == -32800
    assert client.get()["params"] == {"id": outer["id"]}
    assert client.error(1)["code"] == -32800
    assert is_alive(client)


def test_to_cancel_the_inner_call_leaves_the_outer_one(client: Peer) -> None:
    client.post(1, "name")
    outer = client.asked()
    client.post(2, "name", during=outer["id"])
    inner = client.asked()
    client.send(notification("$/cancelRequest", {"id": 2}))
    assert client.get()["params"] == {"id": inner["id"]}
    assert client.error(2)["code"] == -32800
    client.answer(outer, "Ada")
    assert client.result(1) == "hello Ada"


def test_a_call_during_an_answered_question_waits_its_turn(client: Peer) -> None:
    client.post(1, "name")
    question = client.asked()
    client.answer(question, "Ada")
    client.post(2, "add", {"a": 1, "b": 2}, during=question["id"])
    assert client.result(1) == "hello Ada"
    assert client.result(2) == 3


@pytest.mark.parametrize("during", [None, 1, []])
def test_a_call_whose_mark_is_not_text_waits_its_turn(client: Peer, during: object) -> None:
    client.post(1, "name")
    question = client.asked()
    client.post(2, "add", {"a": 1, "b": 2}, during=during)
    client.send(request(3, "version"))
    assert client.result(3)
    client.answer(question, "Ada")
    assert client.result(1) == "hello Ada"
    assert client.result(2) == 3


def test_an_answer_behind_ten_mebibytes_of_requests_arrives(client: Peer) -> None:
    client.post(1, "name")
    question = client.asked()
    filler = request("waits", "add", {"a": 1, "b": 1, "_meta": {"x": "y" * 100_000}})
    waiting = 10 * 1024 * 1024 // len(filler) + 1
    client.send(filler * waiting)
    client.answer(question, "Ada")
    assert client.result(1) == "hello Ada"
    for _ in range(waiting):
        assert client.result("waits") == 2


def test_an_answer_behind_more_than_is_kept_arrives(client: Peer) -> None:
    client.post(1, "name")
    question = client.asked()
    filler = request("waits", "add", {"a": 1, "b": 1, "_meta": {"x": "y" * 1_000_000}})
    for _ in range(60):  # 40 MiB are kept
        client.send(filler)
    client.answer(question, "Ada")
    replies = [client.get() for _ in range(61)]
    refused = [each for each in replies if "error" in each]
    assert {each["error"]["code"] for each in refused} == {-32803}
    assert 10 <= len(refused) <= 25
    assert {"jsonrpc": "2.0", "id": 1, "result": "hello Ada"} in replies
    assert is_alive(client)


def test_an_answer_in_a_batch_counts() -> None:
    with peer("--batch") as client:
        client.post(1, "name")
        question = client.asked()
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": "Ada"}
        client.send(frame([answer]))
        assert client.result(1) == "hello Ada"


def test_methods_of_a_batch_ask() -> None:
    with peer("--batch") as client:
        call = {"jsonrpc": "2.0", "method": "name", "params": {"_meta": META}}
        client.send(frame([{**call, "id": 1}, {**call, "id": 2}]))
        first = client.asked()
        client.send(request(3, "version"))
        assert client.result(3)
        client.answer(first, "Ada")
        client.answer(client.asked(), "Bob")
        both = json.loads(client.receive_raw())
        assert [each["result"] for each in both] == ["hello Ada", "hello Bob"]


def test_hostile_methods_ask_in_a_loop(client: Peer) -> None:
    client.post(1, "ask_in_a_loop")
    for _ in range(50):
        client.refuse(client.asked(), -32005)
    client.asked()
    client.send(notification("$/cancelRequest", {"id": 1}))
    assert client.get()["method"] == "$/cancelRequest"
    assert client.error(1)["code"] == -32800
