"""One connection: workers behind `duet-rpc rpc`, with a client that never notices the router."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from duet_rpc.jsonrpc.framing import FRAMINGS
from tests.method_files import write
from tests.support import PATIENCE, frame, notification, request, wait_for_file
from tests.terminal import is_gone
from tests.workers import names, plain_file, rpc, status, worker_file

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
