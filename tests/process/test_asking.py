"""A method asks its client, waits, and is told: over the wire of `duet-rpc rpc`."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.machine import wait_until_idle
from tests.support import (
    SOURCE,
    TOP,
    Client,
    daemon,
    frame,
    notification,
    request,
    shortest,
    wait_for_file,
)

METHODS = TOP / "tests" / "asking_methods.py"
CAN = ["ask", "choose", "confirm", "say", "emacs"]
META = {"client": {"name": "test", "version": "1", "can": CAN, "call": 7}}


class Peer(Client):
    """A client that is asked, too."""

    def get(self) -> dict[str, Any]:
        """Read one message, whatever it is."""
        message: dict[str, Any] = json.loads(self.receive_raw())
        assert message["jsonrpc"] == "2.0"
        return message

    def post(
        self, id: object, method: str, params: dict[str, Any] | None = None, **meta: Any
    ) -> None:
        """Make a call from a client that can be asked."""
        self.send(request(id, method, {**(params or {}), "_meta": {**META, **meta}}))

    def asked(self) -> dict[str, Any]:
        """Read one message, which must be a question."""
        message = self.get()
        assert set(message) == {"jsonrpc", "id", "method", "params"}, message
        assert message["id"].startswith("duet:")
        return message

    def answer(self, question: dict[str, Any], result: object) -> None:
        """Answer a question."""
        self.send(frame({"jsonrpc": "2.0", "id": question["id"], "result": result}))

    def refuse(self, question: dict[str, Any], code: int, message: str = "no", **more: Any) -> None:
        """Answer a question by an error."""
        error = {"code": code, "message": message, **more}
        self.send(frame({"jsonrpc": "2.0", "id": question["id"], "error": error}))

    def result(self, id: object) -> Any:
        """Read one message, which must be the result of a call."""
        message = self.get()
        assert message.get("id") == id, message
        assert "result" in message, message
        return message["result"]

    def error(self, id: object) -> dict[str, Any]:
        """Read one message, which must be the error of a call."""
        message = self.get()
        assert message.get("id") == id, message
        error: dict[str, Any] = message["error"]
        return error


@contextmanager
def peer(*flags: str) -> Iterator[Peer]:
    """Run the daemon with the methods that ask."""
    with daemon([*SOURCE, "rpc", "--methods", METHODS, *flags]) as client:
        client.__class__ = Peer
        assert isinstance(client, Peer)
        client.send(request("ready", "listMethods"))
        client.receive()
        yield client


@pytest.fixture
def client() -> Iterator[Peer]:
    with peer() as client:
        yield client


def is_alive(client: Peer) -> bool:
    """Return whether the daemon still answers."""
    client.send(request("alive", "add", {"a": 2, "b": 2}))
    return bool(client.result("alive") == 4)


# Questions.


def test_a_text_is_asked_for(client: Peer) -> None:
    client.post(1, "name")
    question = client.asked()
    assert question["method"] == "client/ask"
    assert question["params"] == {"prompt": "Name?", "default": "nobody", "_meta": {"call": 7}}
    client.answer(question, "Ada")
    assert client.result(1) == "hello Ada"


def test_ids_of_questions_count_up(client: Peer) -> None:
    for number in (1, 2, 3):
        client.post(number, "name")
        question = client.asked()
        assert question["id"] == f"duet:{number}"
        client.answer(question, "x")
        client.result(number)


def test_a_secret_says_so_and_is_not_logged() -> None:
    with peer("--log-level", "debug") as client:
        client.post(1, "secret")
        question = client.asked()
        assert question["params"]["secret"] is True
        client.answer(question, "hunter2")
        assert client.result(1) == 7
        _, _, log = client.finish()
    assert "hunter2" not in log


def test_a_choice_has_texts_and_notes(client: Peer) -> None:
    client.post(1, "pick", {"default": "green"})
    question = client.asked()
    assert question["method"] == "client/choose"
    assert question["params"] == {
        "prompt": "Which colour?",
        "choices": [
            {"text": "red", "note": "like fire"},
            {"text": "green", "note": "like grass"},
            {"text": "blue"},
        ],
        "default": "green",
        "_meta": {"call": 7},
    }
    client.answer(question, "blue")
    assert client.result(1) == "blue"


def test_several_choices_come_as_a_list(client: Peer) -> None:
    client.post(1, "pick", {"multiple": True})
    question = client.asked()
    assert question["params"]["multiple"] is True
    client.answer(question, ["red", "blue"])
    assert client.result(1) == ["red", "blue"]


def test_a_choice_returns_the_value_itself(client: Peer) -> None:
    client.post(1, "pick_path")
    question = client.asked()
    assert [each["text"] for each in question["params"]["choices"]] == ["/a/b.txt", "/c.py"]
    client.answer(question, "/c.py")
    assert client.result(1) == ".py"


@pytest.mark.parametrize("answer", [True, False])
def test_yes_and_no(client: Peer, answer: bool) -> None:
    client.post(1, "sure")
    question = client.asked()
    assert (question["method"], question["params"]["prompt"]) == ("client/confirm", "Really?")
    client.answer(question, answer)
    assert client.result(1) is answer


def test_what_is_said_goes_to_a_client_that_listens(client: Peer) -> None:
    client.post(1, "tell", {"text": "hear this"})
    said = client.get()
    assert said["method"] == "client/say"
    assert said["params"] == {"text": "hear this", "level": "info", "_meta": {"call": 7}}
    assert client.result(1) is None


def test_messages_for_a_client_that_cannot_show_them_are_logged() -> None:
    with peer() as client:
        client.send(request(1, "tell", {"text": "hear this"}))
        assert client.result(1) is None
        assert "method=tell hear this" in client.finish()[2]


# Callers that can't, and callers that don't.


@pytest.mark.parametrize("can", [None, [], ["say"], "ask", [["ask"]]])
def test_a_caller_is_asked_only_for_what_it_offers(client: Peer, can: object) -> None:
    client.send(request(1, "name", {"_meta": {"client": {"can": can}}}))
    error = client.error(1)
    assert error["code"] == -32004
    assert "client/ask" in error["message"]


@pytest.mark.parametrize("params", [None, [], {"_meta": {}}, {"_meta": {"client": 1}}])
def test_a_caller_that_says_nothing_is_not_asked(client: Peer, params: object) -> None:
    client.send(request(1, "name", params))
    assert client.error(1)["code"] == -32004


def test_emacs_is_for_a_client_that_offers_it(client: Peer) -> None:
    can = [each for each in CAN if each != "emacs"]
    params = {"function": "f", "arguments": [], "_meta": {"client": {"can": can}}}
    client.send(request(1, "lisp", params))
    error = client.error(1)
    assert error["code"] == -32004
    assert "ctx.emacs" in error["message"]


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (-32005, "declined: Declined: the question was not answered"),
        (-32004, "unsupported: Unsupported: the caller does not offer this"),
        (-32601, "unsupported: Unsupported: the caller does not offer this"),
        (-32099, "-32099: no"),
    ],
)
def test_an_error_for_an_answer_is_an_exception(client: Peer, code: int, outcome: str) -> None:
    client.post(1, "survive")
    client.refuse(client.asked(), code)
    assert client.result(1) == outcome


def test_a_declined_question_refuses_the_call(client: Peer) -> None:
    client.post(1, "name")
    client.refuse(client.asked(), -32005, "Declined: the buffer is gone")
    assert client.error(1) == {"code": -32005, "message": "Declined: the buffer is gone"}


@pytest.mark.parametrize("answer", [None, 5, ["x"], {"text": "x"}, True])
def test_an_answer_of_another_type_fails_the_call(client: Peer, answer: object) -> None:
    client.post(1, "name")
    client.answer(client.asked(), answer)
    error = client.error(1)
    assert error["code"] == -32803
    assert "expected a text" in error["message"]


@pytest.mark.parametrize("answer", ["yellow", ["red"], 1, None])
def test_a_choice_that_was_not_offered_fails_the_call(client: Peer, answer: object) -> None:
    client.post(1, "pick")
    client.answer(client.asked(), answer)
    assert client.error(1)["code"] == -32803


def test_an_answer_that_is_no_reply_fails_the_call(client: Peer) -> None:
    client.post(1, "name")
    id = client.asked()["id"]
    client.send(frame({"jsonrpc": "2.0", "id": id, "result": 1, "error": {}}))
    assert client.error(1)["code"] == -32803
    assert is_alive(client)


def test_an_answer_to_another_question_is_dropped() -> None:
    with peer() as client:
        client.post(1, "name")
        question = client.asked()
        for id in ("duet:99", 1, None, "duet:1.0"):
            client.send(frame({"jsonrpc": "2.0", "id": id, "result": "wrong"}))
        client.answer(question, "right")
        assert client.result(1) == "hello right"
        assert "nobody asked for" in client.finish()[2]


def test_a_second_answer_is_dropped_with_a_warning() -> None:
    with peer() as client:
        client.post(1, "name")
        question = client.asked()
        client.answer(question, "one")
        client.answer(question, "two")
        assert client.result(1) == "hello one"
        assert is_alive(client)
        log = client.finish()[2]
    assert "nobody asked for" in log


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


# Threads.


def test_threads_ask_at_the_same_time(client: Peer) -> None:
    client.post(1, "ask_in_threads", {"count": 5})
    questions = [client.asked() for _ in range(5)]
    for question in reversed(questions):
        client.answer(question, question["params"]["prompt"])
    assert client.result(1) == [f"Thread {number}?" for number in range(5)]


def test_a_call_made_to_answer_a_thread_is_refused(client: Peer) -> None:
    client.post(1, "ask_in_threads", {"count": 1})
    question = client.asked()
    client.post(2, "add", {"a": 1, "b": 2}, during=question["id"])
    error = client.error(2)
    assert error["code"] == -32803
    assert "thread" in error["message"]
    client.answer(question, "x")
    assert client.result(1) == ["x"]


def test_a_threads_question_ends_with_its_call(client: Peer, tmp_path: Path) -> None:
    client.post(1, "leave_a_thread_asking", {"file": str(tmp_path / "said")})
    questions = {each["params"]["prompt"]: each for each in (client.asked(), client.asked())}
    client.answer(questions["From the method?"], "done")
    messages = [client.get(), client.get()]
    assert {"jsonrpc": "2.0", "id": 1, "result": "done"} in messages
    withdrawn = {"id": questions["From a thread?"]["id"]}
    assert withdrawn in [each.get("params") for each in messages]
    wait_for_file(tmp_path / "said")
    assert is_alive(client)


def test_a_call_that_is_over_asks_nothing(client: Peer) -> None:
    client.post(1, "keep_context")
    client.result(1)
    client.post(2, "use_context")
    assert "answered before" in client.result(2)


def test_at_the_end_nothing_is_asked_but_told(client: Peer) -> None:
    client.post(1, "keep_context")
    client.result(1)
    client.close_input()
    leaving, declined = client.get(), client.get()
    assert leaving["params"] == {"topic": "leaving", "params": {"at": "the end"}}
    assert declined["params"]["topic"] == "declined"
    assert client.wait()[0] == 0


# Emacs.


def test_values_go_to_lisp_and_come_back(client: Peer) -> None:
    client.post(1, "lisp_values")
    question = client.asked()
    assert question["method"] == "emacs/call"
    assert question["params"]["function"] == "f"
    assert question["params"]["args"] == [
        None, True, False, 1, 2.5, "x", [1],
        {"lisp": "list", "items": [1, "a"]},
        {"k": 1},
        {"lisp": "symbol", "name": "car"},
        {"lisp": "keyword", "name": "k"},
        {"lisp": "plist", "members": [["lisp", 1]]},
    ]  # fmt: skip
    back = [
        None, True, 1, "x", ["a"], {"k": [1]},
        {"lisp": "symbol", "name": "car"},
        {"lisp": "keyword", "name": "k"},
        {"lisp": "cons", "car": 1, "cdr": "b"},
        {"lisp": "handle", "id": 1, "type": "window", "text": "#<window 3>"},
        {"lisp": "plist", "members": [["lisp", 1]]},
    ]  # fmt: skip
    client.answer(question, back)
    assert client.result(1) == [
        "None", "True", "1", "'x'", "['a']", "{'k': [1]}", "Symbol('car')", "Keyword('k')",
        "(1, 'b')", "<Handle #<window 3>>", "{'lisp': 1}",
    ]  # fmt: skip


def test_an_error_in_lisp_is_an_exception(client: Peer) -> None:
    client.post(1, "lisp_error")
    question = client.asked()
    assert (question["method"], question["params"]["text"]) == ("emacs/eval", "(boo)")
    data = {"symbol": "void-function", "data": [{"lisp": "symbol", "name": "boo"}]}
    client.refuse(question, -32006, "Symbol's function definition is void: boo", data=data)
    said = "Symbol's function definition is void: boo"
    assert client.result(1) == {"text": said, "symbol": "void-function", "data": ["boo"]}


def test_an_error_in_lisp_that_nobody_catches_has_its_line() -> None:
    with peer("--debug") as client:
        client.post(1, "lisp", {"function": "boo", "arguments": []})
        client.refuse(client.asked(), -32006, "boo!", data={"symbol": "error", "data": ["boo!"]})
        data = client.error(1)["data"]
    assert (data["type"], data["text"]) == ("EmacsError", "boo!")
    line = next(
        n for n, text in enumerate(METHODS.read_text().splitlines(), 1) if "(function, *arg" in text
    )
    assert data["place"] == f"{METHODS}:{line}"


def test_a_buffers_text_is_fetched_when_it_is_wanted(client: Peer) -> None:
    handle = {"lisp": "handle", "id": 3, "type": "buffer", "text": "#<buffer x>"}
    fields = {
        "buffer": handle,
        "name": "x",
        "file": None,
        "mode": "text-mode",
        "point": 5,
        "mark": None,
    }
    client.post(1, "lisp_buffer", {"text": False})
    question = client.asked()
    assert question["method"] == "emacs/buffer"
    assert question["params"] == {"_meta": {"call": 7}}
    client.answer(question, fields)
    assert client.result(1) == ["x", None, "text-mode", 5, None]
    client.post(2, "lisp_buffer", {"text": True})
    client.answer(client.asked(), fields)
    question = client.asked()
    assert question["params"]["buffer"] == handle
    assert question["params"]["text"] is True
    client.answer(question, {**fields, "text": "hello"})
    assert client.result(2)[5:] == ["hello", "hello"], "once"


@pytest.mark.parametrize("answer", [None, {}, {"name": "x"}, [1]])
def test_a_buffer_that_is_none_fails_the_call(client: Peer, answer: object) -> None:
    client.post(1, "lisp_buffer", {"text": False})
    client.answer(client.asked(), answer)
    assert client.error(1)["code"] == -32803


def test_a_handle_is_kept_and_released(client: Peer) -> None:
    handle = {"lisp": "handle", "id": 3, "type": "buffer", "text": "#<buffer x>"}
    client.post(1, "keep_handle")
    client.answer(client.asked(), handle)
    assert client.result(1) == "<Handle #<buffer x>>"
    client.post(2, "use_handle")
    question = client.asked()
    assert question["params"]["args"] == [handle]
    assert "release" not in question["params"]
    client.answer(question, "x")
    assert client.result(2) == "x"
    client.post(3, "lisp", {"function": "f", "arguments": []})
    question = client.asked()
    assert question["params"]["release"] == [3]
    client.answer(question, 1)
    client.result(3)


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


def test_hostile_methods_ask_in_a_loop(client: Peer) -> None:
    client.post(1, "ask_in_a_loop")
    for _ in range(50):
        client.refuse(client.asked(), -32005)
    client.asked()
    client.send(notification("$/cancelRequest", {"id": 1}))
    assert client.get()["method"] == "$/cancelRequest"
    assert client.error(1)["code"] == -32800
