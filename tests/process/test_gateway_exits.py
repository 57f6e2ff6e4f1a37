"""The gateway's rules for the end of a backend, and for its own."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.gateway import (
    backend,
    gateway,
    logged,
    mcp,
    mcp_server,
    pids,
)
from tests.support import frame, notification, request, shortest
from tests.terminal import is_alive, is_gone

# Rule 4: death.


def test_all_pending_requests_of_a_crashed_backend_get_errors(tmp_path: Path) -> None:
    times = {"restart": "0.2,0.2"}
    with gateway(tmp_path, {"a": backend(), "b": backend()}, times=times) as client:
        client.send(request("other", "b/hold"))
        client.send(b"".join(request(number, "a/hold") for number in range(50)))
        client.send(request("die", "a/die", {"code": 7}))
        replies = client.replies(51)
        for number in (*range(50), "die"):
            error = replies[number]["error"]
            assert error["code"] == -32803
            assert error["data"] == {
                "backend": "a", "reason": "died", "exitCode": 7, "stderr": "last words",
            }  # fmt: skip
        assert client.ask("a/pid", id=4)["result"] > 0, "it waits for the restart"
        assert client.status("a")["restarts"] == 1
        client.send(request(5, "b/release"))
        assert set(client.replies(2)) == {"other", 5}, "the other noticed nothing"
        assert "backend a: last words" in logged(tmp_path)


def test_a_crash_shows_only_the_stderr_of_its_process(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}, times={"restart": "0.1"}) as client:
        client.ask("a/stderr", ["the first life\n"])
        assert client.ask("a/die")["error"]["data"]["stderr"] == "the first life\nlast words"
        client.state("a", "backoff")
        client.state("a", "ready")
        error = client.ask("a/die", {"signal": "SIGKILL"})["error"]
        assert error["data"]["stderr"] == "last words"
        lines = client.call("gateway/log", ["a"])["lines"]
        assert lines == ["the first life", "last words", "last words"]


def test_what_can_not_be_started_again_fails_in_the_end(tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy(sys.executable, program)
    one = {**backend(), "command": [str(program), *backend()["command"][1:]]}  # type: ignore[index]
    times = {"restart": "0.1,0.1,0.1", "stable": "0.5"}
    with gateway(tmp_path, {"a": one}, times=times) as client:
        client.ask("a/pid")
        time.sleep(0.7)  # its life was stable
        program.unlink()
        program.symlink_to(program)
        client.ask("a/die")
        for state in ("ready", "backoff", "backoff", "backoff", "failed"):
            last = client.note("gateway/stateChanged")["params"]
            assert last["state"] == state
        assert last["restarts"] == 3


def test_what_it_said_before_its_death_counts(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        count = 300
        client.send(b"".join(request(number, "a/echo", [number]) for number in range(count)))
        client.send(request("die", "a/die", {"signal": "SIGKILL"}))
        replies = client.replies(count + 1)
        assert [replies[each]["result"] for each in range(count)] == [[n] for n in range(count)]
        assert replies["die"]["error"]["data"]["signal"] == "SIGKILL"


def test_restarts_back_off_and_then_the_backend_has_failed(tmp_path: Path) -> None:
    times = {"restart": "0.1,0.3"}
    one = backend("die-at-once=4", start="eager")
    with gateway(tmp_path, {"a": one, "b": backend()}, times=times) as client:
        start = time.monotonic()
        failed = client.note("gateway/stateChanged", name="a", state="failed")["params"]
        assert time.monotonic() - start > 0.4
        assert failed["restarts"] == 2
        assert "exit code 4" in failed["reason"]
        states = [each["params"]["state"] for each in client.notes]
        assert states == ["ready", "backoff", "ready", "backoff", "ready"]
        error = client.ask("a/id")["error"]
        assert error["data"] == {
            "backend": "a", "reason": "unavailable", "state": "failed",
            "stderr": "not today\nnot today\nnot today",
        }  # fmt: skip
        assert client.ask("b/pid")["result"] > 0
        client.notes.clear()
        assert client.call("gateway/restart", {"backend": "a"}) == {"name": "a", "state": "ready"}
        client.state("a", "backoff")
        client.state("a", "failed")


def test_notifications_keep_a_request_alive_beyond_its_timeout(tmp_path: Path) -> None:
    """As an ACP agent's `session/update` do; without them the request ends."""
    with gateway(tmp_path, {"a": backend(timeout=0.5)}) as client:
        started = time.monotonic()
        assert client.ask("a/stream", [1.5])["result"] > 0
        assert time.monotonic() - started >= 1.5
        assert "did not reply within 0.5 s" in client.ask("a/hold")["error"]["message"]


@pytest.mark.parametrize("dialect", ["plain", "lsp", "mcp"])
def test_what_our_client_says_of_itself_stays_here(tmp_path: Path, dialect: str) -> None:
    with gateway(tmp_path, {"a": backend(dialect=dialect, framing="lines")}) as client:
        meta = {"client": {"name": "emacs"}, "during": 1, "mine": 1.0}
        echoed = client.ask("a/echo", {"_meta": meta, "x": 1})["result"]
        assert echoed == {"_meta": {"mine": 1.0}, "x": 1}
        assert client.ask("a/echo", {"_meta": {"client": {}}, "x": 1})["result"] == {"x": 1}


def test_lists_of_resources_and_prompts_are_merged_and_routed(tmp_path: Path) -> None:
    servers = {name: mcp_server(name=name) for name in ("m", "n")}
    with gateway(tmp_path, {**servers, "a": backend()}) as client:
        listed = client.call("resources/list")["resources"]
        assert [each["uri"] for each in listed] == ["m://one", "same://uri", "n://one"]
        prompts = client.call("prompts/list")["prompts"]
        assert [each["name"] for each in prompts] == ["m__greet", "n__greet"]
        templates = client.call("resources/templates/list")["resourceTemplates"]
        assert [each["uriTemplate"] for each in templates] == ["m://item/{id}", "n://item/{id}"]
        (content,) = client.call("resources/read", {"uri": "n://item/1"})["contents"]
        assert content["text"] == "n://item/1 of n"
        assert client.call("prompts/get", {"name": "n__greet"})["messages"]
        for method, params in [("resources/read", {"uri": "x"}), ("prompts/get", {"name": "x"})]:
            assert client.ask(method, params)["error"]["code"] == -32602


def test_a_stable_time_makes_its_deaths_forgotten(tmp_path: Path) -> None:
    times = {"restart": "0.05", "stable": "0.2"}
    with gateway(tmp_path, {"a": backend()}, times=times) as client:
        for _ in range(3):
            client.ask("a/pid")
            time.sleep(0.3)  # its life was stable
            assert client.ask("a/die")["error"]["data"]["exitCode"] == 3
            client.state("a", "backoff")
            client.state("a", "ready")
        client.ask("a/die")
        client.state("a", "failed")


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"command": ["/no/such/program"]}, "/no/such/program can't be started: No such file"),
        ({"command": ["no-such-program"]}, "no-such-program can't be started: No such file"),
        ({"command": ["/etc/passwd"]}, "/etc/passwd can't be started: Permission denied"),
        ({"command": ["true"], "cwd": "/no/where"}, "working directory can't be entered: No such"),
    ],
)
def test_what_can_not_be_started_has_failed_at_once(
    tmp_path: Path, keys: Mapping[str, object], reason: str
) -> None:
    with gateway(tmp_path, {"a": keys}) as client:
        error = client.ask("a/id")["error"]
        assert error["code"] == -32803
        assert reason in error["message"]
        assert client.status("a")["state"] == "failed"
        assert reason in client.ask("a/id")["error"]["message"]


def test_a_backend_that_closes_its_stdout_is_ended(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}, times={"restart": "0.1"}) as client:
        pid = client.ask("a/pid")["result"]
        error = client.ask("a/close-stdout")["error"]
        assert "closed its stdout and was ended by SIGKILL" in error["message"]
        assert is_gone(pid)
        client.state("a", "backoff")
        client.state("a", "ready")


def test_what_a_dead_backend_had_asked_is_taken_back(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        client.send(request(1, "a/ask", {"id": 1, "method": "x"}) + request(2, "a/die"))
        client.replies(2)
        asked = client.note("a/x")
        assert client.note("$/cancelRequest")["params"] == {"id": asked["id"]}
        client.send(frame({"jsonrpc": "2.0", "id": asked["id"], "result": 1}))
        assert client.status()["pending"] == 0


def test_restart_and_stop_by_hand(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        pid = client.ask("a/pid")["result"]
        client.send(request("held", "a/hold"))
        client.send(request("restart", "gateway/restart", ["a"]))
        replies = client.replies(2)
        assert replies["held"]["error"]["data"] == {"backend": "a", "reason": "stopped"}
        client.state("a", "stopped")
        client.state("a", "ready")
        other = client.ask("a/pid")["result"]
        assert other != pid
        assert is_gone(pid)
        client.ask("gateway/stop", ["a"])
        client.state("a", "stopped")
        assert is_gone(other)
        assert client.ask("a/pid")["result"] not in (pid, other), "the next request starts it"
        error = client.ask("gateway/restart", ["nobody"])["error"]
        assert (error["code"], error["data"]["accepted"]) == (-32602, ["a"])
        client.ask("a/stderr", ["one\ntwo\n"])
        assert client.call("gateway/log", ["a"]) == {"lines": ["one", "two"]}


@pytest.mark.parametrize("seconds", [3e6, 9e8])
def test_a_timeout_may_be_as_long_as_one_likes(tmp_path: Path, seconds: float) -> None:
    with gateway(tmp_path, {"a": backend(timeout=seconds), "b": backend(timeout=0.2)}) as client:
        client.send(request("held", "a/hold") + request("late", "b/hold"))
        late = client.receive()
        assert (late["id"], late["error"]["data"]["reason"]) == ("late", "timeout")
        assert client.ask("a/held")["result"] == [1]


def test_a_parent_that_blocks_signals_stops_no_clock(tmp_path: Path) -> None:
    blocked = (signal.SIGALRM, signal.SIGCHLD)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        with gateway(tmp_path, {"a": backend(timeout=0.2)}) as client:
            assert client.ask("a/hold")["error"]["data"]["reason"] == "timeout"
            assert client.ask("a/die")["error"]["data"]["reason"] == "died"
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_environment_and_working_directory(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    one = backend(env={"BACKEND_TEST": "é"}, cwd="below")
    with gateway(tmp_path, {"a": one}) as client:
        assert client.ask("a/env")["result"] == ["é", str(tmp_path / "below")]


# Rule 7: leaving.


@pytest.mark.parametrize("how", ["EOF", "SIGTERM", "SIGINT", "SIGHUP", "shutdown"])
def test_all_backends_are_closed_and_none_is_left(tmp_path: Path, how: str) -> None:
    one = {"a": backend(), "b": backend(framing="lines"), "m": mcp()}

    def attempt() -> float:
        with gateway(tmp_path, one) as client:
            found = pids(client, *one)
            client.send(request("held", "a/hold"))
            client.ask("a/held")
            start = time.monotonic()
            if how == "EOF":
                client.close_input()
            elif how == "shutdown":
                client.send(request("bye", "shutdown"))
                assert client.receive()["id"] == "bye"
            else:
                client.signal(signal.Signals[how])
            reply = client.receive()
            assert (reply["id"], reply["error"]["data"]["reason"]) == ("held", "stopped")
            code, _ = client.wait()
            took = time.monotonic() - start
            assert code == 0
            assert not [pid for pid in found if is_alive(pid)]
        return took

    assert shortest(attempt, 2.0) < 2.0


def test_with_quick_backends_leaving_is_quick(tmp_path: Path) -> None:
    def attempt() -> float:
        with gateway(tmp_path, {"a": backend(), "b": backend()}) as client:
            pids(client, "a", "b")
            client.close_input()
            return client.wait()[1]

    assert shortest(attempt, 0.7) < 0.7


@pytest.mark.parametrize("how", ["EOF", "SIGTERM"])
def test_backends_that_ignore_signals_are_killed_within_two_seconds(
    tmp_path: Path, how: str
) -> None:
    stubborn = {f"s{n}": backend("ignore-term", "stay") for n in range(5)}

    def attempt() -> float:
        with gateway(tmp_path, {**stubborn, "n": backend("never-read"), "g": backend()}) as client:
            found = pids(client, *stubborn, "g")
            found.append(client.ask("g/grandchild")["result"])
            client.send(request("n", "n/id") + request("d", "s0/deaf"))
            client.ask("version")
            start = time.monotonic()
            if how == "EOF":
                client.close_input()
            else:
                client.signal(signal.SIGTERM)
            code, _ = client.wait()
            took = time.monotonic() - start
            assert code == 0
            assert not [pid for pid in found if is_alive(pid)]
        return took

    assert shortest(attempt, 2.3) < 2.3


def test_no_orphan_is_left_by_a_gateway_that_is_killed(tmp_path: Path) -> None:
    one = {"a": backend(), "s": backend("ignore-term", "stay"), "m": mcp("stay")}
    with gateway(tmp_path, one, start_new_session=True) as client:
        found = pids(client, *one)
        found.append(client.ask("a/grandchild")["result"])
        client.ask("gateway/restart", ["a"])
        client.state("a", "stopped")
        client.state("a", "ready")
        found += pids(client, "a")
        os.killpg(client.process.pid, signal.SIGKILL)
        assert [pid for pid in found if not is_gone(pid)] == []


def test_nor_where_what_watches_over_it_was_killed_before(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend("stay"), "b": backend("stay")}) as client:
        found = pids(client, "a")
        children = Path(f"/proc/{client.process.pid}/task/{client.process.pid}/children")
        if not children.exists():
            pytest.skip("no /proc here")
        for pid in {int(each) for each in children.read_text().split()} - set(found):
            os.kill(pid, signal.SIGKILL)
            assert is_gone(pid)
        found += pids(client, "b")
        client.process.kill()
        assert [pid for pid in found if not is_gone(pid)] == []


def test_what_a_dead_backend_leaves_behind_is_ended(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        pid = client.ask("a/grandchild")["result"]
        client.ask("a/die")
        assert is_gone(pid)


def test_a_language_server_is_asked_to_leave(tmp_path: Path) -> None:
    file = tmp_path / "seen"
    with gateway(tmp_path, {"a": backend(f"lsp={file}", dialect="lsp")}) as client:
        client.ask("a/pid")
        client.close_input()
        assert client.wait()[0] == 0
        assert file.read_text().splitlines() == ["exit"]


@pytest.mark.parametrize("politely", [True, False])
def test_a_language_server_ended_by_its_client_stays_stopped(
    tmp_path: Path, politely: bool
) -> None:
    one = backend(f"lsp={tmp_path / 'seen'}", dialect="lsp")
    with gateway(tmp_path, {"a": one}, times={"restart": "0.1"}) as client:
        client.ask("a/shutdown" if politely else "a/pid")
        client.send(notification("a/exit"))
        client.state("a", "ready")
        client.state("a", "stopped")
        assert client.ask("a/pid")["result"] > 0
        assert client.status("a")["restarts"] == 0


def test_the_client_is_gone(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        pid = client.ask("a/pid")["result"]
        assert client.process.stdout is not None
        client.process.stdout.close()
        client.send(request(1))
        assert client.wait()[0] == 1
        assert is_gone(pid)
        client.process.stdout = None
    assert "stdout is closed: the client is gone" in logged(tmp_path)
    assert "Traceback" not in logged(tmp_path)
