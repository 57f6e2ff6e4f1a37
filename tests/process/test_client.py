"""The client behind `call`, `console` and `doctor`, against real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from duet_rpc import __version__
from duet_rpc.jsonrpc import Failure, Notification, Success
from duet_rpc.jsonrpc.errors import RpcError
from duet_rpc.program import daemon_command, program_name
from duet_rpc.terminal.client import Client, DaemonError
from tests.support import PYZ, SOURCE, TOP, WITH_METHODS
from tests.terminal import is_alive, is_gone

VERSION = {"version": __version__}
QUIET = [*SOURCE, "rpc", "--log-level", "error"]


@pytest.fixture(autouse=True)
def _source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TOP))


def fake(behaviour: str) -> list[str]:
    return [sys.executable, str(TOP / "tests" / "fake_daemon.py"), behaviour]


def test_calls_by_name_by_position_and_without_params() -> None:
    with Client(QUIET) as client:
        assert client.call("version") == VERSION
        assert client.call("version", {}) == VERSION
        assert client.call("setLogLevel", ["error"]) == {"level": "error", "success": True}
        with pytest.raises(RpcError, match="Method not found: nonsense") as caught:
            client.call("nonsense")
        assert caught.value.code == -32601
        assert client.call("version") == VERSION
        assert client.exit_reason is None
    assert client.clean


def test_replies_come_in_the_order_of_the_requests() -> None:
    with Client(QUIET) as client:
        ids = [client.send("version") for _ in range(500)]
        replies = [client.receive(10) for _ in ids]
    assert [reply.id for reply in replies if isinstance(reply, (Success, Failure))] == ids


def test_waiting_ends_at_the_timeout_or_a_wakeup() -> None:
    reading, writing = os.pipe()
    with Client(QUIET) as client:
        assert client.call("version") == VERSION
        start = time.monotonic()
        assert client.receive(0.2) is None
        assert 0.15 < time.monotonic() - start < 2.0
        os.write(writing, b"x")
        assert client.receive(None, reading) is None
        id = client.send("version")
        os.read(reading, 1)
        reply = client.receive(10, reading)
    assert isinstance(reply, (Success, Failure))
    assert reply.id == id
    os.close(reading)
    os.close(writing)


def test_a_daemon_that_does_not_read_blocks_nothing() -> None:
    with Client(fake("deaf")) as client:
        start = time.monotonic()
        client.send("m", {"a": "x" * 5_000_000})
        client.cancel(1)
        assert client.receive(0.2) is None
        assert time.monotonic() - start < 2.0
        client.kill()


def test_more_than_a_pipe_holds_goes_both_ways_at_once() -> None:
    text = "x" * 1_000_000
    with Client(fake("echo")) as client:
        ids = [client.send("m", [text]) for _ in range(5)]
        for _ in ids:
            reply = client.receive(10)
            assert isinstance(reply, Success)
            assert reply.result == [[], [text]]


def test_notifications_are_told_from_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_PROGRESS", '[{"done": 1}]')
    with Client(fake("progress")) as client:
        client.send("m", {"_meta": {"progressToken": 7}})
        first, second = client.receive(10), client.receive(10)
    assert isinstance(first, Notification)
    assert (first.method, first.params) == ("$/progress", {"token": 7, "value": {"done": 1}})
    assert isinstance(second, Success)
    assert second.result == "done"


def test_a_late_reply_is_not_taken_for_the_next() -> None:
    with Client(WITH_METHODS) as client:
        with pytest.raises(DaemonError, match=r"did not answer within 0\.2 s"):
            client.call("sleep", [0.6], seconds=0.2)
        assert client.call("version") == VERSION


def test_a_cancelled_request_still_has_its_reply() -> None:
    with Client(fake("cancel")) as client:
        client.cancel(client.send("m"))
        reply = client.receive(10)
    assert isinstance(reply, Failure)
    assert reply.error.code == -32800


# Exit.


def test_closing_lets_the_daemon_exit_by_itself() -> None:
    client = Client(QUIET)
    pid = client._process.pid
    client.call("version")
    start = time.monotonic()
    assert client.close() == 0
    assert time.monotonic() - start < 1.0
    assert client.close() == 0
    assert client.kill() == 0
    assert client.exit_reason == "the daemon exited with code 0"
    assert not is_alive(pid)


def test_closing_kills_a_daemon_that_does_not_exit() -> None:
    client = Client(fake("deaf"))
    assert client.receive(0.5) is None  # until it ignores signals
    start = time.monotonic()
    assert client.close() == -9
    assert 1.9 < time.monotonic() - start < 4.0


def test_an_interrupt_kills_the_daemon_and_its_children() -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        'body = b\'{"jsonrpc": "2.0", "method": "pid", "params": [%d]}\' % child.pid\n'
        "sys.stdout.buffer.write(b'Content-Length: %d\\r\\n\\r\\n' % len(body) + body)\n"
        "sys.stdout.flush()\n"
        "time.sleep(60)\n"
    )
    client = Client([sys.executable, "-c", code])
    message = client.receive(10)
    assert isinstance(message, Notification)
    assert isinstance(message.params, list)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), client:
        raise KeyboardInterrupt
    assert time.monotonic() - start < 1.0
    pid = message.params[0]
    assert isinstance(pid, int)
    assert is_gone(pid, 1.0)


def test_the_daemon_has_its_own_process_group() -> None:
    with Client(QUIET) as client:
        pid = client._process.pid
        assert os.getpgid(pid) == os.getsid(pid) == pid


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc here")
def test_no_descriptor_is_left_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for behaviour in ("exit", "crash", "half"):
        with pytest.raises(DaemonError), Client(fake(behaviour)) as client:
            client.call("m")
    with Client(QUIET) as client:
        client.call("version")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_request_after_the_exit_says_how_it_exited() -> None:
    with Client(fake("exit")) as client:
        with pytest.raises(DaemonError, match="exited with code 3"):
            client.call("m")
        for _ in range(2):
            with pytest.raises(DaemonError, match="exited with code 3 before it answered"):
                client.call("m")
        assert client.exit_reason == "the daemon exited with code 3"


# The command that starts the daemon.


def test_the_daemon_is_this_same_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Main:
        __spec__: object = None
        __file__ = "bin/duet-rpc"
        __loader__: object = None

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", Main)
    script = str(tmp_path / "bin" / "duet-rpc")
    assert daemon_command(["--no-color"]) == [sys.executable, script, "rpc", "--no-color"]
    assert program_name() == "duet-rpc"
    Main.__spec__ = object()
    assert daemon_command() == [sys.executable, "-m", "duet_rpc", "rpc"]
    assert program_name() == "python -m duet_rpc"
    Main.__loader__ = type("Loader", (), {"archive": "duet-rpc.pyz"})
    assert daemon_command() == [sys.executable, str(tmp_path / "duet-rpc.pyz"), "rpc"]
    assert program_name() == "duet-rpc.pyz"


def test_the_daemon_loads_nothing_that_is_for_people() -> None:
    code = (
        "import os, sys; sys.argv = ['duet-rpc', 'rpc']\n"
        "from duet_rpc.server import serve\n"
        "def look(*_, **__): os.write(2, ' '.join(sys.modules).encode()); os._exit(0)\n"
        "serve.serve = look\n"
        "from duet_rpc.cli import main; main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    loaded = done.stderr.decode().split()
    assert "duet_rpc.cli" in loaded
    assert not [name for name in loaded if name.startswith("duet_rpc.terminal")]


@pytest.mark.parametrize("flags", [[], ["-I"], ["-E"], ["-s"], ["-E", "-s"]])
def test_the_daemon_is_as_isolated_as_we_are(flags: list[str], tmp_path: Path) -> None:
    file = tmp_path / "flags.py"
    file.write_text(
        "import sys\nfrom duet_rpc import method\n@method\ndef flags():\n"
        "    return [sys.flags.isolated, sys.flags.ignore_environment, sys.flags.no_user_site]\n"
    )
    done = subprocess.run(
        [sys.executable, *flags, str(PYZ), "call", "flags", "--methods", str(file)],
        capture_output=True,
        check=True,
        timeout=20,
    )
    isolated = "-I" in flags
    wanted = [isolated, isolated or "-E" in flags, isolated or "-s" in flags]
    assert json.loads(done.stdout) == wanted
