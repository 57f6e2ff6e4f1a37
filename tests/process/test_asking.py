"""A method asks its client and is told: questions, Lisp, and callers that cannot be asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peer import CAN, METHODS, Peer, client, is_alive, peer
from tests.support import frame, request, wait_for_file

__all__ = ["client"]


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
