"""Workers in trouble: killed, stopped, flooding, deaf, out of memory. Nobody else notices."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import GatewayClient
from tests.method_files import write
from tests.support import PATIENCE, frame, notification, request, wait_for_file
from tests.terminal import environment, invoke, is_gone
from tests.workers import BLOCK, HEAD, plain_file, rpc, status, worker_file

ASKS = "def asks(ctx: Context) -> str:\n    return ctx.ask('Name?')\n"
CAN_ASK = {"_meta": {"client": {"name": "test", "can": ["ask"]}}}
WINDOW = 2.0  # seconds from the end of input to the end of the process


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return where the user's methods belong, with a method that nothing may disturb."""
    folder = tmp_path / "home/.config/duet-rpc/methods"
    write(folder, plain_file("a"), "a.py")
    return folder


def pid_of(client: GatewayClient, method: str = "b_pid") -> int:
    pid = client.call(method)
    assert isinstance(pid, int)
    return pid


def test_a_worker_killed_at_a_question_withdraws_it(tmp_path: Path, folder: Path) -> None:
    write(folder, worker_file("b", ASKS), "b.py")
    with rpc(tmp_path) as client:
        pid = pid_of(client)
        client.send(request(2, "asks", CAN_ASK))
        question = client.note("client/ask", prompt="Name?")
        os.kill(pid, signal.SIGKILL)
        error = client.receive()["error"]
        assert (error["data"]["backend"], error["data"]["signal"]) == ("b.py", "SIGKILL")
        assert client.note("$/cancelRequest", id=question["id"])
        # Its answer is too late, and the next call finds a new process.
        client.send(frame({"jsonrpc": "2.0", "id": question["id"], "result": "x"}))
        assert pid_of(client) != pid


def test_what_waits_for_a_killed_worker_survives_a_restart(tmp_path: Path, folder: Path) -> None:
    write(folder, worker_file("b"), "b.py")
    with rpc(tmp_path) as client:
        pid = pid_of(client)
        os.kill(pid, signal.SIGKILL)
        client.state("b.py", "backoff")
        client.send(request("waits", "b_pid") + request(2, "gateway/restart", {"backend": "b.py"}))
        replies = client.replies(2)
        assert replies["waits"]["result"] != pid


def test_a_stopped_worker_delays_nobody_and_is_replaced(tmp_path: Path, folder: Path) -> None:
    write(folder, worker_file("b"), "b.py")
    with rpc(tmp_path) as client:
        pid = pid_of(client)
        os.kill(pid, signal.SIGSTOP)
        client.send(request(2, "b_pid"))
        assert "result" in client.ask("a_pid", id=3)
        client.send(notification("$/cancelRequest", {"id": 2}))
        assert client.receive()["error"]["code"] == -32800
        assert is_gone(pid)
        assert pid_of(client) != pid


def test_a_stopped_worker_does_not_delay_the_end(tmp_path: Path, folder: Path) -> None:
    write(folder, worker_file("b"), "b.py")
    with rpc(tmp_path) as client:
        pid = pid_of(client)
        os.kill(pid, signal.SIGSTOP)
        client.send(request(2, "b_pid"))
        client.close_input()
        started = time.monotonic()
        assert client.process.wait(PATIENCE) == 0
        assert time.monotonic() - started < WINDOW
        assert is_gone(pid)


FLOODS = {
    "notifications": "for n in range(2000): duet_rpc.notify('t', 'x' * 100)",
    "its log": "for n in range(2000): ctx.log.warn('x' * 100)",
    "stdout": "for n in range(2000): print('x' * 100)",
    "stderr": "for n in range(100): os.write(2, b'x' * 100_000)",
    "progress": "for n in range(20_000): ctx.progress(n)",
}


@pytest.mark.parametrize("what", FLOODS)
def test_a_flooding_worker_delays_nobody(tmp_path: Path, folder: Path, what: str) -> None:
    flood = f"def flood(ctx: Context) -> int:\n    {FLOODS[what]}\n    return 1\n"
    write(folder, BLOCK + "import duet_rpc\n" + plain_file("b", flood), "b.py")
    with rpc(tmp_path) as client:
        pid_of(client)
        client.send(request(1, "flood", {"_meta": {"progressToken": 1}}) + request(2, "a_pid"))
        replies = client.replies(2)
        assert (replies[1]["result"], "result" in replies[2]) == (1, True)


def test_a_worker_that_does_not_read_refuses_what_is_too_much(tmp_path: Path, folder: Path) -> None:
    write(folder, worker_file("b"), "b.py")
    with rpc(tmp_path) as client:
        os.kill(pid_of(client), signal.SIGSTOP)
        many = [request(id, "b_sleep", {"x": "y" * 1_000_000}) for id in range(2, 22)]
        client.send(b"".join(many))
        client.send(request("other", "a_pid"))
        replies: dict[object, dict[str, Any]] = {}
        while "other" not in replies:
            reply = client.receive()
            replies[reply["id"]] = reply
        assert "result" in replies.pop("other")
        refused = replies.pop(21)["error"]
        assert (refused["code"], refused["data"]["reason"]) == (-32803, "queue-full")
        assert refused["message"] == "Request failed: worker b.py does not read: its queue is full"


def test_out_of_memory_costs_one_call(tmp_path: Path, folder: Path) -> None:
    large = "def large() -> int:\n    return len(b'x' * 400_000_000)\n"
    text = HEAD + f"@method\n{large}@method\ndef fine() -> int: return 1\n"
    write(folder.parent / "elsewhere", text, "b.py")
    config = f'[workers.b]\nmethods = ["{folder.parent}/elsewhere/b.py"]\nmemory = "200M"\n'
    with rpc(tmp_path, "--debug", config=config) as client:
        error = client.ask("large")["error"]
        assert (error["code"], error["data"]["type"]) == (-32603, "MemoryError")
        assert client.call("fine") == 1
        assert "result" in client.ask("a_pid")


SLOW_UV = """#!/bin/sh
echo $$ > {folder}/new
mv {folder}/new {folder}/installer-$(ls {folder} | grep -c installer)
exec sleep 60
"""


def test_a_full_queue_says_what_its_worker_does(tmp_path: Path, folder: Path) -> None:
    waits = f"def waits() -> None:\n    open({str(tmp_path / 'runs')!r}, 'x').close()\n"
    write(folder, worker_file("b", waits + "    time.sleep(60)\n"), "b.py")
    block = BLOCK.replace("script\n", 'script\n# dependencies = ["six"]\n')
    write(folder, block + plain_file("c"), "c.py")
    uv = write(tmp_path / "bin", SLOW_UV.format(folder=tmp_path), "uv")
    uv.chmod(0o755)
    with rpc(tmp_path, PATH=f"{uv.parent}:{os.environ['PATH']}") as client:
        client.send(request("b", "waits") + request("c", "c_pid"))
        wait_for_file(tmp_path / "runs")
        wait_for_file(tmp_path / "installer-0")
        for name, what in {"b": "does not answer", "c": "is not ready yet"}.items():
            params = {"x": "y" * 1_000_000}
            client.send(b"".join(request(f"{name}{n}", f"{name}_pid", params) for n in range(6)))
            message = client.receive()["error"]["message"]  # of the last one
            assert message == f"Request failed: worker {name}.py {what}: its queue is full"


@pytest.mark.parametrize("killed", ["the worker", "the router"])
def test_a_kill_while_its_environment_is_made_leaves_nothing(
    tmp_path: Path, folder: Path, killed: str
) -> None:
    block = BLOCK.replace("script\n", 'script\n# dependencies = ["six"]\n')
    write(folder, block + plain_file("b"), "b.py")
    uv = write(tmp_path / "bin", SLOW_UV.format(folder=tmp_path), "uv")
    uv.chmod(0o755)
    with rpc(tmp_path, PATH=f"{uv.parent}:{os.environ['PATH']}") as client:
        client.send(request("b", "b_pid"))
        wait_for_file(tmp_path / "installer-0")
        if killed == "the router":
            client.process.kill()
        else:
            os.kill(status(client)["b.py"]["pid"], signal.SIGKILL)
            assert "result" in client.ask("a_pid")
            wait_for_file(tmp_path / "installer-1")  # the call waits for another attempt
            client.close_input()
            assert client.process.wait(PATIENCE) == 0
        for each in tmp_path.glob("installer-*"):
            assert is_gone(int(each.read_text()))


def test_the_doctor_shows_workers_and_what_is_wrong(tmp_path: Path, folder: Path) -> None:
    write(folder, worker_file("b"), "b.py")
    packages = BLOCK.replace("script\n", 'script\n# dependencies = ["no-such-package-of-ours"]\n')
    write(folder, packages + HEAD, "c.py")
    write(folder, "# /// script\n# dependencies = 1\n# ///\n" + HEAD, "d.py")
    write(folder, '# /// script\n# requires-python = "3"\n# ///\n' + HEAD, "e.py")
    config = f'[workers.old]\nmethods = ["{folder}/gone.py"]\n'
    config += f'[workers.odd]\nmethods = ["{folder}/a.py"]\npython = "/nonesuch/python"\n'
    (folder.parent / "config.toml").write_text(config)
    code, out, _ = invoke(["doctor", "--json"], environment(tmp_path / "home"))
    assert code == 1
    checks = [each for each in json.loads(out)["checks"] if each["name"] == "worker"]
    said = [(each["status"], each["detail"].replace(f"{folder}/", "")) for each in checks]
    made_later = (
        "c.py: c.py; its environment with no-such-package-of-ours is made at the first call"
    )
    assert said == [
        ("ok", "b.py: b.py; the Python of duet-rpc, no packages of its own"),
        ("ok", made_later),
        (
            "fail",
            'd.py:2: dependencies must be a list of strings, such as ["pandas>=2", "requests"]',
        ),
        ("fail", "e.py: requires-python is not a range of versions: '3'"),
        ("fail", "old: gone.py does not exist"),
        ("fail", "odd: the Python /nonesuch/python does not exist"),
    ]
    fixes = [each["fix"] for each in checks]
    assert fixes[2:] == [
        f"correct that line of {folder}/d.py",
        f'write it as in ">=3.10" or ">=3.10,<3.14" ({folder}/e.py)',
        "correct `methods` in [workers.old], or write the file",
        "install it, or name another one ([workers.odd])",
    ]
