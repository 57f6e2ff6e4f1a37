"""What a file does when it comes and goes, and what becomes of processes that it starts."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.author import ONE, rpc
from tests.method_files import write
from tests.support import notification, request, wait_for_file, wait_until
from tests.terminal import is_alive

# Coming and going.

HOOKS = """
import os, sys, atexit
from duet_rpc import method, on_start, on_stop

def note(word):
    with open({path!r}, "a") as file:
        file.write(word + "\\n")

@on_start
def begin(): note("start {name}")

@on_stop
def end(): note("stop {name}")

atexit.register(note, "atexit {name}")

@method
def f() -> str: return "{name}"
"""


@pytest.mark.parametrize("end", ["eof", "SIGTERM", "shutdown"])
def test_on_start_runs_after_loading_and_on_stop_before_removal(
    tmp_path: Path, folder: Path, end: str
) -> None:
    notes = tmp_path / "notes"
    path = write(folder, HOOKS.format(path=str(notes), name="one"), "a.py")
    with rpc(tmp_path) as author:
        assert author.call("f") == "one"
        assert notes.read_text().split("\n") == ["start one", ""]
        path.write_text(HOOKS.format(path=str(notes), name="two"))
        assert author.call("f") == "two"
        if end == "eof":
            author.client.close_input()
        elif end == "SIGTERM":
            author.client.signal(signal.SIGTERM)
        else:
            author.call("shutdown")
        assert author.client.wait()[0] == 0
    assert notes.read_text().splitlines() == [
        "start one", "stop one", "start two", "stop two", "atexit two", "atexit one"
    ]  # fmt: skip


def test_hooks_that_fail_are_named_and_end_nothing(tmp_path: Path, folder: Path) -> None:
    text = "from duet_rpc import on_start, on_stop\n@on_start\ndef a(): exit()\n"
    write(folder, ONE.format("f", 1) + text + "@on_stop\ndef b(): 1 / 0\n", "a.py")
    with rpc(tmp_path, "--debug") as author:
        assert author.call("f") == 1
        assert author.said[0].startswith("a.py:6: SystemExit")
        author.client.close_input()
        _, log = author.client.process.communicate(timeout=20)
        assert author.client.process.returncode == 0
    assert b"a.py:8: ZeroDivisionError" in log


def test_on_stop_runs_after_a_cancelled_request(tmp_path: Path, folder: Path) -> None:
    begun, stopped = tmp_path / "begun", tmp_path / "stopped"
    text = "import time\nfrom duet_rpc import method, on_stop\n"
    text += f"@method\ndef f():\n    open({str(begun)!r}, 'w')\n"
    text += f"    time.sleep(60)\n@on_stop\ndef b(): open({str(stopped)!r}, 'w')\n"
    write(folder, text, "a.py")
    with rpc(tmp_path) as author:
        author.client.send(request(1, "f"))
        wait_for_file(begun)
        author.client.send(notification("$/cancelRequest", {"id": 1}))
        assert author.reply()["error"]["code"] == -32800
        author.client.close_input()
        assert author.client.wait()[0] == 0
    assert stopped.exists()


def test_an_endless_on_stop_does_not_keep_the_daemon(tmp_path: Path, folder: Path) -> None:
    text = "from duet_rpc import on_stop\n@on_stop\ndef b():\n    while True: pass\n"
    write(folder, ONE.format("f", 1) + text, "a.py")
    with rpc(tmp_path) as author:
        assert author.call("f") == 1
        author.client.close_input()
        code, seconds = author.client.wait()
    assert (code, seconds < 2.5) == (0, True)


# Processes of its own.


@pytest.mark.parametrize("way", ["fork", "spawn", "forkserver"])
def test_a_pool_of_processes_runs_functions_of_the_file(
    tmp_path: Path, folder: Path, way: str
) -> None:
    text = (
        "import multiprocessing\nfrom concurrent.futures import ProcessPoolExecutor\n"
        "from duet_rpc import method\n"
        "def double(x): return 2 * x\n"
        "@method\ndef f() -> list:\n"
        f"    context = multiprocessing.get_context({way!r})\n"
        "    with ProcessPoolExecutor(2, mp_context=context) as pool:\n"
        "        return [*pool.map(double, [1, 2, 3])]\n"
    )
    write(folder, text, "a.py")
    with rpc(tmp_path) as author:
        assert author.call("f") == [2, 4, 6]
        assert author.finish()[0] == 0


LEFT_OPEN = {
    "a pool by fork": "POOL = ProcessPoolExecutor(2, mp_context=context('fork'))\n",
    "a pool by spawn": "POOL = ProcessPoolExecutor(2, mp_context=context('spawn'))\n",
    "a fork": "",
}


def leave_open(kind: str) -> str:
    """Return a file whose method `f` leaves processes behind, and returns their ids."""
    text = (
        "import os, time\nfrom multiprocessing import get_context as context\n"
        "from concurrent.futures import ProcessPoolExecutor\nfrom duet_rpc import method\n"
        "def pid(_): time.sleep(0.2); return os.getpid()\n" + LEFT_OPEN[kind] +
        "@method\ndef f() -> list:\n"
    )  # fmt: skip
    if kind == "a fork":
        text += "    child = os.fork()\n    if not child:\n        time.sleep(60)\n"
        text += "    return [child]\n"
    else:
        text += "    return [*POOL.map(pid, [1, 2])]\n"
    return text


@pytest.mark.parametrize("kind", LEFT_OPEN)
def test_no_process_of_a_method_outlives_the_daemon(
    tmp_path: Path, folder: Path, kind: str
) -> None:
    write(folder, leave_open(kind), "a.py")
    with rpc(tmp_path) as author:
        children = author.call("f")
        author.client.close_input()
        assert author.client.process.stdout is not None
        assert author.client.process.stdout.read() == b""
        assert author.client.wait()[0] == 0
        wait_until(lambda: not any(map(is_alive, children)), "they are gone")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can")
@pytest.mark.parametrize("kind", ["a pool by fork", "a fork"])
def test_no_copy_of_a_daemon_that_is_killed_goes_on(
    tmp_path: Path, folder: Path, kind: str
) -> None:
    write(folder, leave_open(kind), "a.py")
    with rpc(tmp_path) as author:
        children = author.call("f")
        author.client.process.kill()
        author.client.process.wait()
        wait_until(lambda: not any(map(is_alive, children)), "they are gone")


@pytest.mark.parametrize("way", ["EOF", "SIGKILL"])
def test_a_program_that_a_method_has_started_may_stay(
    tmp_path: Path, folder: Path, way: str
) -> None:
    text = (
        "import os\nfrom duet_rpc import method\n@method\ndef f() -> int:\n    child = os.fork()\n"
        "    if not child: os.execlp('sleep', 'sleep', '60')\n    return child\n"
    )
    write(folder, text, "a.py")
    with rpc(tmp_path) as author:
        child = author.call("f")
        wait_until(lambda: b"sleep" in Path(f"/proc/{child}/cmdline").read_bytes(), "it runs")
        try:
            author.client.process.kill() if way == "SIGKILL" else author.client.close_input()
            author.client.process.wait()
            time.sleep(0.2)  # for what must not happen there is no event
            assert is_alive(child)
        finally:
            os.kill(child, signal.SIGKILL)
