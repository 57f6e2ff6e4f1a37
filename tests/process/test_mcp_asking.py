"""Methods that ask, tell and stream, as MCP tools: elicitation in both eras, log messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_client import MODERN, Mcp
from tests.peer import METHODS
from tests.support import SOURCE, daemon, shortest

CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
FORM: dict[str, object] = {"elicitation": {"form": {}}}


class Asked(Mcp):
    """A client that may be asked, of one version and with some capabilities."""

    capabilities: Mapping[str, object] = {}

    def get(self) -> dict[str, Any]:
        """Read one message, whatever it is."""
        message: dict[str, Any] = json.loads(self.receive_raw())
        return message

    def begin(self, name: str, arguments: object = None, **more: Any) -> int:
        """Call a tool; return the id of the call."""
        params = {"name": name, "arguments": arguments or {}, **more}
        if self.version == MODERN:
            params["_meta"] = {CAPABILITIES: self.capabilities, **more.get("_meta", {})}
        return self.post("tools/call", params)

    def answer(self, question: dict[str, Any], result: object) -> None:
        """Answer a question of the handshake era."""
        self.say({"jsonrpc": "2.0", "id": question["id"], "result": result})

    def get_result(self, id: int) -> Any:
        """Read the result of a call."""
        message = self.get()
        assert message.get("id") == id, message
        return message["result"]


@contextmanager
def client_of(version: str, capabilities: Mapping[str, object] = FORM) -> Iterator[Asked]:
    with daemon([*SOURCE, "mcp", "--methods", METHODS], framing="lines") as client:
        client.__class__ = Asked
        assert isinstance(client, Asked)
        client.version, client.capabilities = version, capabilities
        if version != MODERN:
            said = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": {}}
            client.ask("initialize", said)
        yield client


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


# The handshake era.


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
def test_a_question_is_an_elicitation(version: str) -> None:
    with client_of(version) as client:
        id = client.begin("name")
        question = client.get()
        assert question["method"] == "elicitation/create"
        assert question["params"].pop("mode", "form") == "form"
        assert question["params"] == {
            "message": "Name?",
            "requestedSchema": {
                "type": "object",
                "properties": {"answer": {"type": "string", "default": "nobody"}},
                "required": ["answer"],
            },
        }
        client.answer(question, {"action": "accept", "content": {"answer": "Ada"}})
        assert text_of(client.get_result(id)) == "hello Ada"


def test_yes_or_no_is_a_boolean() -> None:
    with client_of("2025-11-25") as client:
        id = client.begin("sure")
        question = client.get()
        schema = question["params"]["requestedSchema"]["properties"]["answer"]
        assert schema == {"type": "boolean"}
        client.answer(question, {"action": "accept", "content": {"answer": True}})
        assert client.get_result(id)["structuredContent"] == {"result": True}


@pytest.mark.parametrize(
    ("version", "schema"),
    [
        (
            "2025-06-18",
            {
                "type": "string",
                "enum": ["red", "green", "blue"],
                "enumNames": ["red (like fire)", "green (like grass)", "blue"],
            },
        ),
        (
            "2025-11-25",
            {
                "type": "string",
                "oneOf": [
                    {"const": "red", "title": "red (like fire)"},
                    {"const": "green", "title": "green (like grass)"},
                    {"const": "blue", "title": "blue"},
                ],
            },
        ),
    ],
)
def test_a_choice_is_an_enum(version: str, schema: object) -> None:
    with client_of(version) as client:
        id = client.begin("pick")
        question = client.get()
        assert question["params"]["requestedSchema"]["properties"]["answer"] == schema
        client.answer(question, {"action": "accept", "content": {"answer": "blue"}})
        assert text_of(client.get_result(id)) == "blue"


def test_several_choices_are_boxes_where_there_are_no_lists() -> None:
    with client_of("2025-06-18") as client:
        id = client.begin("pick", {"multiple": True})
        question = client.get()
        fields = question["params"]["requestedSchema"]["properties"]
        box = {"type": "boolean", "default": False}
        assert fields == {"red": box, "green": box, "blue": box}
        chosen = {"red": True, "green": False, "blue": True}
        client.answer(question, {"action": "accept", "content": chosen})
        assert client.get_result(id)["structuredContent"] == {"result": ["red", "blue"]}


def test_several_choices_are_a_list() -> None:
    with client_of("2025-11-25") as client:
        id = client.begin("pick", {"multiple": True})
        question = client.get()
        schema = question["params"]["requestedSchema"]["properties"]["answer"]
        assert schema["type"] == "array"
        client.answer(question, {"action": "accept", "content": {"answer": ["red"]}})
        assert client.get_result(id)["structuredContent"] == {"result": ["red"]}


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_declined_elicitation_is_a_tool_error(action: str) -> None:
    with client_of("2025-11-25") as client:
        id = client.begin("name")
        client.answer(client.get(), {"action": action})
        result = client.get_result(id)
    assert result["isError"] is True
    assert "the user did not answer" in text_of(result)


@pytest.mark.parametrize(
    "answer",
    [None, {}, {"action": "maybe"}, {"action": "accept"}, {"action": "accept", "content": {}}],
)
def test_an_answer_that_is_none_is_a_tool_error(answer: object) -> None:
    with client_of("2025-11-25") as client:
        id = client.begin("name")
        client.answer(client.get(), answer)
        assert client.get_result(id)["isError"] is True


def test_an_error_for_an_answer_is_a_tool_error() -> None:
    with client_of("2025-11-25") as client:
        id = client.begin("name")
        error = {"code": -32800, "message": "no"}
        client.say({"jsonrpc": "2.0", "id": client.get()["id"], "error": error})
        assert client.get_result(id)["isError"] is True


@pytest.mark.parametrize(
    ("version", "capabilities"),
    [
        ("2024-11-05", FORM),
        ("2025-03-26", FORM),
        ("2025-11-25", {}),
        ("2025-11-25", {"elicitation": {"url": {}}}),
        ("2025-11-25", {"elicitation": True}),
        (MODERN, {}),
    ],
)
def test_a_client_without_elicitation_is_told_so(
    version: str, capabilities: Mapping[str, object]
) -> None:
    with client_of(version, capabilities) as client:
        result = client.get_result(client.begin("name"))
    assert result["isError"] is True
    assert "no elicitation" in text_of(result)


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
def test_mcp_never_asks_for_emacs_or_a_secret(version: str) -> None:
    everything = {**FORM, "emacs": {}, "experimental": {"emacs": {}}}
    with client_of(version, everything) as client:
        meta = {"_meta": {"client": {"can": ["emacs", "ask"]}}}
        arguments = {"function": "f", "arguments": []}
        result = client.get_result(client.begin("lisp", arguments, **meta))
        assert "ctx.emacs needs a call from Emacs" in text_of(result)
        result = client.get_result(client.begin("secret"))
        assert "secret" in text_of(result)


def test_ping_is_answered_while_a_tool_runs(tmp_path: Path) -> None:
    with client_of("2025-11-25") as client:
        call = client.begin("busy", {"file": str(tmp_path / "go")})
        ping = client.post("ping")
        assert client.get() == {"jsonrpc": "2.0", "id": ping, "result": {}}
        (tmp_path / "go").touch()
        assert text_of(client.get_result(call)) == "done"


def test_lists_and_pings_are_answered_while_a_tool_waits() -> None:
    with client_of("2025-11-25") as client:
        call = client.begin("name")
        question = client.get()
        for method in ("ping", "tools/list"):
            assert client.get_result(client.post(method)) is not None
        client.answer(question, {"action": "accept", "content": {"answer": "Ada"}})
        assert text_of(client.get_result(call)) == "hello Ada"


def test_a_cancelled_call_withdraws_its_elicitation() -> None:
    with client_of("2025-11-25") as client:
        call = client.begin("name")
        question = client.get()
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        client.say({**cancel, "params": {"requestId": call}})
        assert client.get() == {**cancel, "params": {"requestId": question["id"]}}
        ping = client.post("ping")
        assert client.get()["id"] == ping, "no reply follows a cancel"


def test_a_client_that_leaves_a_question_is_not_waited_for() -> None:
    def attempt() -> float:
        with client_of("2025-11-25") as client:
            client.begin("name")
            client.get()
            client.close_input()
            code, seconds = client.wait()
            assert code == 0
            return seconds

    assert shortest(attempt, 1.0) < 1.0


# The stateless era.


def test_a_stateless_answer_comes_with_the_next_call(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    with client_of(MODERN) as client:
        arguments = {"file": str(runs)}
        result = client.get_result(client.begin("two_questions", arguments))
        assert result["resultType"] == "input_required"
        assert set(result["inputRequests"]) == {"question-1"}
        asked = result["inputRequests"]["question-1"]
        assert asked["method"] == "elicitation/create"
        assert asked["params"]["message"] == "First?"
        given = {"question-1": {"action": "accept", "content": {"answer": "7"}}}
        state = result["requestState"]
        again = {"inputResponses": given, "requestState": state}
        result = client.get_result(client.begin("two_questions", arguments, **again))
        assert result["resultType"] == "input_required"
        asked = result["inputRequests"]["question-2"]
        assert asked["params"]["message"] == "Is it 7?"
        given = {"question-2": {"action": "accept", "content": {"answer": True}}}
        again = {"inputResponses": given, "requestState": result["requestState"]}
        result = client.get_result(client.begin("two_questions", arguments, **again))
        assert result["resultType"] == "complete"
        assert text_of(result) == "7"
    assert runs.read_text() == "run\n" * 3, "from its beginning, for each answer"


def test_an_answer_that_is_missing_is_asked_for_again(tmp_path: Path) -> None:
    with client_of(MODERN) as client:
        arguments = {"file": str(tmp_path / "runs")}
        first = client.get_result(client.begin("two_questions", arguments))
        for responses in (None, {}, {"other": {"action": "accept"}}, {"question-1": 5}):
            again = {"inputResponses": responses, "requestState": first["requestState"]}
            result = client.get_result(client.begin("two_questions", arguments, **again))
            assert set(result["inputRequests"]) == {"question-1"}


def test_a_method_that_catches_everything_is_asked_all_the_same() -> None:
    with client_of(MODERN) as client:
        result = client.get_result(client.begin("swallow"))
        assert result["resultType"] == "input_required"


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_declined_input_is_a_tool_error(action: str) -> None:
    with client_of(MODERN) as client:
        state = client.get_result(client.begin("name"))["requestState"]
        again = {"inputResponses": {"question-1": {"action": action}}, "requestState": state}
        result = client.get_result(client.begin("name", **again))
    assert result["isError"] is True


def test_a_state_that_was_changed_is_refused(tmp_path: Path) -> None:
    with client_of(MODERN) as client:
        arguments = {"file": str(tmp_path / "runs")}
        state = client.get_result(client.begin("two_questions", arguments))["requestState"]
        body, _, signature = state.partition(".")
        wrong = ["", "x", 5, body, f"{body}.", f"A{state}", f"{body}.{signature[:-1]}0x", "é.é"]
        for each in wrong:
            client.begin("two_questions", arguments, requestState=each)
            assert client.get()["error"]["code"] == -32602, each


def test_a_state_of_another_call_is_refused(tmp_path: Path) -> None:
    with client_of(MODERN) as client:
        arguments = {"file": str(tmp_path / "runs")}
        state = client.get_result(client.begin("two_questions", arguments))["requestState"]
        client.begin("name", requestState=state)
        assert client.get()["error"]["code"] == -32602
        other = {"file": str(tmp_path / "other")}
        client.begin("two_questions", other, requestState=state)
        assert client.get()["error"]["code"] == -32602


# Telling, and streams.


def test_what_is_said_is_a_log_message() -> None:
    with client_of("2025-11-25") as client:
        id = client.begin("tell", {"text": "hear this"})
        said = client.get()
        assert said["method"] == "notifications/message"
        assert said["params"] == {"level": "info", "logger": "duet-rpc", "data": "hear this"}
        client.get_result(id)


def test_a_client_that_wants_only_errors_gets_no_messages() -> None:
    with client_of("2025-11-25") as client:
        assert client.ask("logging/setLevel", {"level": "error"})["result"] == {}
        client.get_result(client.begin("tell", {"text": "hear this"}))
        assert client.ask("logging/setLevel", {"level": "debug"})["result"] == {}
        client.begin("tell", {"text": "hear this"})
        assert client.get()["method"] == "notifications/message"


@pytest.mark.parametrize("level", [None, "loud", 5, "INFO"])
def test_a_level_that_there_is_not_is_refused(level: object) -> None:
    with client_of("2025-11-25") as client:
        assert client.ask("logging/setLevel", {"level": level})["error"]["code"] == -32602


def test_a_stateless_request_sets_its_own_log_level() -> None:
    with client_of(MODERN) as client:
        client.get_result(client.begin("tell", {"text": "hear this"}))
        id = client.begin("tell", {"text": "hear this"}, _meta={LOG_LEVEL: "info"})
        assert client.get()["params"]["data"] == "hear this"
        client.get_result(id)
        client.get_result(client.begin("tell", {"text": "x"}, _meta={LOG_LEVEL: "error"}))
        client.begin("tell", {"text": "x"}, _meta={LOG_LEVEL: "loud"})
        assert client.get()["error"]["code"] == -32602


def test_notify_is_a_log_message_with_its_topic() -> None:
    with client_of("2025-11-25") as client:
        id = client.begin("push", {"topic": "files", "count": 1})
        messages = [client.get(), client.get()]
        assert id in [each.get("id") for each in messages]
        pushed = next(each for each in messages if "method" in each)
        assert pushed["params"] == {"level": "info", "logger": "files", "data": {"number": 0}}


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
def test_a_stream_is_collected(version: str) -> None:
    with client_of(version) as client:
        assert text_of(client.get_result(client.begin("count", {"n": 3}))) == "0 1 2 "
        rows = client.get_result(client.begin("rows", {"n": 2}))["structuredContent"]
        assert rows == {"result": [{"row": 0}, {"row": 1}]}
