"""`duet-rpc mcp --gateway` between clients and servers of both eras of MCP."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import SHORT_TIMES, write_config
from tests.gateway import mcp_server as server
from tests.mcp_client import HANDSHAKE, MODERN, Mcp
from tests.support import PATIENCE, SOURCE, TOP, wait_until

# Lists are to have what the servers have: this machine may be slow.
PATIENT = [*SHORT_TIMES, "list_at_once=3", "--"]
PREFIX = "io.modelcontextprotocol/"
ERAS = ["handshake", "stateless"]
CLIENTS = ["2025-06-18", "2025-11-25", MODERN]
ABLE: dict[str, object] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
QUESTION = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
ELICIT = ["elicitation/create", QUESTION]
ANSWER = {"action": "accept", "content": {"name": "x"}}


class AnyClient(Mcp):
    """A client of one version; what is no reply is kept apart."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.notes: list[dict[str, Any]] = []
        self.capabilities: Mapping[str, object] = {}

    def post(self, method: str, params: Mapping[str, object] | None = None) -> int:
        """Send a request; return its id."""
        said: dict[str, Any] = dict(params or {})
        if self.version == MODERN:
            can = {PREFIX + "clientCapabilities": self.capabilities}
            said["_meta"] = {**can, **said.get("_meta", {})}
        return super().post(method, said)

    def get(self) -> dict[str, Any]:
        """Read one message, whatever it is."""
        message: dict[str, Any] = json.loads(super().receive_raw())
        return message

    def receive_raw(self) -> bytes:
        """Read the next reply."""
        while True:
            body = super().receive_raw()
            message = json.loads(body)
            if "method" not in message:
                return body
            self.notes.append(message)

    def note(self, method: str) -> dict[str, Any]:
        """Wait for a request or a notification of the server."""
        while True:
            for at, found in enumerate(self.notes):
                if found["method"] == method:
                    return self.notes.pop(at)
            message = self.get()
            assert "method" in message, message
            self.notes.append(message)

    def text(self, name: str, /, **arguments: object) -> Any:
        """Call a tool of `mcp_server.py`; return what it has to say."""
        return json.loads(self.tool(name, **arguments)["content"][0]["text"])

    def requests_seen(self, name: str, method: str) -> list[Any]:
        """Return the requests of a method that a server has had."""
        return [each for each in self.text(f"{name}__seen") if each.get("method") == method]


@contextmanager
def serve(
    tmp_path: Path,
    version: str,
    backends: Mapping[str, Mapping[str, object]],
    *flags: str,
    capabilities: Mapping[str, object] | None = None,
    program: Sequence[str] = PATIENT,
    command: Sequence[str] = ("mcp", "--gateway"),
) -> Iterator[AnyClient]:
    """Run `duet-rpc mcp --gateway` for a client of one version."""
    config = write_config(tmp_path / "config.toml", backends)
    env = {
        "DUET_RPC_CONFIG": str(config),
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "DUET_RPC_LOG": str(tmp_path / "log"),
    }
    client = AnyClient([*program, *command, *flags], env, framing="lines", cwd=TOP)
    client.capabilities = ABLE if capabilities is None else capabilities
    try:
        if version in HANDSHAKE:
            said = {"protocolVersion": version, "capabilities": client.capabilities}
            client.ask("initialize", said)
            client.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        client.version = version
        yield client
    finally:
        client.close_input()
        client.process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("version", [HANDSHAKE[0], *CLIENTS])
def test_every_client_calls_tools_of_every_server(tmp_path: Path, version: str, era: str) -> None:
    with serve(tmp_path, version, {"m": server(era)}) as client:
        result = client.tool("m__other", x=1.0)
        assert json.loads(result["content"][0]["text"]) == ["other", {"x": 1.0}]
        assert result.get("resultType") == ("complete" if version == MODERN else None)
        assert "ttlMs" not in result
        listed = client.ask("tools/list")["result"]
        assert "m__seen" in {each["name"] for each in listed["tools"]}
        assert ("ttlMs" in listed) == ("cacheScope" in listed) == (version == MODERN)


@pytest.mark.parametrize("version", CLIENTS)
def test_client_metadata_is_not_sent_to_a_handshake_server(tmp_path: Path, version: str) -> None:
    with serve(tmp_path, version, {"m": server()}) as client:
        meta = {"progressToken": "t", "mine": 1.0, PREFIX + "logLevel": "error"}
        client.ask("tools/call", {"name": "m__x", "_meta": meta, "inputResponses": {}})
        (call,) = client.requests_seen("m", "tools/call")[:1]
        assert set(call["params"]) == {"name", "_meta"}
        assert set(call["params"]["_meta"]) == {"progressToken", "mine"}
        (hello,) = client.requests_seen("m", "initialize")
        assert hello["params"]["protocolVersion"] == (
            "2025-11-25" if version == MODERN else version
        )
        assert hello["params"]["capabilities"] == ABLE


@pytest.mark.parametrize("version", CLIENTS)
def test_a_stateless_server_gets_client_metadata_with_each_request(
    tmp_path: Path, version: str
) -> None:
    with serve(tmp_path, version, {"m": server("stateless")}) as client:
        client.tools()
        seen = client.text("m__seen")
        assert [each["method"] for each in seen][:2] == ["initialize", "server/discover"]
        for each in seen[1:]:
            if "id" in each:
                meta = each["params"]["_meta"]
                assert meta[PREFIX + "protocolVersion"] == MODERN
                assert meta[PREFIX + "clientCapabilities"] == ABLE


def test_a_server_that_speaks_neither_is_reported(tmp_path: Path) -> None:
    with serve(tmp_path, MODERN, {"m": server("neither"), "ok": server()}) as client:
        assert "ok__seen" in client.tools()
        reply = client.ask("tools/call", {"name": "m__x"})
        assert 'refused the handshake with "what?"' in reply["error"]["message"]


# What servers ask.


def finish(client: AnyClient, params: dict[str, Any], answers: list[object]) -> Any:
    """Make a call, answer what is asked in the client's era, and return the result."""
    id = client.post("tools/call", params)
    if client.version != MODERN:
        for answer in answers:
            question = client.get()
            assert question["method"] in ("elicitation/create", "roots/list"), question
            client.say({"jsonrpc": "2.0", "id": question["id"], "result": answer})
        reply = client.get()
        assert reply["id"] == id
        return reply["result"]
    result = client.receive()["result"]
    while result["resultType"] == "input_required":  # a server may ask one after the other
        responses = {
            key: answers[["elicitation/create", "roots/list"].index(each["method"])]
            for key, each in result["inputRequests"].items()
        }
        again = {**params, "inputResponses": responses, "requestState": result["requestState"]}
        result = client.ask("tools/call", again)["result"]
    return result


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("version", CLIENTS)
def test_every_client_answers_what_every_server_asks(
    tmp_path: Path, version: str, era: str
) -> None:
    questions = [ELICIT, ["roots/list", {}]]
    params = {"name": "m__ask", "arguments": {"questions": questions}}
    roots: object = {"roots": [{"uri": "file:///x"}]}
    with serve(tmp_path, version, {"m": server(era)}) as client:
        result = finish(client, params, [ANSWER, roots])
        said = json.loads(result["content"][0]["text"])
        if era == "stateless":
            assert said == ["the state", {"k0": ANSWER, "k1": roots}]
        else:
            assert said == [ANSWER, roots]
        assert client.text("m__x") == ["x", {}]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("version", CLIENTS)
def test_what_the_client_cannot_answer_is_not_offered(
    tmp_path: Path, version: str, era: str
) -> None:
    params = {"name": "m__ask", "arguments": {"questions": [["sampling/createMessage", {}]]}}
    can: dict[str, object] = {"roots": {}}
    with serve(tmp_path, version, {"m": server(era)}, capabilities=can) as client:
        result = client.ask("tools/call", params)["result"]
        if era == "handshake":
            (error,) = json.loads(result["content"][0]["text"])
            assert error["code"] in (-32601, -32803)
        elif version == MODERN:  # between the two of them
            assert result["resultType"] == "input_required"
        else:
            assert result["isError"]
            assert "sampling/createMessage" in result["content"][0]["text"]
        method = "initialize" if era == "handshake" else "tools/call"
        seen = client.requests_seen("m", method)[0]["params"]
        key = PREFIX + "clientCapabilities"
        assert (seen["capabilities"] if era == "handshake" else seen["_meta"][key]) == can


@pytest.mark.parametrize("forged", ["", "x", None, 5, "other"])
def test_a_request_state_counts_once_and_for_its_call_alone(tmp_path: Path, forged: object) -> None:
    params = {"name": "m__ask", "arguments": {"questions": [ELICIT]}}
    backends = {"m": server(), "n": server()}
    with serve(tmp_path, MODERN, backends) as client:
        state = client.ask("tools/call", params)["result"]["requestState"]
        responses = {"inputResponses": {"question-1": ANSWER}, "requestState": state}
        if forged == "other":
            for other in ({**params, "name": "n__ask"}, {**params, "arguments": {"questions": []}}):
                reply = client.ask("tools/call", {**other, **responses})
                assert "requestState" in reply["error"]["message"]
        elif forged is not None:
            reply = client.ask("tools/call", {**params, **responses, "requestState": forged})
            assert "requestState" in reply["error"]["message"]
        assert json.loads(
            client.ask("tools/call", {**params, **responses})["result"]["content"][0]["text"]
        ) == [ANSWER]
        replayed = client.ask("tools/call", {**params, **responses})
        assert "requestState" in replayed["error"]["message"]


def test_a_question_that_was_not_answered_is_asked_again(tmp_path: Path) -> None:
    params: dict[str, object] = {"name": "m__ask", "arguments": {"questions": [ELICIT, ELICIT]}}
    with serve(tmp_path, MODERN, {"m": server()}) as client:

        def ask(answers: Mapping[str, object]) -> dict[str, Any]:
            """Call again, with answers to what the call before has asked."""
            again = {"requestState": result["requestState"], "inputResponses": answers}
            found: dict[str, Any] = client.ask("tools/call", {**params, **again})["result"]
            return found

        result = client.ask("tools/call", params)["result"]
        while len(result["inputRequests"]) < 2:  # its questions may come one by one
            result = ask({})
        for answers in ({}, {"question-2": ANSWER}, {"question-9": ANSWER, "question-1": 5}):
            result = ask(answers)
        assert list(result["inputRequests"]) == ["question-1"]
        result = ask({"question-1": ANSWER})
        assert json.loads(result["content"][0]["text"]) == [ANSWER, ANSWER]


def test_a_server_that_exits_ends_a_call_that_waits_for_an_answer(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    params: dict[str, object] = {"name": "m__ask", "arguments": {"questions": [ELICIT]}}
    with serve(tmp_path, MODERN, {"m": server(pids=pids)}) as client:
        state = client.ask("tools/call", params)["result"]["requestState"]
        os.kill(int(pids.read_text()), signal.SIGKILL)
        wait_until(lambda: len(pids.read_text().split()) == 2, "it is started again")
        assert client.text("m__x") == ["x", {}]
        again = {**params, "requestState": state, "inputResponses": {"question-1": ANSWER}}
        assert client.ask("tools/call", again)["error"]["data"]["backend"] == "m"
        assert not [each for each in client.text("m__seen") if "method" not in each]


def test_a_client_that_does_not_come_back_is_not_waited_for(tmp_path: Path) -> None:
    params: dict[str, object] = {"name": "m__ask", "arguments": {"questions": [ELICIT]}}
    program = [*PATIENT[:-1], "answer=0.2", "--"]
    with serve(tmp_path, MODERN, {"m": server()}, program=program) as client:
        state = client.ask("tools/call", params)["result"]["requestState"]
        ended = ["notifications/cancelled"]  # and the question has an answer before
        wait_until(
            lambda: [each.get("method") for each in client.text("m__seen")].count(*ended) == 1,
            "the call is cancelled",
        )
        (answer,) = [each for each in client.text("m__seen") if "method" not in each]
        assert answer["error"]["code"] == -32803
        again = {**params, "requestState": state, "inputResponses": {"question-1": ANSWER}}
        assert "requestState" in client.ask("tools/call", again)["error"]["message"]


def test_a_call_that_is_cancelled_takes_its_questions_along(tmp_path: Path) -> None:
    params = {"name": "m__ask", "arguments": {"questions": [ELICIT]}}
    with serve(tmp_path, "2025-11-25", {"m": server("stateless")}) as client:
        id = client.post("tools/call", params)
        question = client.note("elicitation/create")
        cancel = {"requestId": id}
        client.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel})
        assert client.note("notifications/cancelled")["params"] == {"requestId": question["id"]}
        client.say({"jsonrpc": "2.0", "id": question["id"], "result": ANSWER})
        assert client.text("m__x") == ["x", {}]


def test_a_client_that_refuses_a_question_fails_the_call(tmp_path: Path) -> None:
    params = {"name": "m__ask", "arguments": {"questions": [ELICIT]}}
    with serve(tmp_path, "2025-11-25", {"m": server("stateless")}) as client:
        id = client.post("tools/call", params)
        question = client.note("elicitation/create")
        error = {"code": -1, "message": "not now"}
        client.say({"jsonrpc": "2.0", "id": question["id"], "error": error})
        reply = client.receive()
        assert reply["id"] == id
        assert reply["result"]["isError"]
        assert "not now" in reply["result"]["content"][0]["text"]


def test_ping_is_answered_while_a_tool_runs(tmp_path: Path) -> None:
    with serve(tmp_path, "2025-11-25", {"m": server()}) as client:
        client.text("m__x")
        client.post("tools/call", {"name": "m__hold"})
        assert client.ask("ping")["result"] == {}


ASKING = """\
from duet_rpc import Context, method

@method
def who(ctx: Context) -> str:
    return ctx.ask("Who?") + "!"
"""


@pytest.mark.parametrize("version", CLIENTS)
def test_ones_own_methods_ask_behind_the_router(tmp_path: Path, version: str) -> None:
    methods = tmp_path / "asking.py"
    methods.write_text(ASKING)
    answer = {"action": "accept", "content": {"answer": "you"}}
    with serve(tmp_path, version, {}, "--methods", str(methods)) as client:
        params: dict[str, object] = {"name": "who", "arguments": {}}
        id = client.post("tools/call", params)
        if version == MODERN:
            result = client.receive()["result"]
            (key,) = result["inputRequests"]
            state = result["requestState"]
            again = {**params, "requestState": state, "inputResponses": {key: answer}}
            result = client.ask("tools/call", again)["result"]
        else:
            question = client.note("elicitation/create")
            client.say({"jsonrpc": "2.0", "id": question["id"], "result": answer})
            reply = client.receive()
            assert reply["id"] == id
            result = reply["result"]
        assert result["structuredContent"] == {"result": "you!"}


def test_a_first_worker_can_ask_the_client_of_a_running_server(tmp_path: Path) -> None:
    folder = tmp_path / "duet-rpc" / "methods"
    folder.mkdir(parents=True)
    answer = {"action": "accept", "content": {"answer": "you"}}
    with serve(tmp_path, "2025-11-25", {}, program=SOURCE, command=["mcp"]) as client:
        assert client.tools() == {}
        (folder / "asking.py").write_text("# /// script\n# ///\n" + ASKING)
        id = client.post("tools/call", {"name": "who"})
        question = client.note("elicitation/create")
        client.say({"jsonrpc": "2.0", "id": question["id"], "result": answer})
        reply = client.receive()
        assert (reply["id"], reply["result"]["structuredContent"]) == (id, {"result": "you!"})
