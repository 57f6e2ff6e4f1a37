"""`duet-rpc mcp`: `@resource` and `@prompt` of the user's files, in both eras."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_client import HANDSHAKE, MODERN, Mcp
from tests.process.test_mcp_asking import FORM, Asked
from tests.support import SOURCE, wait_for_file
from tests.terminal import environment, invoke

FILE = '''
from typing import Literal
from duet_rpc import Context, Image, Message, RpcError, Text, method, prompt, resource

@resource("notes://{name}")
def note(name: str) -> str:
    """Return a note."""
    return f"note {name}"

@resource("notes://index", mime_type="text/markdown", title="All notes")
def index() -> str:
    return "- todo"

@resource("docs://{+path}")
def doc(path: str):
    return {"path": path}

@resource("page://{number}/{style}")
def page(number: int, style: Literal["plain", "rich"], extra: bool = False) -> str:
    return repr((number, style, extra))

@resource("blob://hinted")
def hinted() -> bytes:
    return bytes(range(256))

@resource("blob://not-hinted")
def not_hinted():
    return bytearray(b"abc")

@resource("picture://dot")
def dot() -> Image:
    return Image(b"\\x89PNG\\r\\n\\x1a\\n")

@resource("text://org")
def org() -> Text:
    return Text("* x", mode="org-mode")

@resource("big://{size}")
def big(size: int) -> str:
    return "x" * size

@resource("broken://{how}")
def broken(how: str) -> str:
    if how == "refused":
        raise RpcError(-32002, "no such thing", {"how": how})
    if how == "type":
        return 5
    raise KeyError("a secret")

@resource("asked://{name}")
def asked(name: str, ctx: Context) -> str:
    return name + ctx.ask("Which?")

@prompt
def review(code: str, style: Literal["short", "long"] = "short", times: int = 1) -> str:
    """Review some code.

    Args:
        code: what to look at
    """
    return f"{style} x{times}: {code}"

@prompt("talk.start", title="Start to talk")
def talk() -> list[Message]:
    return [Message("user", "hello"), Message("assistant", "hi")]

@prompt
def mixed():
    return ["one", Message("assistant", "two")]

@prompt
def wrong():
    return 5

@prompt
def wondering(ctx: Context) -> str:
    return ctx.ask("What?")

@method
def plain() -> int:
    return 1
'''


def terminal(home: Path, *words: str | Path) -> str:
    """Run a command; return what it prints."""
    code, printed, complaint = invoke(words, environment(home))
    assert code == 0, complaint
    return printed


BOTH = ["2025-11-25", MODERN]


@contextmanager
def client_of(
    file: Path, version: str = BOTH[0], capabilities: object = None, text: str = FILE
) -> Iterator[Asked]:
    file.write_text(text)
    client = Asked([*SOURCE, "mcp", "--methods", file], framing="lines")
    try:
        if version in HANDSHAKE:
            said = {"protocolVersion": version, "capabilities": capabilities or {}}
            client.ask("initialize", said)
        client.version = version
        yield client
    finally:
        client.process.kill()
        client.process.communicate()


def read(client: Mcp, uri: str) -> Any:
    reply = client.ask("resources/read", {"uri": uri})
    [content] = reply["result"]["contents"]
    assert content.pop("uri") == uri
    return content


def error(client: Mcp, method: str, **params: object) -> Any:
    return client.ask(method, params)["error"]


# Lists.


@pytest.mark.parametrize("version", [*HANDSHAKE, MODERN])
def test_every_kind_has_its_list(tmp_path: Path, version: str) -> None:
    with client_of(tmp_path / "own.py", version) as client:
        resources = client.ask("resources/list")["result"]
        by_uri = {each["uri"]: each for each in resources["resources"]}
        title = {"title": "All notes"} if version >= "2025-06-18" else {}
        assert by_uri["notes://index"] == {
            "uri": "notes://index",
            "name": "index",
            **title,
            "description": "Index",
            "mimeType": "text/markdown",
        }
        assert by_uri["blob://hinted"]["mimeType"] == "application/octet-stream"
        assert "mimeType" not in by_uri["picture://dot"]
        templates = client.ask("resources/templates/list")["result"]
        assert templates["resourceTemplates"][0] == {
            "uriTemplate": "notes://{name}",
            "name": "note",
            "description": "Return a note.",
            "mimeType": "text/plain",
        }
        prompts = client.ask("prompts/list")["result"]
        assert prompts["prompts"][0] == {
            "name": "review",
            "description": "Review some code.",
            "arguments": [
                {"name": "code", "description": "what to look at", "required": True},
                {"name": "style", "description": "(short|long)", "required": False},
                {"name": "times", "description": "(integer)", "required": False},
            ],
        }
        assert [each["name"] for each in prompts["prompts"]][1] == "talk.start"
        assert [*client.tools()] == ["plain"]
        for result in (resources, templates, prompts):
            assert ("ttlMs" in result) is (version == MODERN)


def test_a_saved_file_changes_the_lists_that_were_seen(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    with client_of(file) as client:
        client.ask("resources/list")
        client.ask("prompts/list")
        client.tools()
        file.write_text(FILE.replace("notes://index", "notes://all").replace("talk.start", "talk"))
        id = client.post("tools/call", {"name": "plain"})
        seen = [client.get() for _ in range(3)]
        assert [each.get("method") for each in seen] == [
            "notifications/resources/list_changed",
            "notifications/prompts/list_changed",
            None,
        ]
        assert seen[-1]["id"] == id
        assert "notes://all" in json.dumps(client.ask("resources/list"))


def test_a_saved_file_does_not_announce_what_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    with client_of(file) as client:
        client.ask("resources/templates/list")
        file.write_text(FILE.replace("notes://{", "memos://{"))
        assert "memos://{name}" in json.dumps(client.ask("resources/templates/list"))


# Resources.


@pytest.mark.parametrize("version", BOTH)
def test_what_is_read_has_its_type(tmp_path: Path, version: str) -> None:
    with client_of(tmp_path / "own.py", version) as client:
        assert read(client, "notes://a%20b") == {"mimeType": "text/plain", "text": "note a b"}
        assert read(client, "notes://index") == {"mimeType": "text/markdown", "text": "- todo"}
        found = read(client, "docs://a/b.md")
        assert found == {"mimeType": "application/json", "text": '{"path":"a/b.md"}'}
        found = read(client, "blob://hinted")
        assert found["mimeType"] == "application/octet-stream"
        assert base64.b64decode(found["blob"]) == bytes(range(256))
        assert base64.b64decode(read(client, "blob://not-hinted")["blob"]) == b"abc"
        assert read(client, "picture://dot")["mimeType"] == "image/png"
        assert read(client, "text://org") == {"mimeType": "text/plain", "text": "* x"}
        result = client.ask("resources/read", {"uri": "notes://x"})["result"]
        assert ("ttlMs" in result) is ("resultType" in result) is (version == MODERN)


def test_variables_are_checked_as_parameters_are(tmp_path: Path) -> None:
    with client_of(tmp_path / "own.py") as client:
        assert read(client, "page://12/rich")["text"] == "(12, 'rich', False)"
        wrong = error(client, "resources/read", uri="page://twelve/rich")
        assert wrong["code"] == -32602
        assert wrong["data"]["param"] == "number"
        assert error(client, "resources/read", uri="page://1/odd")["data"]["param"] == "style"


@pytest.mark.parametrize(("version", "code"), [(BOTH[0], -32002), (BOTH[1], -32602)])
@pytest.mark.parametrize("uri", ["notes://../x", "notes://%2e%2e%2fx", "docs://a/../../b", "no://"])
def test_a_uri_that_names_nothing_is_not_found(
    tmp_path: Path, version: str, code: int, uri: str
) -> None:
    with client_of(tmp_path / "own.py", version) as client:
        wrong = error(client, "resources/read", uri=uri)
        assert (wrong["code"], wrong["data"]) == (code, {"uri": uri})


def test_a_resource_that_fails_says_no_more_than_a_tool(tmp_path: Path) -> None:
    with client_of(tmp_path / "own.py") as client:
        refused = error(client, "resources/read", uri="broken://refused")
        assert refused == {"code": -32002, "message": "no such thing", "data": {"how": "refused"}}
        failed = error(client, "resources/read", uri="broken://bug")
        assert failed["code"] == -32603
        assert "broken failed" in failed["message"]
        assert "secret" not in json.dumps(failed)
        assert "its signature" in error(client, "resources/read", uri="broken://type")["message"]
        assert error(client, "resources/read", uri=5)["code"] == -32602


def test_debug_tells_the_log_and_not_the_client(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(FILE)
    client = Mcp([*SOURCE, "mcp", "--debug", "--methods", file], framing="lines")
    client.ask("initialize", {"protocolVersion": BOTH[0], "capabilities": {}})
    failed = error(client, "resources/read", uri="broken://bug")
    assert "secret" not in json.dumps(failed)
    client.process.kill()
    assert b"a secret" in client.process.communicate()[1]


def test_ping_is_answered_while_a_resource_is_read(tmp_path: Path) -> None:
    text = (
        "import pathlib, time\nfrom duet_rpc import resource\n@resource('slow://it')\n"
        f"def slow():\n    pathlib.Path({str(tmp_path / 'began')!r}).touch()\n    time.sleep(60)\n"
    )
    with client_of(tmp_path / "own.py", text=text) as client:
        client.post("resources/read", {"uri": "slow://it"})
        wait_for_file(tmp_path / "began")
        assert client.ask("ping")["result"] == {}


def test_a_large_resource_arrives_whole(tmp_path: Path) -> None:
    with client_of(tmp_path / "own.py") as client:
        assert len(read(client, "big://5000000")["text"]) == 5_000_000
        assert read(client, "notes://x")["text"] == "note x"


# Prompts.


@pytest.mark.parametrize("version", BOTH)
def test_a_prompt_is_messages(tmp_path: Path, version: str) -> None:
    with client_of(tmp_path / "own.py", version) as client:

        def get(name: str, **arguments: object) -> list[tuple[str, str]]:
            result = client.ask("prompts/get", {"name": name, "arguments": arguments})["result"]
            assert all(each["content"]["type"] == "text" for each in result["messages"])
            return [(each["role"], each["content"]["text"]) for each in result["messages"]]

        assert get("review", code="1", times="3") == [("user", "short x3: 1")]
        assert get("talk.start") == [("user", "hello"), ("assistant", "hi")]
        assert get("mixed") == [("user", "one"), ("assistant", "two")]


def test_a_wrong_request_for_a_prompt_is_refused(tmp_path: Path) -> None:
    with client_of(tmp_path / "own.py") as client:
        missing = error(client, "prompts/get", name="review", arguments={})
        assert (missing["code"], missing["data"]["param"]) == (-32602, "code")
        given = {"code": "x", "times": "many"}
        wrong = error(client, "prompts/get", name="review", arguments=given)
        assert (wrong["code"], wrong["data"]["param"]) == (-32602, "times")
        for params in ({}, {"name": "plain"}, {"name": "talk.start", "arguments": []}):
            assert error(client, "prompts/get", **params)["code"] == -32602
        assert error(client, "prompts/get", name="wrong")["code"] == -32603


# Completion.


@pytest.mark.parametrize("version", BOTH)
def test_choices_are_completed(tmp_path: Path, version: str) -> None:
    with client_of(tmp_path / "own.py", version) as client:

        def values(ref: object, name: str, value: str) -> object:
            said = {"ref": ref, "argument": {"name": name, "value": value}}
            return client.ask("completion/complete", said)["result"]["completion"]["values"]

        review = {"type": "ref/prompt", "name": "review"}
        page = {"type": "ref/resource", "uri": "page://{number}/{style}"}
        assert values(review, "style", "") == ["short", "long"]
        assert values(review, "style", "LO") == ["long"]
        assert values(review, "code", "x") == []
        assert values(page, "style", "r") == ["rich"]
        assert values(page, "extra", "t") == ["true"]
        unknown = {"ref": review, "argument": {"name": "nothing", "value": ""}}
        for wrong in (unknown, {}, {"ref": {"type": "x"}, "argument": unknown["argument"]}):
            assert error(client, "completion/complete", **wrong)["code"] == -32602


# Asking.


def test_a_resource_and_a_prompt_can_ask(tmp_path: Path) -> None:
    with client_of(tmp_path / "own.py", capabilities=FORM) as client:
        for method, params in (
            ("resources/read", {"uri": "asked://x"}),
            ("prompts/get", {"name": "wondering"}),
        ):
            client.post(method, params)
            question = client.get()
            assert question["method"] == "elicitation/create"
            client.answer(question, {"action": "accept", "content": {"answer": "that"}})
            assert "that" in json.dumps(client.receive()["result"])


def test_a_stateless_answer_comes_with_the_next_call(tmp_path: Path) -> None:
    with client_of(tmp_path / "own.py", MODERN) as client:
        capabilities = {"_meta": {"io.modelcontextprotocol/clientCapabilities": FORM}}
        call = {"uri": "asked://x", **capabilities}
        first = client.ask("resources/read", call)["result"]
        assert first["resultType"] == "input_required"
        [key] = first["inputRequests"]
        answers = {key: {"action": "accept", "content": {"answer": "!"}}}
        again = {**call, "requestState": first["requestState"], "inputResponses": answers}
        assert client.ask("resources/read", again)["result"]["contents"][0]["text"] == "x!"
        other = {**again, "uri": "asked://y"}
        assert client.ask("resources/read", other)["error"]["code"] == -32602


# Behind the router.


def result_of(client: Asked, method: str, **params: object) -> Any:
    """Make a call; return its result, whatever else arrives before it."""
    id = client.post(method, params)
    while True:
        message = client.get()
        if message.get("id") == id and "method" not in message:
            return message.get("result", message.get("error"))


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("is_first", ["prompts/get", "resources/read", "resources/templates/list"])
def test_a_file_that_is_a_worker_offers_the_same(
    tmp_path: Path, version: str, is_first: str
) -> None:
    requests: dict[str, dict[str, object]] = {
        "prompts/get": {"name": "review", "arguments": {"code": "1", "times": "3"}},
        "resources/read": {"uri": "notes://a%20b"},
        "resources/templates/list": {},
        "resources/list": {},
        "prompts/list": {},
        "tools/list": {},
    }
    block = "# /// script\n# dependencies = []\n# ///\n"
    order = sorted(requests, key=lambda each: each != is_first)
    with client_of(tmp_path / "own.py", version, text=block + FILE) as client:
        behind = {each: result_of(client, each, **requests[each]) for each in order}
        unknown = result_of(client, "resources/read", uri="notes://..%2Fx")
        given = {"name": "style", "value": "LO"}
        ref = {"type": "ref/prompt", "name": "review"}
        completed = result_of(client, "completion/complete", ref=ref, argument=given)
    with client_of(tmp_path / "own.py", version) as client:
        alone = {each: result_of(client, each, **requests[each]) for each in order}
    assert behind == alone
    assert unknown["data"] == {"uri": "notes://..%2Fx"}
    assert completed["completion"]["values"] == ["long"]


def test_a_resource_of_a_worker_can_ask(tmp_path: Path) -> None:
    block = "# /// script\n# dependencies = []\n# ///\n"
    with client_of(tmp_path / "own.py", capabilities=FORM, text=block + FILE) as client:
        client.post("resources/read", {"uri": "asked://x"})
        question = client.get()
        while question.get("method") != "elicitation/create":
            question = client.get()
        client.answer(question, {"action": "accept", "content": {"answer": "that"}})
        assert client.get()["result"]["contents"][0]["text"] == "xthat"


# Mistakes, which are found when the file is loaded.


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('@resource("a://{x}")\ndef f(y: str): ...', "the URI has {x}, but the function has no"),
        ('@resource("a://b")\ndef f(y: str): ...', "parameter y needs a place in the URI"),
        ('@resource("a b")\ndef f(): ...', "begins with a scheme"),
        ("@resource\ndef f(): ...", '`@resource` needs a URI: `@resource("notes://{name}")`'),
        ('@resource("a://b", mime_type=5)\ndef f(): ...', "mime_type must be"),
        ("@prompt\ndef f() -> int: ...", "a prompt returns str, Message or a list of those"),
        (
            '@resource("a://{x}")\ndef f(x): ...\n@resource("a://{y}")\ndef g(y): ...',
            "a://{y} is already the URI of f at own.py:2",
        ),
        ('@method\n@resource("a://b")\ndef f(): ...', "f has two decorators"),
        ("class C:\n    @prompt\n    def f(self): ...", "`@prompt` is for functions"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "own.py"
    file.write_text(f"from duet_rpc import *\n{text}\n@method\ndef fine(): return 1\n")
    listed = terminal(tmp_path, "list", "--methods", file)
    assert "fine()" in listed
    assert words in listed
    assert "own.py:" in listed


# Everybody else.


def test_they_are_methods_for_everybody_else(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(FILE)
    listed = terminal(tmp_path, "list", "--methods", file)
    assert "note(name: string) -> string" in listed
    assert "resource notes://{name}" in listed
    assert "talk.start() -> array of Message\n      prompt" in listed
    listed = json.loads(terminal(tmp_path, "list", "--json", "--methods", file))["methods"]
    by_name = {each["name"]: each for each in listed}
    assert by_name["note"]["resource"] == {"uri": "notes://{name}"}
    assert by_name["review"]["prompt"] is True
    called = terminal(tmp_path, "call", "--methods", file, "note", "name=../x")
    assert json.loads(called) == "note ../x"
    called = json.loads(terminal(tmp_path, "call", "--methods", file, "talk.start"))
    assert called[0] == {"duet": "message", "role": "user", "text": "hello"}
