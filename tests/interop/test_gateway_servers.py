"""Servers that others wrote behind the built gateway: a language server and MCP servers.

`make test` installs them, pinned, below build/servers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import GatewayClient, ended, write_config
from tests.interop.test_clients import CLIENTS, EMACSEN, need
from tests.support import PATIENCE, PYZ, RESTORE_SIGNALS, TOP, frame, notification, request
from tests.terminal import is_alive

PROGRAMS = TOP / "build" / "servers" / "venv" / "bin"
MODULES = TOP / "build" / "servers" / "node_modules" / "@modelcontextprotocol"

TEXT = "import json\njson.du"


def server(name: str, folder: Path) -> dict[str, object]:
    """Describe one server; without it the test is skipped, but never where all must run."""
    everything: dict[str, object] = {"roots": {}, "sampling": {}, "elicitation": {}}
    mcp: dict[str, object] = {"dialect": "mcp", "cwd": str(folder)}
    known: dict[str, tuple[Path, list[str], dict[str, object]]] = {
        "pylsp": (PROGRAMS / "pylsp", [], {"dialect": "lsp", "cwd": str(folder)}),
        "time": (PROGRAMS / "mcp-server-time", ["--local-timezone", "UTC"], mcp),
        "git": (PROGRAMS / "mcp-server-git", ["--repository", str(folder)], mcp),
        "files": (MODULES / "server-filesystem" / "dist" / "index.js", [str(folder)], mcp),
        "everything": (
            MODULES / "server-everything" / "dist" / "index.js",
            ["stdio"],
            {**mcp, "capabilities": everything},
        ),
    }
    program, arguments, keys = known[name]
    if not program.exists():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{name} is not installed")
    node = [need("node")] if program.suffix == ".js" else []
    return {"command": [*node, str(program), *arguments], **keys}


@contextmanager
def servers(tmp_path: Path, *names: str) -> Iterator[GatewayClient]:
    """Run the built gateway with some of the servers behind it, all of them ready."""
    folder = make_repository(tmp_path / "project")
    config = write_config(tmp_path / "c.toml", {name: server(name, folder) for name in names})
    env = {"DUET_RPC_CONFIG": str(config), "DUET_RPC_LOG": str(tmp_path / "log")}
    client = GatewayClient([sys.executable, PYZ, "gateway"], env)
    with ended(client):
        for name in names:
            client.send(notification(f"{name}/notifications/nothing"))
        for name in names:
            client.state(name, "ready")
        yield client


def make_repository(folder: Path) -> Path:
    folder.mkdir()
    (folder / "hello.txt").write_text("Grüße\n")
    name = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "."], [*name, "commit", "-qm", "The first one"]):
        subprocess.run([need("git"), *words], cwd=folder, check=True, timeout=PATIENCE)
    return folder


def text_of(result: Any) -> str:
    assert not result.get("isError"), result
    return str(result["content"][0]["text"])


def answer(client: GatewayClient, asked: dict[str, Any], result: object) -> None:
    client.send(frame({"jsonrpc": "2.0", "id": asked["id"], "result": result}))


def give_roots(client: GatewayClient, *uris: str) -> None:
    """Answer what server-everything asks as soon as it knows that its client has roots."""
    asked = client.note("everything/roots/list")
    answer(client, asked, {"roots": [{"uri": uri, "name": "here"} for uri in uris]})


def test_tools_of_four_servers_are_one_list_of_callable_tools(tmp_path: Path) -> None:
    with servers(tmp_path, "time", "git", "files", "everything") as client:
        tools = {each["name"]: each for each in client.call("tools/list")["tools"]}
        assert {name.split("__")[0] for name in tools} == {"time", "git", "files", "everything"}
        assert tools["time__convert_time"]["inputSchema"]["required"]
        listed = {each["name"] for each in client.call("listMethods")}
        assert set(tools) <= listed
        # By the name of each tool, through the merged face, and as the server itself has it.
        now = client.call("time__get_current_time", {"timezone": "Asia/Tokyo"})
        assert json.loads(text_of(now))["datetime"].endswith("+09:00")
        path = str(tmp_path / "project" / "hello.txt")
        call = {"name": "files__read_text_file", "arguments": {"path": path}}
        assert text_of(client.call("tools/call", call)) == "Grüße\n"
        own = {"name": "get-sum", "arguments": {"a": 2, "b": 3}}
        assert "5" in text_of(client.call("everything/tools/call", own))
        log = client.call("git__git_log", {"repo_path": str(tmp_path / "project")})
        assert "The first one" in text_of(log)
        failed = client.call("files__read_text_file", {"path": "/etc/hostname"})
        assert failed["isError"] is True
        assert client.ask("time/nonsense")["error"]["code"] in (-32601, -32602)
        give_roots(client)
        assert client.status()["pending"] == 0


def open_document(client: GatewayClient, uri: str) -> None:
    client.send(notification("pylsp/initialized", {}))
    document = {"uri": uri, "languageId": "python", "version": 1, "text": TEXT}
    client.send(notification("pylsp/textDocument/didOpen", {"textDocument": document}))


def test_a_language_server_completes_checks_and_leaves(tmp_path: Path) -> None:
    uri = (tmp_path / "project" / "a.py").as_uri()
    with servers(tmp_path, "pylsp") as client:
        about: dict[str, object] = {"processId": os.getpid(), "rootUri": None, "capabilities": {}}
        result = client.call("pylsp/initialize", about)
        assert result["capabilities"]["completionProvider"]
        open_document(client, uri)
        where = {"textDocument": {"uri": uri}, "position": {"line": 1, "character": 7}}
        found = client.call("pylsp/textDocument/completion", where)
        assert {"dump", "dumps"} <= {each["label"].split("(")[0] for each in found["items"]}
        shown = client.note("pylsp/textDocument/publishDiagnostics")
        assert shown["params"]["uri"] == uri
        pid = client.status("pylsp")["pid"]
        client.close_input()
        code, seconds = client.wait()
        assert code == 0
        assert seconds < 2
        assert not is_alive(pid)
    log = (tmp_path / "log").read_text()
    assert "SIGKILL" not in log


def test_progress_of_a_long_tool_and_its_cancel(tmp_path: Path) -> None:
    tool = "everything__trigger-long-running-operation"
    with servers(tmp_path, "everything", "time") as client:
        give_roots(client)
        meta = {"_meta": {"progressToken": 7}}
        result = client.call(tool, {"duration": 0.5, "steps": 5, **meta})
        assert "completed" in text_of(result)
        steps = [each["params"] for each in client.notes if each["method"] == "$/progress"]
        assert [each["value"]["done"] for each in steps] == [1, 2, 3, 4, 5]
        assert {json.dumps(each["token"]) for each in steps} == {"7"}
        assert steps[0]["value"]["total"] == 5
        client.notes.clear()

        client.send(request("long", tool, {"duration": 30, "steps": 300, **meta}))
        client.note("$/progress", token=7)
        start = time.monotonic()
        client.send(notification("$/cancelRequest", {"id": "long"}))
        reply = client.receive()
        assert (reply["id"], reply["error"]["code"]) == ("long", -32800)
        assert "convert_time" in str(client.call("time/tools/list"))
        assert time.monotonic() - start < 10
        # This server goes on with what was cancelled, and tells of it; nobody hears that.
        client.notes.clear()
        time.sleep(0.5)  # in which it would tell of five steps
        assert "4" in text_of(client.call("everything__get-sum", {"a": 1, "b": 3}))
        assert not [each for each in client.notes if "progress" in each["method"]]
        assert client.status()["pending"] == 0


def test_a_server_asks_and_the_client_answers(tmp_path: Path) -> None:
    with servers(tmp_path, "everything") as client:
        give_roots(client, "file:///one")
        client.send(request("roots", "everything__get-roots-list"))
        assert "file:///one" in text_of(client.receive()["result"])

        client.send(notification("everything/notifications/roots/list_changed"))
        give_roots(client, "file:///two", "file:///three")
        client.send(request("s", "everything__trigger-sampling-request", {"prompt": "Well?"}))
        asked = client.note("everything/sampling/createMessage")
        assert "Well?" in json.dumps(asked["params"])
        said = {"type": "text", "text": "Well enough."}
        answer(client, asked, {"model": "none", "role": "assistant", "content": said})
        assert "Well enough." in text_of(client.receive()["result"])

        client.send(request("e", "everything__trigger-elicitation-request"))
        asked = client.note("everything/elicitation/create")
        assert asked["params"]["requestedSchema"]["properties"]
        answer(client, asked, {"action": "accept", "content": {"name": "Ada", "check": True}})
        assert "Ada" in json.dumps(client.receive()["result"])
        assert "two" in text_of(client.call("everything__get-roots-list"))

        client.send(request("no", "everything__trigger-sampling-request", {"prompt": "And?"}))
        asked = client.note("everything/sampling/createMessage")
        refusal = {"code": -1, "message": "The user said no"}
        client.send(frame({"jsonrpc": "2.0", "id": asked["id"], "error": refusal}))
        assert "The user said no" in json.dumps(client.receive()["result"])
        assert client.status()["pending"] == 0


def test_a_killed_server_comes_back_unnoticed_by_the_others(
    tmp_path: Path,
) -> None:
    tool = "everything__trigger-long-running-operation"
    with servers(tmp_path, "everything", "files", "pylsp") as client:
        give_roots(client)
        tools = client.call("tools/list")["tools"]
        pids = {each["name"]: each["pid"] for each in client.status()["backends"]}
        client.send(request("long", tool, {"duration": 60, "steps": 2}))
        client.send(request("asked", "everything__trigger-sampling-request", {"prompt": "?"}))
        client.note("everything/sampling/createMessage")
        os.kill(pids["everything"], signal.SIGKILL)
        for reply in client.replies(2).values():
            error = reply["error"]
            assert (error["code"], error["data"]["signal"]) == (-32803, "SIGKILL")
            assert "Starting default (STDIO) server" in error["data"]["stderr"]
        reply = client.ask("everything__get-sum", {"a": 1, "b": 2})
        assert "3" in text_of(reply["result"]), "a call waits for the restart"
        assert "hello.txt" in text_of(client.call("files__list_directory", path_of(tmp_path)))
        client.state("everything", "ready")
        give_roots(client)
        assert client.call("tools/list")["tools"] == tools
        assert "42" in text_of(client.call("everything__get-sum", {"a": 40, "b": 2}))
        after = {each["name"]: each["pid"] for each in client.status()["backends"]}
        assert after["everything"] != pids["everything"]
        assert (after["files"], after["pylsp"]) == (pids["files"], pids["pylsp"])
        assert client.status()["pending"] == 0
        client.close_input()
        assert client.wait()[0] == 0
        assert not [pid for pid in (*pids.values(), *after.values()) if is_alive(pid)]


def path_of(tmp_path: Path) -> dict[str, str]:
    return {"path": str(tmp_path / "project")}


@pytest.mark.parametrize("emacs", EMACSEN)
def test_emacs_speaks_to_all_of_them_through_one_connection(emacs: str, tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "project")
    names = ("pylsp", "time", "files", "everything")
    config = write_config(tmp_path / "c.toml", {name: server(name, folder) for name in names})
    done = subprocess.run(
        [need(emacs), "-Q", "--batch", "-l", "gateway.el", sys.executable, str(PYZ), str(folder)],
        env={**os.environ, "DUET_RPC_CONFIG": str(config), "DUET_RPC_LOG": str(tmp_path / "log")},
        capture_output=True,
        text=True,
        cwd=CLIENTS,
        timeout=120,
        check=False,
        restore_signals=RESTORE_SIGNALS,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "Ran 6 tests, 6 results as expected" in said


@pytest.mark.parametrize("emacs", EMACSEN)
def test_emacs_has_the_tools_and_completions_of_all_servers(emacs: str, tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "project")
    names = ("pylsp", "time", "files", "everything")
    config = write_config(tmp_path / "c.toml", {name: server(name, folder) for name in names})
    tests = TOP / "tests" / "emacs"
    words = ["-L", str(tests), "-l", str(tests / "servers.el")]
    done = subprocess.run(
        [need(emacs), "-Q", "--batch", *words, "-f", "ert-run-tests-batch-and-exit"],
        env={
            **os.environ,
            "DUET_RPC_CONFIG": str(config),
            "DUET_RPC_EL": str(TOP / "elisp" / "duet-rpc.el"),
            "DUET_RPC_PYZ": str(PYZ),
            "FOLDER": str(folder),
        },
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
        restore_signals=RESTORE_SIGNALS,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "Ran 1 tests, 1 results as expected" in said
