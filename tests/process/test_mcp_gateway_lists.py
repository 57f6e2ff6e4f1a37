"""Lists of `duet-rpc mcp --gateway`: at once, from what was kept; and of all kinds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from duet_rpc import __version__
from tests.gateway import mcp_server as server
from tests.machine import Stopwatch
from tests.mcp_client import MODERN
from tests.process.test_mcp_gateway_eras import CLIENTS, ERAS, PREFIX, AnyClient, serve
from tests.support import SOURCE, shortest, wait_until

BOTH = ["2025-11-25", MODERN]
MINE = "from duet_rpc import method\n@method\ndef mine() -> int:\n    return 7\n"
CHANGED = "notifications/tools/list_changed"


def kept_files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "duet-rpc" / "lists").glob("*.json"))


def texts_kept(tmp_path: Path) -> str:
    return "".join(each.read_text() for each in kept_files(tmp_path))


def list_until(client: AnyClient, name: str) -> None:
    wait_until(lambda: name in client.tools(), f"{name} is listed")


# At once.


@pytest.mark.parametrize("version", BOTH)
def test_a_list_does_not_wait_for_a_slow_server(tmp_path: Path, version: str) -> None:
    methods = tmp_path / "mine.py"
    methods.write_text(MINE)
    flags = ["--methods", str(methods)]
    with serve(tmp_path, version, {}, *flags, program=SOURCE) as client:
        list_until(client, "mine")
        wait_until(lambda: "mine" in texts_kept(tmp_path), "what there is is kept")
    backends = {"slow": server(slow=60), "never": server(slow=60)}

    def attempt() -> float:
        with serve(tmp_path, version, backends, *flags, program=SOURCE) as client:
            client.ask("server/discover" if version == MODERN else "ping")
            watch = Stopwatch(client.process.pid)
            assert list(client.tools()) == ["mine"]
            return watch.seconds()

    assert shortest(attempt, 0.3) < 0.3


@pytest.mark.parametrize("version", BOTH)
def test_kept_tools_are_listed_before_their_server_is_ready(tmp_path: Path, version: str) -> None:
    slow = tmp_path / "slow"
    backends = {"m": server(slow_file=slow)}
    with serve(tmp_path, version, backends, program=SOURCE) as client:
        list_until(client, "m__ask")
        wait_until(lambda: "hold" in texts_kept(tmp_path), "the list is kept")
    slow.write_text("1.5")
    with serve(tmp_path, version, backends, program=SOURCE) as client:
        assert "m__ask" in client.tools()
        assert client.text("m__x") == ["x", {}]  # it waits for the server
        client.tools()
        assert not [each for each in client.notes if each["method"] == CHANGED]


def test_the_client_is_notified_when_a_kept_list_was_different(tmp_path: Path) -> None:
    slow, grown = tmp_path / "slow", tmp_path / "grown"
    backends = {"m": server(slow_file=slow, grown_file=grown)}
    with serve(tmp_path, "2025-11-25", backends, program=SOURCE) as client:
        list_until(client, "m__ask")
        wait_until(lambda: "hold" in texts_kept(tmp_path), "the list is kept")
    slow.write_text("3")
    grown.write_text("1")
    with serve(tmp_path, "2025-11-25", backends, program=SOURCE) as client:
        assert "m__new0" not in client.tools()
        client.note(CHANGED)
        assert "m__new0" in client.tools()


def test_kept_lists_that_are_garbage_cost_nothing(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    with serve(tmp_path, "2025-11-25", {"m": server(slow_file=slow)}) as client:
        assert "m__ask" in client.tools()
        wait_until(lambda: "hold" in texts_kept(tmp_path), "the list is kept")
    slow.write_text("60")
    (path,) = kept_files(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    good = path.read_bytes()
    document = json.loads(good)
    # Texts that would be a list of their own, were they not looked at.
    tools = {"tools/list": ['{"name":"x"},{"name":"y"}']}
    hostile = [
        good[: len(good) // 2],
        b"[" * 100_000,
        json.dumps({**document, "list": {"tools/list": [5, None]}}).encode(),
        json.dumps({**document, "list": tools}).encode(),
        b" " * 5_000_000 + good,
        None,
    ]
    for content in hostile:
        path.unlink()
        if content is None:
            os.mkfifo(path)
        else:
            path.write_bytes(content)
        with serve(tmp_path, "2025-11-25", {"m": server(slow_file=slow)}, program=SOURCE) as client:
            assert client.tools() == {}, content


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_lists_of_other_versions_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "duet-rpc" / "lists"
    folder.mkdir(parents=True)
    for name in ("0.0.1-0123.json", "0123.json", "0.0.1-0123.json.17.tmp"):
        (folder / name).write_text("{}")
    (folder / "0.0.1-folder").mkdir()
    with serve(tmp_path, "2025-11-25", {"m": server()}, program=SOURCE) as client:
        list_until(client, "m__ask")
        wait_until(lambda: "hold" in texts_kept(tmp_path), "the list is kept")
    names = sorted(each.name for each in folder.iterdir())
    assert len(names) == 2
    assert (names[0], names[1][: len(__version__)]) == ("0.0.1-folder", __version__)


def test_a_kept_list_of_another_user_is_not_read(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    backends = {"m": server(slow_file=slow)}
    with serve(tmp_path, "2025-11-25", backends) as client:
        assert "m__ask" in client.tools()
        wait_until(lambda: "hold" in texts_kept(tmp_path), "the list is kept")
    slow.write_text("60")
    (path,) = kept_files(tmp_path)
    for owner in (0, 65534):
        os.chown(path, owner, -1)
        with serve(tmp_path, "2025-11-25", backends, program=SOURCE) as client:
            assert bool(client.tools()) == (owner == 0)


def test_a_server_that_cannot_be_started_is_not_listed(tmp_path: Path) -> None:
    missing: dict[str, object] = {"command": [str(tmp_path / "none")], "dialect": "mcp"}
    backends = {"m": missing, "ok": server()}
    with serve(tmp_path, "2025-11-25", backends) as client:
        assert {each.partition("__")[0] for each in client.tools()} == {"ok"}


# All kinds.


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("version", CLIENTS)
def test_resources_and_prompts_are_merged_and_routed(
    tmp_path: Path, version: str, era: str
) -> None:
    backends = {"m": server(era, name="m"), "n": server(name="n")}
    with serve(tmp_path, version, backends) as client:
        listed = client.ask("resources/list")["result"]["resources"]
        assert [each["uri"] for each in listed] == ["m://one", "same://uri", "n://one"]
        templates = client.ask("resources/templates/list")["result"]["resourceTemplates"]
        assert [each["uriTemplate"] for each in templates] == ["m://item/{id}", "n://item/{id}"]
        prompts = client.ask("prompts/list")["result"]["prompts"]
        assert [each["name"] for each in prompts] == ["m__greet", "n__greet"]
        for uri, owner in [("n://one", "n"), ("same://uri", "m"), ("n://item/7", "n")]:
            result = client.ask("resources/read", {"uri": uri})["result"]
            assert result["contents"] == [{"uri": uri, "text": f"{uri} of {owner}"}]
            assert ("ttlMs" in result) == (version == MODERN)
        result = client.ask("prompts/get", {"name": "n__greet"})["result"]
        assert result["messages"][0]["content"]["text"] == "n: greet"
        for ref, name in [
            ({"type": "ref/prompt", "name": "m__greet"}, "greet"),
            ({"type": "ref/resource", "uri": "n://item/{id}"}, "n://item/{id}"),
        ]:
            params = {"ref": ref, "argument": {"name": "x", "value": ""}}
            reply = client.ask("completion/complete", params)["result"]
            assert name in json.loads(reply["completion"]["values"][0]).values()


@pytest.mark.parametrize("version", CLIENTS)
def test_a_resource_that_nobody_has_is_not_found(tmp_path: Path, version: str) -> None:
    code = -32602 if version == MODERN else -32002
    with serve(tmp_path, version, {"m": server(name="m")}) as client:
        for uri in ("x://y", "", "m://item/none"):
            error = client.ask("resources/read", {"uri": uri})["error"]
            assert error["code"] == code
            if uri != "m://item/none":  # which its server has answered
                assert error["data"] == {"uri": uri}
        assert client.ask("resources/read", {})["error"]["code"] == -32602
        assert client.ask("prompts/get", {"name": "x"})["error"]["code"] == -32602


def test_ones_own_resources_and_prompts_keep_their_names(tmp_path: Path) -> None:
    methods = tmp_path / "mine.py"
    methods.write_text(
        "from duet_rpc import prompt, resource\n"
        '@resource("notes://{name}")\ndef note(name: str) -> str:\n    return name\n'
        '@prompt\ndef review(code: str) -> str:\n    return "Review " + code\n'
    )
    with serve(tmp_path, "2025-11-25", {"m": server()}, "--methods", str(methods)) as client:
        listed = client.ask("resources/templates/list")["result"]["resourceTemplates"]
        assert listed[0]["uriTemplate"] == "notes://{name}"
        assert client.ask("prompts/list")["result"]["prompts"][0]["name"] == "review"
        result = client.ask("resources/read", {"uri": "notes://x"})["result"]
        assert result["contents"][0]["text"] == "x"
        params = {"name": "review", "arguments": {"code": "y"}}
        said = client.ask("prompts/get", params)["result"]["messages"][0]
        assert said["content"]["text"] == "Review y"


# What changes.


@pytest.mark.parametrize("era", ERAS)
def test_changes_of_each_list_are_announced(tmp_path: Path, era: str) -> None:
    with serve(tmp_path, "2025-11-25", {"m": server(era, name="m")}) as client:
        for method in ("tools/list", "resources/list", "prompts/list"):
            client.ask(method)
        client.text("m__grow")
        for kind in ("tools", "resources", "prompts"):
            client.note(f"notifications/{kind}/list_changed")
        assert "m__new0" in client.tools()
        uris = [each["uri"] for each in client.ask("resources/list")["result"]["resources"]]
        assert "m://new0" in uris


def listen(client: AnyClient, **wanted: object) -> tuple[int, Any]:
    """Open a stream; return its id and what is honored."""
    id = client.post("subscriptions/listen", {"notifications": wanted})
    said = client.note("notifications/subscriptions/acknowledged")["params"]
    assert said["_meta"] == {PREFIX + "subscriptionId": id}
    return id, said["notifications"]


@pytest.mark.parametrize("era", ERAS)
def test_a_stateless_client_hears_of_what_it_listens_to(tmp_path: Path, era: str) -> None:
    with serve(tmp_path, MODERN, {"m": server(era, name="m")}) as client:
        client.tools()
        uris = ["m://one", "x://nobody"]
        first, honored = listen(client, toolsListChanged=True, resourceSubscriptions=uris)
        assert honored == {"toolsListChanged": True, "resourceSubscriptions": ["m://one"]}
        second, honored = listen(client, promptsListChanged=True, nonsense=True)
        assert honored == {"promptsListChanged": True}
        client.text("m__grow")
        client.text("m__touch", uri="m://one")
        client.text("m__touch", uri="same://uri")
        for method, id in [
            (CHANGED, first),
            ("notifications/prompts/list_changed", second),
            ("notifications/resources/updated", first),
        ]:
            assert client.note(method)["params"]["_meta"] == {PREFIX + "subscriptionId": id}
        assert client.notes == []
        for id in (first, second):
            cancel = {"requestId": id}
            client.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel})
        client.tools()
        client.text("m__grow")
        client.text("m__touch", uri="m://one")
        client.tools()
        assert client.notes == []


@pytest.mark.parametrize("era", ERAS)
def test_a_client_is_notified_of_resources_it_subscribed_to(tmp_path: Path, era: str) -> None:
    with serve(tmp_path, "2025-11-25", {"m": server(era, name="m")}) as client:
        assert client.ask("resources/subscribe", {"uri": "m://one"})["result"] == {}
        client.text("m__touch", uri="m://one")
        updated = client.note("notifications/resources/updated")
        assert updated["params"] == {"uri": "m://one"}
        assert client.ask("resources/unsubscribe", {"uri": "m://one"})["result"] == {}
        client.text("m__touch", uri="m://one")
        client.ask("ping")
        assert client.notes == []


@pytest.mark.parametrize("era", ERAS)
def test_log_messages_reach_a_client_that_wants_them(tmp_path: Path, era: str) -> None:
    with serve(tmp_path, "2025-11-25", {"m": server(era)}) as client:
        assert client.ask("logging/setLevel", {"level": "info"})["result"] == {}
        assert client.text("m__log", data="hello") == "info"
        said = client.note("notifications/message")["params"]
        assert said == {"level": "info", "data": "hello", "logger": "m"}
        assert client.ask("logging/setLevel", {"level": "error"})["result"] == {}
        assert client.text("m__log", data="hello") == "error"
        assert client.notes == []
        assert client.ask("logging/setLevel", {"level": "loud"})["error"]["code"] == -32602


@pytest.mark.parametrize("era", ERAS)
def test_a_stateless_call_says_which_log_messages_it_wants(tmp_path: Path, era: str) -> None:
    params: dict[str, Any] = {"name": "m__log", "arguments": {"data": 1}}
    with serve(tmp_path, MODERN, {"m": server(era)}) as client:
        client.ask("tools/call", params)
        assert client.notes == []
        client.ask("tools/call", {**params, "_meta": {PREFIX + "logLevel": "debug"}})
        assert client.note("notifications/message")["params"]["data"] == 1
        client.ask("tools/call", {**params, "_meta": {PREFIX + "logLevel": "error"}})
        assert client.notes == []
