"""How the daemon leaves: asked to, with closed pipes, with full pipes."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.exits import unread
from tests.leaving import HANGING, TRIGGERS, WINDOW, end, running
from tests.machine import wait_until_computing
from tests.support import (
    SOURCE,
    WITH_METHODS,
    daemon,
    notification,
    request,
    shortest,
    wait_for_file,
    wait_until,
)
from tests.terminal import is_alive, is_asleep


def test_an_input_error_does_not_fail_the_running_method(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    env = {"TEST_MARK": str(tmp_path / "running")}
    with daemon(HANGING, env, stdin=theirs, stdout=theirs) as client:
        theirs.close()
        ours.sendall(request(1) + request(2, "spin", [0.5]))
        wait_for_file(tmp_path / "running")
        assert ours.recv(1, socket.MSG_PEEK)
        ours.close()  # with a reply unread: the other side is told that the connection was reset
        code, log = end(client)
    assert code == 1
    assert "Internal error" not in log
    assert log.count("ERROR") == 1


@pytest.mark.parametrize("room", range(31, 21, -1))
def test_input_is_read_during_a_deep_recursion(room: int) -> None:
    nested: object = None
    for _ in range(900):
        nested = [nested]
    with daemon(WITH_METHODS) as client:
        client.call("version")
        depth = sys.getrecursionlimit() - room
        client.send(request(1, "spin_below", [depth, 0.4]))
        wait_until_computing(client.process.pid)
        client.send(request(2, "version", {"_meta": nested}))
        client.send(request(3, "spin_below", [depth, 0.0]))
        assert client.receive() == {"jsonrpc": "2.0", "id": 1, "result": "spun"}
        assert "result" in client.receive()
        assert client.receive()["result"] == "spun"
        client.send(request(4, "spin_below", [depth + room, 0.0]))  # the limit is what it was
        assert client.receive()["error"]["code"] == -32603


@pytest.mark.parametrize("ended", [0.0, 0.5], ids=["at once", "stdin first"])
def test_the_queue_of_a_vanished_client_is_not_finished(
    ended: float,
) -> None:
    def attempt() -> float:
        with daemon(WITH_METHODS) as client:
            client.call("version")
            client.send(notification("spin", [1.4]) * 20)
            start = time.monotonic()
            client.close_input()
            time.sleep(ended)  # meanwhile the client might still want its replies
            assert client.process.stdout is not None
            client.process.stdout.close()
            client.process.stdout = None
            code, _ = client.wait()
            took = time.monotonic() - start
            assert code == 1
            assert end(client)[1].count("stdout is closed: the client is gone") == 1
        return took

    assert shortest(attempt, WINDOW) < WINDOW


def test_a_non_blocking_pipe_is_read_like_any_other() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with daemon(stdin=reading) as client, open(writing, "wb", buffering=0) as pipe:
        client.process.stdin = None
        for id in range(5):
            pipe.write(request(id))
            assert client.receive()["id"] == id
            wait_until(lambda: is_asleep(client.process.pid), "the empty pipe is waited for")
        pipe.close()
        assert client.wait()[0] == 0
    os.close(reading)


@pytest.mark.parametrize("method", ["spin", "sleep"])
@pytest.mark.parametrize("trigger", TRIGGERS)
def test_a_running_request_has_two_seconds(trigger: str, method: str, tmp_path: Path) -> None:
    def attempt() -> float:
        with running(tmp_path, request(1, method, [60])) as client:
            start = time.monotonic()
            TRIGGERS[trigger](client)
            client.wait()
            took = time.monotonic() - start
            code, log = end(client)
        assert code == 0
        assert took > 1.2
        assert "shutting down gracefully" in log
        assert "still running" in log
        return took

    assert shortest(attempt, WINDOW) < WINDOW


@pytest.mark.parametrize("method", ["spin", "sleep"])
@pytest.mark.parametrize("trigger", TRIGGERS)
def test_a_request_that_is_done_in_time_sends_its_reply(
    trigger: str, method: str, tmp_path: Path
) -> None:
    with running(tmp_path, request(1, method, [0.8]) + request(2)) as client:
        TRIGGERS[trigger](client)
        assert client.receive()["id"] == 1
        if trigger == "EOF":  # received whole before the end: answered
            assert client.receive()["id"] == 2
        code, log = end(client)
    assert code == 0
    assert "still running" not in log


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_a_reply_stuck_in_a_full_pipe_has_two_seconds(trigger: str, tmp_path: Path) -> None:
    def attempt() -> float:
        with running(tmp_path, request(1, "big", [5_000_000])) as client:
            assert client.process.stdout is not None
            stdout = client.process.stdout.fileno()
            wait_until(lambda: unread(stdout) >= 4096, "a part of the reply has come")
            start = time.monotonic()
            TRIGGERS[trigger](client)
            code, _ = client.wait()
            took = time.monotonic() - start
        assert code == 0
        assert took > 1.2
        return took

    assert shortest(attempt, WINDOW) < WINDOW


def test_a_reply_stuck_for_a_while_arrives_after_all(tmp_path: Path) -> None:
    with running(tmp_path, request(1, "big", [5_000_000])) as client:
        time.sleep(1.0)  # a slow client
        client.close_input()
        time.sleep(0.5)  # and one within the two seconds
        assert len(client.receive()["result"]) == 5_000_000
        code, log = end(client)
    assert code == 0
    assert "still running" not in log


def test_frames_queued_at_the_end_of_input_are_answered() -> None:
    with daemon(WITH_METHODS) as client:
        client.call("version")
        client.send(b"".join(request(n, "sleep", [0.2]) for n in range(4)))
        client.close_input()
        assert [client.receive()["id"] for _ in range(4)] == [0, 1, 2, 3]
        code, _ = end(client)
    assert code == 0


def test_stdout_gone_is_one_line_and_exit_1() -> None:
    with daemon() as client:
        client.call("version")
        client.process.stdout.close()  # type: ignore[union-attr]
        client.process.stdout = None
        client.send(request(2))
        code, log = end(client)
    assert code == 1
    assert log.count("ERROR stdout is closed: the client is gone") == 1
    assert "Traceback" not in log


def test_stdout_closed_at_the_start_means_exit_1() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{' '.join(SOURCE)} rpc >&-"],
        input=request(1),
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 1
    assert b"ERROR" in done.stderr
    assert b"Traceback" not in done.stderr


def test_stdin_closed_from_the_start_is_the_end_of_input() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{' '.join(SOURCE)} rpc <&-"], capture_output=True, timeout=20, check=False
    )
    assert done.returncode in (0, 1)
    assert b"Traceback" not in done.stderr


def test_stderr_closed_from_the_start_is_no_harm() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{' '.join(SOURCE)} rpc 2>&-"],
        input=request(1) + request(2, "nonsense"),
        stdout=subprocess.PIPE,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.count(b"Content-Length") == 2


def test_a_client_that_never_reads_stderr_does_not_stall_it() -> None:
    with daemon(WITH_METHODS) as client:
        client.call("version")
        for number in range(3000):  # more than 64 KiB of log
            client.call("version", id=number)
        os.set_blocking(client.process.stderr.fileno(), False)  # type: ignore[union-attr]
        while client.process.stderr.read(65536):  # type: ignore[union-attr]
            pass
        client.call("version", id="later")
        code, log = end(client)
    assert code == 0
    assert "log lines could not be written" in log


def test_a_full_stderr_delays_the_exit_by_half_a_second() -> None:
    def attempt() -> float:
        with daemon(WITH_METHODS) as client:
            client.call("version")
            for number in range(3000):
                client.call("version", id=number)
            client.close_input()
            code, seconds = client.wait()
        assert code == 0
        return seconds

    assert shortest(attempt, 0.65) < 0.65


def test_stdout_is_given_back_as_it_came() -> None:
    reading, writing = os.pipe()
    with daemon(stdout=writing) as client:
        client.send(request(1))
        assert os.read(reading, 100)
        assert not os.get_blocking(writing)
        client.close_input()
        client.wait()
        assert os.get_blocking(writing)
    os.close(reading)
    os.close(writing)


def test_the_parent_killed_with_9_leaves_no_orphan() -> None:
    script = (
        "import subprocess, sys, time\n"
        "pipe = subprocess.PIPE\n"
        f"p = subprocess.Popen({[*SOURCE, 'rpc']!r}, stdin=pipe, stdout=pipe)\n"
        f"p.stdin.write({request(1)!r}); p.stdin.flush(); p.stdout.readline()\n"
        "print(p.pid, flush=True); time.sleep(60)\n"
    )
    parent = subprocess.Popen([SOURCE[0], "-c", script], stdout=subprocess.PIPE)
    pid = int(parent.stdout.readline())  # type: ignore[union-attr]
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not is_alive(pid), "the daemon has ended with its parent")
    parent.communicate()


def test_a_person_at_a_terminal_is_told_what_to_do() -> None:
    main, side = os.openpty()
    with daemon(stdin=side) as client:
        os.close(side)
        os.write(main, b'Content-Length: 43\n\n{"jsonrpc":"2.0","id":7,"method":"version"}\n\x04')
        assert client.receive()["id"] == 7
        os.write(main, b"\x04")
        client.wait()
        code, log = end(client)
    os.close(main)
    assert code == 0
    hint = log.splitlines()[0]
    for words in ("waiting", "Ctrl-D", "duet_rpc call", "duet_rpc console"):
        assert words in hint


def test_a_pipe_of_one_page_is_enough() -> None:
    if not hasattr(fcntl, "F_SETPIPE_SZ"):
        pytest.skip("pipes can't be made smaller here")
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    with daemon(WITH_METHODS, stdout=writing) as client:
        os.close(writing)
        client.send(request(1, "big", [200_000]))
        data = b""
        while len(data) < 200_000:
            data += os.read(reading, 999)
            time.sleep(0.0005)  # a slow client
        client.close_input()
        assert client.wait()[0] == 0
    os.close(reading)
    assert data.endswith(b'xxx"}')
