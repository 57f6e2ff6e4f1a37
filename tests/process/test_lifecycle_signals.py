"""How the daemon takes real signals: at any moment, many of them, none of them lost."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from signal import SIGTERM, Signals

import pytest

from tests.exits import unread
from tests.leaving import HANGING, SIGNALS, WINDOW, end, running
from tests.machine import wait_for_loguru
from tests.support import SOURCE, daemon, request, shortest, wait_until
from tests.terminal import is_asleep


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_an_idle_daemon_and_is_logged(number: Signals) -> None:
    def attempt() -> float:
        with daemon() as client:
            client.call("version")
            start = time.monotonic()
            client.signal(number)
            client.wait()
            took = time.monotonic() - start
            code, log = end(client)
        assert code == 0
        assert f"INFO  {number.name} received, shutting down gracefully" in log
        assert "Traceback" not in log
        return took

    assert shortest(attempt, 0.5) < 0.5


def test_a_signal_right_after_a_reply_is_never_missed() -> None:
    for _ in range(15):
        with daemon([*SOURCE, "rpc", "--log-level", "error"]) as client:
            client.call("version")
            client.signal(SIGTERM)
            code, seconds = client.wait()
            assert code == 0
            assert seconds < WINDOW


JUST_BEFORE = r"""
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static int left;
ssize_t read(int fd, void *data, size_t size)
{
    ssize_t got = syscall(SYS_read, fd, data, size);
    if (got > 0 && memmem(data, (size_t)got, "\"late\"", 6))
        left = LATE;
    return got;
}
int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    if (left > 0 && --left == 0)
        raise(SIGTERM);
    return syscall(SYS_poll, fds, count, timeout);
}
"""
"""A `poll` that is sent a signal when Python has looked for one the last time."""


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is Linux's")
@pytest.mark.parametrize("late", [1, 2], ids=["after a reply", "when it is idle"])
def test_a_signal_just_before_waiting_is_not_missed(tmp_path: Path, late: int) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    source, library = tmp_path / "late.c", tmp_path / "late.so"
    source.write_text(JUST_BEFORE)
    compile = ["cc", "-shared", "-fPIC", f"-DLATE={late}", "-o", str(library), str(source)]
    subprocess.run(compile, check=True, timeout=60)
    with daemon(env={"LD_PRELOAD": str(library)}) as client:
        client.call("version")
        client.send(request(1, "late"))
        client.receive()
        code, seconds = client.wait()
        assert (code, seconds < WINDOW) == (0, True)
        assert "SIGTERM received" in end(client)[1]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_amid_many_requests_is_not_missed(number: Signals) -> None:
    chance = random.Random(number)  # noqa: S311
    for _ in range(6):
        with daemon([*SOURCE, "rpc", "--log-level", "error"]) as client:
            client.call("version")
            wait_for_loguru(client.process.pid)
            for id in range(chance.randrange(1, 400)):
                client.call("version", id=id)
            client.signal(number)
            code, seconds = client.wait()
            assert (code, seconds < WINDOW) == (0, True)


def test_a_parent_that_blocks_signals_does_no_harm(tmp_path: Path) -> None:
    def block() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

    with running(tmp_path, request(1, "spin", [60]), preexec_fn=block) as client:
        client.signal(SIGTERM)
        assert client.wait()[0] == 0


def test_a_storm_of_harmless_signals_breaks_no_method() -> None:
    harmless = [signal.SIGWINCH, signal.SIGCHLD, signal.SIGURG, signal.SIGVTALRM]
    with daemon(HANGING) as client:
        client.call("version")
        for id in range(20):
            client.send(request(id, "spin", [0.1]))
            while client.silent_for(0):
                for number in harmless:
                    client.signal(number)
            assert client.receive() == {"jsonrpc": "2.0", "id": id, "result": "spun"}


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_inside_a_frame_ends_it_without_a_reply(number: Signals) -> None:
    with daemon() as client:
        client.call("version")
        client.send(request(2)[:30])
        assert client.process.stdin is not None
        stdin = client.process.stdin.fileno()
        wait_until(lambda: unread(stdin) == 0, "the part is read")
        wait_until(lambda: is_asleep(client.process.pid), "the rest is waited for")
        client.signal(number)
        code, seconds = client.wait()
        assert (code, client.process.stdout.read()) == (0, b"")  # type: ignore[union-attr]
        assert seconds < WINDOW


def test_more_signals_change_nothing(tmp_path: Path) -> None:
    with running(tmp_path, request(1, "sleep", [0.8])) as client:
        for number in SIGNALS * 3:
            client.signal(number)
            time.sleep(0.02)  # or two of them come at once
        assert client.receive()["id"] == 1
        code, log = end(client)
    assert code == 0
    assert log.count("received, shutting down") == 1


def test_after_a_signal_nothing_more_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with (
        path.open("wb") as log,
        running(tmp_path, request(1, "sleep", [0.8]), stderr=log) as client,
    ):
        client.signal(SIGTERM)
        # Or the request may be there first.
        wait_until(lambda: "SIGTERM received" in path.read_text(), "the signal is seen")
        client.send(request(2))
        assert client.receive()["id"] == 1
        client.wait()
        assert client.process.stdout.read() == b""  # type: ignore[union-attr]
