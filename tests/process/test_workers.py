"""One connection: workers behind `duet-rpc rpc`, with a client that never notices the router."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from duet_rpc.jsonrpc.framing import FRAMINGS
from tests.gateway import GatewayClient
from tests.process.test_environments import with_tool
from tests.process.test_methods import env_for, write
from tests.support import PATIENCE, SOURCE, TRIES, frame, notification, request, wait_for_file
from tests.terminal import is_gone

BLOCK = "# /// script\n# ///\n"
HEAD = "import os, time\nfrom duet_rpc import Context, method\n"
PID = "@method\ndef {}_pid() -> int: return os.getpid()\n"
SLEEP = (
    "@method\ndef {}_sleep(seconds: float) -> str:\n    time.sleep(seconds)\n    return 'slept'\n"
)


def worker_file(name: str, *more: str) -> str:
    """Return the text of a file that is a worker, with two methods and what else is wanted."""
    return BLOCK + plain_file(name, *more)


def plain_file(name: str, *more: str) -> str:
    return (
        HEAD + PID.format(name) + SLEEP.format(name) + "".join(f"@method\n{each}" for each in more)
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return where the user's methods belong; nobody has made it yet."""
    return tmp_path / "home/.config/duet-rpc/methods"


@contextmanager
def rpc(tmp_path: Path, *flags: str, config: str = "", **environ: str) -> Iterator[GatewayClient]:
    """Run `duet-rpc rpc` in the home folder of a user, and leave nothing of it behind."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    if config:
        (home / ".config/duet-rpc").mkdir(parents=True, exist_ok=True)
        (home / ".config/duet-rpc/config.toml").write_text(config)
    log = {"DUET_RPC_LOG": str(tmp_path / "log")}
    client = GatewayClient([*SOURCE, "rpc", *flags], {**env_for(tmp_path), **log, **environ})
    try:
        yield client
    finally:
        client.close_input()
        try:
            client.process.wait(PATIENCE)
        finally:
            client.process.kill()
            client.process.communicate()


def names(client: GatewayClient) -> list[str]:
    """List the user's methods."""
    listed = [each["name"] for each in client.call("listMethods")]
    return [each for each in listed[6:] if "/" not in each and each != "reloadMethods"]


def status(client: GatewayClient) -> dict[str, Any]:
    return {each["name"]: each for each in client.call("gateway/status")["backends"]}


# One door.


def test_without_a_worker_it_is_the_plain_daemon(tmp_path: Path, folder: Path) -> None:
    write(folder, plain_file("a"), "a.py")
    with rpc(tmp_path) as client:
        assert client.call("a_pid") == client.process.pid
        assert client.ask("gateway/status")["error"]["code"] == -32601


def test_a_file_with_a_block_has_its_own_process(tmp_path: Path, folder: Path) -> None:
    write(folder, plain_file("a"), "a.py")
    write(folder, worker_file("b"), "b.py")
    write(folder, worker_file("c"), "c.py")
    with rpc(tmp_path) as client:
        pids = {client.call(f"{name}_pid") for name in "abc"}
        assert len(pids) == 3
        assert client.process.pid not in pids
        assert names(client) == [f"{each}_{what}" for each in "abc" for what in ("pid", "sleep")]
        assert {name: each["kind"] for name, each in status(client).items()} == {
            "main": "worker", "b.py": "worker", "c.py": "worker",
        }  # fmt: skip


def test_the_first_saved_worker_makes_the_daemon_a_router(tmp_path: Path, folder: Path) -> None:
    write(folder, plain_file("a"), "a.py")
    with rpc(tmp_path) as client:
        pid = client.process.pid
        assert client.call("a_pid") == pid
        write(folder, worker_file("b"), "b.py")
        assert client.call("b_pid") not in (pid, client.call("a_pid"))
        assert client.process.poll() is None
        assert sorted(status(client)) == ["b.py", "main"]
        log = (tmp_path / "log").read_text()
        assert f"router started: pid {pid}" in log, "the process and its pipes are the same"


def test_no_call_is_lost_when_the_daemon_becomes_the_router(tmp_path: Path, folder: Path) -> None:
    write(folder, plain_file("a"), "a.py")
    with rpc(tmp_path) as client:
        client.call("a_pid")
        client.send(request("first", "a_sleep", {"seconds": 0.3}))
        write(folder, worker_file("b"), "b.py")
        sent = [request(number, "b_pid" if number % 2 else "a_pid") for number in range(40)]
        # Faults among them are answered once, and what they contain is not executed.
        inside = request("inside", "shutdown")
        sent[10:10] = [b"Content-Type: text/plain\r\n" + inside, frame("{nonsense")]
        whole = b"".join(sent) + request("last", "version")
        for at in range(0, len(whole), 517):
            client.send(whole[at : at + 517])
        replies = [client.receive() for _ in range(44)]
        found = {each["id"]: each for each in replies}
        assert found["first"]["result"] == "slept"
        assert len({found[number]["result"] for number in range(1, 40, 2)}) == 1
        assert all("result" in found[number] for number in range(40))
        assert "result" in found["last"]
        assert [each["error"]["code"] for each in replies if "error" in each] == [-32600, -32700]


STOP = "from duet_rpc import on_stop\nimport signal\n@on_stop\ndef stop():\n    {}\n"


def test_a_signal_while_becoming_the_router_ends_it(tmp_path: Path, folder: Path) -> None:
    killed = STOP.format("os.kill(os.getpid(), signal.SIGTERM)")
    write(folder, plain_file("plain") + killed, "plain.py")
    with rpc(tmp_path) as client:
        client.call("plain_pid")
        write(folder, worker_file("first"), "first.py")
        client.send(request(2, "first_pid"))
        assert client.process.wait(PATIENCE) == 0
    assert "SIGTERM received" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("body", ["time.sleep(60)", "while True: pass", "raise SystemExit(3)"])
def test_no_on_stop_keeps_it_from_becoming_the_router(
    tmp_path: Path, folder: Path, body: str
) -> None:
    write(folder, plain_file("plain") + STOP.format(body), "plain.py")
    with rpc(tmp_path) as client:
        assert client.call("plain_pid") == client.process.pid
        write(folder, worker_file("first"), "first.py")
        assert client.call("first_pid") != client.process.pid
        assert client.call("plain_pid") != client.process.pid


def test_log_level_and_loaded_files_survive_becoming_a_router(tmp_path: Path, folder: Path) -> None:
    elsewhere = write(tmp_path / "elsewhere", plain_file("e"), "e.py")
    with rpc(tmp_path) as client:
        client.call("setLogLevel", {"level": "debug"})
        client.call("loadMethods", {"file": str(elsewhere)})
        client.call("rpc.discover")
        write(folder, worker_file("b"), "b.py")
        assert client.call("b_pid")
        client.note("client/methodsChanged")
        assert client.call("e_pid")
        assert "e_pid" in names(client)
        client.call("e_pid", id="marked")
        assert 'id="marked" received' in (tmp_path / "log").read_text().replace("  ", " ")


@pytest.mark.parametrize("framing", FRAMINGS)
def test_the_router_speaks_every_framing_and_takes_batches(
    framing: str, tmp_path: Path, folder: Path
) -> None:
    write(folder, worker_file("b"), "b.py")
    body = (
        b'[{"jsonrpc":"2.0","id":1,"method":"b_pid"},{"jsonrpc":"2.0","method":"b_pid"},'
        b'{"jsonrpc":"2.0","id":2,"method":"nonsense"}]'
    )
    sent = FRAMINGS[framing].encode(body)
    with rpc(tmp_path, "--framing", framing, "--batch") as client:
        client.send(sent)
        assert client.process.stdout is not None
        client.close_input()
        out = client.process.stdout.read()
        assert b'"id":1,"result":' in out
        assert b'"id":2,"error":{"code":-32601' in out


# Each for itself.


def test_a_slow_worker_delays_no_other_method(tmp_path: Path, folder: Path) -> None:
    write(folder, plain_file("a"), "a.py")
    write(folder, worker_file("b"), "b.py")
    with rpc(tmp_path) as client:
        client.call("b_pid")
        client.send(request("slow", "b_sleep", {"seconds": 60}))
        for method in ("a_pid", "version", "listMethods", "rpc.discover"):
            assert "result" in client.ask(method)
        assert status(client)["b.py"]["running"]["method"] == "b_sleep"
        client.send(notification("$/cancelRequest", {"id": "slow"}))
        assert client.receive()["error"]["code"] == -32800


def test_calls_of_one_worker_run_one_after_the_other(tmp_path: Path, folder: Path) -> None:
    text = "def order(number: int, seconds: float = 0.0) -> list[int]:\n"
    text += "    time.sleep(seconds)\n    seen.append(number)\n    return seen\n"
    write(folder, worker_file("b", text) + "seen: list[int] = []\n", "b.py")
    with rpc(tmp_path) as client:
        client.send(request(0, "order", {"number": 0, "seconds": 0.3}))
        for number in range(1, 6):
            client.send(request(number, "order", {"number": number}))
        assert client.replies(6)[5]["result"] == [0, 1, 2, 3, 4, 5]


def test_progress_and_cancel_with_clean_up_go_through_the_router(
    tmp_path: Path, folder: Path
) -> None:
    text = "def careful(file: str, ctx: Context) -> None:\n    try:\n"
    text += "        ctx.progress(1, 2, 'half')\n        time.sleep(60)\n    finally:\n"
    text += "        time.sleep(3)\n        ctx.log.info('cleaned up')\n"
    text += "        open(file, 'w').write('done')\n"
    write(folder, worker_file("b", text), "b.py")
    with rpc(tmp_path) as client:
        pid = client.call("b_pid")
        params = {"file": str(tmp_path / "clean"), "_meta": {"progressToken": "t"}}
        client.send(request(7, "careful", params))
        value = client.note("$/progress")["params"]
        assert value == {"token": "t", "value": {"done": 1, "total": 2, "message": "half"}}
        client.send(notification("$/cancelRequest", {"id": 7}))
        assert client.receive()["error"]["code"] == -32800
        assert client.call("b_pid") == pid, "clean-up takes longer than 2 s, and is not cut off"
        assert (tmp_path / "clean").read_text() == "done"


def test_a_worker_stuck_in_c_code_is_restarted(tmp_path: Path, folder: Path) -> None:
    # Keeps the interpreter's lock and looks for no signals.
    text = "def stuck(file: str) -> int:\n    open(file, 'w').close()\n"
    text += "    return len(sorted(range(10**9, 0, -1), key=None) or [0] * 10**9)\n"
    stuck = "import ctypes\n" + text.split("    return")[0]
    stuck += "    return ctypes.PyDLL(None).pause()\n"
    write(folder, worker_file("b") + stuck.replace("def stuck", "@method\ndef stuck"), "b.py")
    with rpc(tmp_path) as client:
        pid = client.call("b_pid")
        client.send(request(1, "stuck", {"file": str(tmp_path / "in")}))
        wait_for_file(tmp_path / "in")
        client.send(request(2, "b_pid") + notification("$/cancelRequest", {"id": 1}))
        assert client.receive()["error"]["code"] == -32800
        said = client.note("client/say")["params"]["text"]
        assert "stuck did not react to its cancellation within 2 s" in said
        reply = client.receive()
        assert (reply["id"], reply["result"] != pid) == (2, True), "what was queued is not lost"


@pytest.mark.parametrize("how", ["os._exit(3)", "os.kill(os.getpid(), 11)", "os.abort()"])
def test_a_crash_costs_the_call_that_runs_and_no_other(
    how: str, tmp_path: Path, folder: Path
) -> None:
    write(folder, plain_file("a"), "a.py")
    write(folder, worker_file("b", f"def die() -> None: {how}\n"), "b.py")
    with rpc(tmp_path) as client:
        before = client.call("b_pid")
        client.send(request(1, "die") + request(2, "b_pid") + request(3, "a_pid"))
        replies = client.replies(3)
        assert replies[1]["error"]["code"] == -32803
        assert replies[1]["error"]["data"]["reason"] == "died"
        assert replies[2]["result"] != before, "it waited for the restart"
        assert "result" in replies[3]


def test_a_timeout_says_what_was_being_waited_for(tmp_path: Path) -> None:
    file = write(tmp_path / "other", plain_file("b"), "b.py")
    config = f'[workers.slow]\nmethods = ["{file}"]\ntimeout = 1\n'
    with rpc(tmp_path, config=config) as client:
        client.call("b_pid")
        client.send(request(1, "b_sleep", {"seconds": 60}) + request(2, "b_pid"))
        replies = client.replies(2)
        assert replies[1]["error"]["message"].endswith("b_sleep: no answer within 1 s")
        text = replies[2]["error"]["message"]
        assert "b_pid: no answer within 1 s; b_sleep has been running for" in text
        assert "in the same worker" in text


# Files that change.


def test_a_listed_method_moves_between_main_and_workers(tmp_path: Path, folder: Path) -> None:
    """A list has told the router whose methods they are; that is no longer so after a save."""
    write(folder, worker_file("other"), "other.py")
    write(folder, plain_file("stays"), "stays.py")
    write(folder, plain_file("moves"), "moves.py")
    with rpc(tmp_path) as client:
        assert "moves_pid" in names(client)
        main = client.call("stays_pid")
        assert client.call("moves_pid") == main
        write(folder, worker_file("moves"), "moves.py")
        assert client.call("moves_pid") != main
        write(folder, plain_file("moves"), "moves.py")
        assert client.call("moves_pid") == main
        names(client)
        (folder / "moves.py").unlink()
        write(folder, worker_file("moves"), "again.py")
        assert client.call("moves_pid") != main


def test_a_changed_block_restarts_only_its_own_worker(tmp_path: Path, folder: Path) -> None:
    write(folder, worker_file("b"), "b.py")
    write(folder, worker_file("c"), "c.py")
    with rpc(tmp_path) as client:
        before = client.call("b_pid"), client.call("c_pid")
        write(folder, worker_file("b", "def new() -> int: return 1\n"), "b.py")
        assert client.call("new") == 1
        assert client.call("b_pid") == before[0], "it was loaded again, with all it had imported"
        other = worker_file("b", "def new() -> int: return 2\n")
        write(folder, other.replace("script\n", 'script\n# requires-python = ">=3.9"\n'), "b.py")
        assert client.call("new") == 2
        assert client.call("b_pid") != before[0]
        assert client.call("c_pid") == before[1]


def test_a_worker_outlives_a_look_while_its_file_is_saved(tmp_path: Path, folder: Path) -> None:
    path = write(folder, worker_file("b"), "b.py")
    with rpc(tmp_path) as client:
        pids = [client.call("b_pid")]
        for _ in range(TRIES):  # on a busy machine saving may take longer than is allowed for
            with path.open("w") as emptied:
                client.call("listMethods")
                emptied.write(worker_file("b"))
            pids.append(client.call("b_pid"))
        assert any(one == next for one, next in zip(pids, pids[1:]))


def test_files_become_workers_and_stop_being_some(tmp_path: Path, folder: Path) -> None:
    write(folder, plain_file("a"), "a.py")
    write(folder, plain_file("b"), "b.py")
    write(folder, worker_file("c"), "c.py")
    with rpc(tmp_path) as client:
        main = client.call("a_pid")
        assert client.call("b_pid") == main
        write(folder, worker_file("b"), "b.py")
        worker = client.call("b_pid")
        assert worker not in (main, client.call("c_pid"))
        write(folder, plain_file("b"), "b.py")
        assert client.call("b_pid") == main
        assert is_gone(worker)
        (folder / "c.py").unlink()
        assert client.ask("c_pid")["error"]["code"] == -32601
        assert names(client) == ["a_pid", "a_sleep", "b_pid", "b_sleep"]


def test_two_workers_with_the_same_method_are_reported_once(tmp_path: Path, folder: Path) -> None:
    for name in ("b", "c"):
        write(folder, worker_file(name, "def same() -> str: return __name__\n"), f"{name}.py")
    with rpc(tmp_path) as client:
        for _ in range(3):
            assert names(client).count("same") == 1
        log = (tmp_path / "log").read_text()
        assert log.count("c.py: same is already the name of a method of worker b.py") == 1


def test_a_list_starts_no_worker_whose_methods_are_known(tmp_path: Path, folder: Path) -> None:
    write(folder, worker_file("b"), "b.py")
    with rpc(tmp_path) as client:
        assert names(client) == ["b_pid", "b_sleep"]
    with rpc(tmp_path) as client:
        assert names(client) == ["b_pid", "b_sleep"]
        assert status(client)["b.py"]["state"] == "stopped"
        (folder / "b.py").write_text(worker_file("b", "def more() -> int: return 1\n"))
        assert names(client) == ["b_pid", "b_sleep", "more"], "but a changed one is asked"


def test_a_call_starts_the_one_worker_that_it_needs(tmp_path: Path, folder: Path) -> None:
    for name in "bcd":
        write(folder, worker_file(name), f"{name}.py")
    with rpc(tmp_path) as client:
        assert client.call("c_pid")
        states = {name: each["state"] for name, each in status(client).items()}
        assert states == {"b.py": "stopped", "c.py": "ready", "d.py": "stopped"}


def test_reload_reaches_all_workers_and_a_file_can_be_added(tmp_path: Path, folder: Path) -> None:
    write(folder, plain_file("a"), "a.py")
    write(
        folder,
        worker_file("b") + "begun = time.time()\n" + "@method\ndef when() -> float: return begun\n",
        "b.py",
    )
    more = write(tmp_path / "more", worker_file("m"), "m.py")
    with rpc(tmp_path) as client:
        before = client.call("when")
        assert set(client.call("reloadMethods")) == {"methods", "problems"}
        assert client.call("when") > before
        loaded = client.call("loadMethods", {"file": str(more)})
        assert "m_pid" in loaded["methods"]
        assert client.call("m_pid") not in (client.call("a_pid"), client.call("b_pid"))
        assert client.ask("loadMethods", {"file": "m.py"})["error"]["code"] == -32602


# The configuration.


def test_a_configured_worker_has_its_variables_folder_and_memory(
    tmp_path: Path, folder: Path
) -> None:
    more = "def where() -> list[str]: return [os.getcwd(), os.environ['A']]\n"
    more += "@method\ndef large() -> int: return len(bytearray(2 * 10**9))\n"
    file = write(tmp_path / "other", plain_file("b", more), "b.py")
    config = f'[workers.big]\nmethods = ["{file}"]\ncwd = "{tmp_path}"\nmemory = "1G"\n'
    config += 'env = { A = "x" }\n'
    write(folder, plain_file("a"), "a.py")
    with rpc(tmp_path, "--debug", config=config) as client:
        assert client.call("where") == [str(tmp_path), "x"]
        assert client.ask("large")["error"]["data"]["type"] == "MemoryError"
        assert client.call("where")[1] == "x", "and it goes on"
        assert client.call("a_pid") != client.call("b_pid")
        assert sorted(status(client)) == ["big", "main"]


def test_a_project_without_trust_starts_no_worker(tmp_path: Path) -> None:
    project = tmp_path / "project"
    write(project, plain_file("b"), "b.py")
    (project / ".duet-rpc.toml").write_text('[workers.w]\nmethods = ["b.py"]\n')
    client = GatewayClient(
        [*SOURCE, "rpc"], {**env_for(tmp_path), "DUET_RPC_LOG": str(tmp_path / "log")}, cwd=project
    )
    try:
        assert client.ask("b_pid")["error"]["code"] == -32601
        assert (
            "[workers] of the project's .duet-rpc.toml is skipped" in (tmp_path / "log").read_text()
        )
    finally:
        client.finish()


# The end.


@pytest.mark.parametrize("how", ["eof", "SIGTERM", "shutdown"])
def test_a_call_that_is_running_at_the_end_may_finish(
    how: str, tmp_path: Path, folder: Path
) -> None:
    write(folder, worker_file("b"), "b.py")
    with rpc(tmp_path) as client:
        pid = client.call("b_pid")
        client.send(request(1, "b_sleep", {"seconds": 0.5}) + request(2, "version"))
        assert client.receive()["id"] == 2
        if how == "eof":
            client.close_input()
        elif how == "shutdown":
            client.send(notification("shutdown"))
        else:
            os.kill(client.process.pid, signal.SIGTERM)
        assert client.receive()["result"] == "slept"
        assert client.process.wait(PATIENCE) == 0
        assert is_gone(pid)


@pytest.mark.parametrize("code", ["time.sleep(60)", "while True: pass"])
def test_workers_are_gone_within_two_seconds_of_the_end(
    code: str, tmp_path: Path, folder: Path
) -> None:
    write(folder, worker_file("b", f"def busy() -> None:\n    {code}\n"), "b.py")
    with rpc(tmp_path) as client:
        pid = client.call("b_pid")
        client.send(request(1, "busy") + request(2, "version"))
        assert client.receive()["id"] == 2
        client.close_input()
        start = time.monotonic()
        assert client.process.wait(PATIENCE) == 0
        assert time.monotonic() - start < 2.5  # 2.0 where nothing else runs
        assert is_gone(pid)


def test_a_killed_router_leaves_no_worker_behind(tmp_path: Path, folder: Path) -> None:
    write(folder, plain_file("a"), "a.py")
    write(folder, worker_file("b"), "b.py")
    with rpc(tmp_path) as client:
        pids = [client.call("a_pid"), client.call("b_pid")]
        client.send(request(1, "b_sleep", {"seconds": 60}))
        client.process.kill()
        assert all(is_gone(pid) for pid in pids)


# Environments.


@pytest.fixture
def made_with_uv(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return variables for a user who has uv; all tests share what it downloads."""
    shared = tmp_path_factory.getbasetemp().parent / "uv-cache"
    env = with_tool("uv", tmp_path, {"PATH": os.environ["PATH"]})
    return {"PATH": env["PATH"], "UV_CACHE_DIR": str(shared)}


def test_a_worker_has_packages_that_nobody_else_has(
    tmp_path: Path, folder: Path, made_with_uv: dict[str, str]
) -> None:
    text = BLOCK.replace("script\n", 'script\n# dependencies = ["tabulate"]\n') + HEAD
    text += "@method\ndef table() -> str:\n    import tabulate\n"
    text += "    return tabulate.tabulate([['a']])\n"
    write(folder, text, "tables.py")
    write(
        folder,
        plain_file("a", "def other() -> bool:\n    import tabulate\n    return True\n"),
        "a.py",
    )
    with rpc(tmp_path, **made_with_uv) as client:
        params = {"_meta": {"progressToken": 1}}
        client.send(request(1, "table", params) + request(2, "a_pid"))
        assert client.receive()["id"] == 2, "nobody waits for an installer"
        assert "a" in client.receive()["result"]
        assert client.ask("other")["error"]["code"] == -32603
        assert "envs" in status(client)["tables.py"]["python"]


def test_a_failed_environment_is_explained_to_every_caller(
    tmp_path: Path, folder: Path, made_with_uv: dict[str, str]
) -> None:
    bad = BLOCK.replace("script\n", 'script\n# dependencies = ["no-such-package-of-ours"]\n')
    write(folder, bad + plain_file("b"), "b.py")
    write(folder, plain_file("a"), "a.py")
    with rpc(tmp_path, **made_with_uv) as client:
        for _ in range(2):
            error = client.ask("b_pid")["error"]
            assert (error["code"], error["data"]["reason"]) == (-32803, "environment")
            assert "b.py: " in error["message"]
            assert "no-such-package-of-ours" in error["message"]
        (problem,) = client.call("reloadMethods")["problems"]
        assert problem.startswith("b.py: an environment with no-such-package-of-ours could not be ")
        assert "\n" not in problem
        assert "result" in client.ask("a_pid")
        write(folder, BLOCK + plain_file("b"), "b.py")
        assert "result" in client.ask("b_pid"), "it heals with the file"
        assert client.call("reloadMethods")["problems"] == []


def test_a_wrong_block_is_explained_with_its_line(tmp_path: Path, folder: Path) -> None:
    write(folder, "# /// script\n# dependencies = 1\n# ///\n" + plain_file("b"), "b.py")
    with rpc(tmp_path) as client:
        what = 'b.py:2: dependencies must be a list of strings, such as ["pandas>=2", "requests"]'
        assert what in client.ask("b_pid")["error"]["message"]
        assert client.call("reloadMethods")["problems"] == [what]


# Questions, streams and other clients.


def test_a_question_of_a_worker_is_answered_through_the_router(
    tmp_path: Path, folder: Path
) -> None:
    text = "def rename(ctx: Context) -> list[object]:\n"
    text += "    return [ctx.ask('To?', default='x'), ctx.confirm('Sure?')]\n"
    write(folder, plain_file("a"), "a.py")
    write(folder, worker_file("b", text), "b.py")
    client_says = {"client": {"name": "test", "can": ["ask", "confirm"], "call": 5}}
    with rpc(tmp_path) as client:
        client.send(request(1, "rename", {"_meta": client_says}))
        asked = client.note("client/ask")
        assert asked["params"] == {"prompt": "To?", "default": "x", "_meta": {"call": 5}}
        # What the client calls while it answers is served at once, wherever it lives.
        for method in ("b_pid", "a_pid", "version"):
            params = {} if method == "version" else {"_meta": {"during": asked["id"]}}
            assert "result" in client.ask(method, params or None, id=f"inside {method}")
        client.send(frame(f'{{"jsonrpc":"2.0","id":{json.dumps(asked["id"])},"result":"y"}}'))
        sure = client.note("client/confirm")
        client.send(frame(f'{{"jsonrpc":"2.0","id":{json.dumps(sure["id"])},"result":true}}'))
        assert client.receive()["result"] == ["y", True]


def test_a_call_inside_questions_of_two_workers_is_served_at_once(
    tmp_path: Path, folder: Path
) -> None:
    for name in ("a", "b"):
        text = f"def ask_{name}(ctx: Context) -> str:\n    return ctx.ask('{name}?')\n"
        write(folder, worker_file(name, text), f"{name}.py")
    says = {"client": {"name": "test", "can": ["ask"]}}
    with rpc(tmp_path) as client:
        client.send(request(1, "ask_a", {"_meta": says}))
        outer = client.note("client/ask", prompt="a?")
        client.send(request(2, "ask_b", {"_meta": {**says, "during": outer["id"]}}))
        inner = client.note("client/ask", prompt="b?")
        # Both wait for a client that has one thread, and is at the innermost question.
        for method, mark in [("a_pid", inner["id"]), ("b_pid", outer["id"]), ("a_pid", "old")]:
            reply = client.ask(method, {"_meta": {"during": mark}}, id=f"{method} {mark}")
            assert "result" in reply
        for question in (inner, outer):
            client.send(
                frame(f'{{"jsonrpc":"2.0","id":{json.dumps(question["id"])},"result":"y"}}')
            )
            assert client.receive()["result"] == "y"


def test_streams_and_pushes_of_a_worker_reach_the_client(tmp_path: Path, folder: Path) -> None:
    text = "def count() -> Iterator[str]:\n    duet_rpc.notify('topic', {'a': 1})\n"
    text += "    for number in range(3):\n        yield str(number)\n        time.sleep(0.05)\n"
    head = "import duet_rpc\nfrom collections.abc import Iterator\n"
    write(folder, BLOCK + head + plain_file("b", text), "b.py")
    with rpc(tmp_path) as client:
        client.send(request(1, "count", {"_meta": {"partialResultToken": "p"}}))
        assert client.receive()["result"] is None
        assert client.note("client/notify")["params"] == {"topic": "topic", "params": {"a": 1}}
        pieces = [each["params"] for each in client.notes if each["method"] == "$/progress"]
        assert {each["token"] for each in pieces} == {"p"}
        assert "".join(each["value"] for each in pieces) == "012"


@pytest.mark.parametrize("flags", [(), ("--gateway",)])
def test_an_ai_client_has_the_methods_of_all_workers(
    flags: tuple[str, ...], tmp_path: Path, folder: Path
) -> None:
    write(folder, plain_file("a"), "a.py")
    write(folder, worker_file("b"), "b.py")
    (tmp_path / "home").mkdir(exist_ok=True)
    with mcp_server(tmp_path, *flags) as ask:
        listed = [each["name"] for each in ask("tools/list")["tools"]]
        assert listed == ["a_pid", "a_sleep", "b_pid", "b_sleep"]
        pids = {ask("tools/call", name=f"{name}_pid")["content"][0]["text"] for name in "ab"}
        assert len(pids) == 2


def test_a_first_worker_is_found_by_a_running_mcp_server(tmp_path: Path, folder: Path) -> None:
    write(folder, plain_file("a"), "a.py")
    with mcp_server(tmp_path) as ask:
        assert [each["name"] for each in ask("tools/list")["tools"]] == ["a_pid", "a_sleep"]
        write(folder, worker_file("b"), "b.py")
        assert "b_pid" in [each["name"] for each in ask("tools/list")["tools"]]
        assert ask("tools/call", name="b_pid")["isError"] is False


@contextmanager
def mcp_server(tmp_path: Path, *flags: str) -> Iterator[Callable[..., Any]]:
    """Run `duet-rpc mcp` and shake hands with it."""
    (tmp_path / "home").mkdir(exist_ok=True)
    process = subprocess.Popen(
        [*SOURCE, "mcp", *flags], stdin=-1, stdout=-1, env={**os.environ, **env_for(tmp_path)}
    )
    assert process.stdin is not None
    assert process.stdout is not None
    numbers = count(1)

    def ask(method: str, **params: object) -> Any:
        id = next(numbers)
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        process.stdin.write(json.dumps(message).encode() + b"\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        while True:
            reply = json.loads(process.stdout.readline())  # type: ignore[union-attr]
            if reply.get("id") == id:
                return reply["result"]

    try:
        ask("initialize", protocolVersion="2025-11-25", capabilities={})
        yield ask
    finally:
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
        process.stdout.close()
