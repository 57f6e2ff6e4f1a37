"""Several who log at once: each line is whole and written, and nobody waits for a reader."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.logs import LINE, script_run
from tests.support import TOP

IN_THE_MIDDLE = """
import os, signal, sys
from duet_rpc.log import Log

log = Log("info", sys.argv[1])

def many(*_):
    for number in range(150):
        log.info(f"line {number}")

signal.signal(signal.SIGALRM, many)

class Interrupted:
    def find_spec(self, name, *_):
        if name == "loguru._handler":
            os.kill(os.getpid(), signal.SIGALRM)

sys.meta_path.insert(0, Interrupted())
log.start_loguru()
log.info("the last")
log.close()
print(len(os.listdir("/dev/fd")))
"""


def test_lines_that_come_while_loguru_is_being_imported_are_written(tmp_path: Path) -> None:
    path = tmp_path / "duet.log"
    done = script_run(IN_THE_MIDDLE, str(path))
    assert done.stderr == ""
    messages = [line.split(maxsplit=2)[2] for line in path.read_text().splitlines()]
    assert messages == [*(f"line {number}" for number in range(150)), "the last"]
    assert done.stdout == "6\n"  # three, stderr once more, the log, the folder that is listed


INSIDE_ANOTHER = """
import itertools, signal, sys
from duet_rpc.log import Log

log = Log("info", sys.argv[1])
log.start_loguru()
inner, outer = itertools.count(), itertools.count()
signal.signal(signal.SIGALRM, lambda *_: log.info(f"inner {next(inner)}"))
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
for _ in range(5000):
    log.info(f"outer {next(outer)}")
signal.setitimer(signal.ITIMER_REAL, 0)
print(next(inner), next(outer))
"""


def test_a_line_in_the_middle_of_another_is_written(tmp_path: Path) -> None:
    path = tmp_path / "duet.log"
    counts = script_run(INSIDE_ANOTHER, str(path)).stdout.split()
    text = path.read_text()
    assert all(LINE.fullmatch(line) for line in text.splitlines())
    for name, count in zip(("inner", "outer"), map(int, counts)):
        numbers = [int(number) for number in re.findall(rf"{name} (\d+)", text)]
        assert count > 50
        assert sorted(numbers) == list(range(count))


THREADS = """
import sys, threading, time
from duet_rpc.log import Log

log = Log("info")
if sys.argv[1] == "loguru":
    log.start_loguru()

def work(name):
    for number in range(1000):
        log.info(f"{name}{number} " + "x" * 100)

threads = [threading.Thread(target=work, args=[name]) for name in "ab"]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("done", flush=True)
sys.stdin.read()
log.info("the last")
log.close()
"""


@pytest.mark.parametrize("how", ["direct", "loguru"])
def test_two_threads_never_wait_for_a_full_stderr(how: str) -> None:
    command = [sys.executable, "-c", THREADS, how]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=TOP, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"  # and nobody has read stderr so far
        _, err = process.communicate(timeout=20)
    lines = err.decode().splitlines()
    assert all(LINE.fullmatch(line) for line in lines)
    assert lines[-1].endswith("the last") or "could not be written" in lines[-1]
    written = [line for line in lines if line.endswith("xxx")]
    dropped = [int(n) for n in re.findall(r"(\d+) log lines could not be written", err.decode())]
    last = [line for line in lines if line.endswith("the last")]
    assert len(written) + len(last) + sum(dropped) == 2001


@pytest.mark.parametrize("how", ["direct", "loguru"])
def test_lines_of_two_threads_stay_whole(how: str) -> None:
    lines = script_run(THREADS, how, stdin=subprocess.DEVNULL).stderr.splitlines()
    assert all(LINE.fullmatch(line) for line in lines)
    if not any("could not be written" in line for line in lines):
        assert len(lines) == 2001


FILLED_MEANWHILE = """
import os, select
from duet_rpc import sinks
from duet_rpc.log import Log

class Poll:
    def register(self, *_): pass
    def poll(self, _):  # says that there is room, and another process takes it
        os.set_blocking(2, False)
        try:
            while True: os.write(2, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(2, True)
        return [2]

log = Log("info")
sinks.select.poll = Poll
log.info("dropped")
print("done", flush=True)
os._exit(0)
"""


def test_a_full_pipe_never_makes_a_log_line_wait() -> None:
    if not os.path.exists("/proc/self/fd"):
        pytest.skip("a pipe can't be opened a second time here")
    command = [sys.executable, "-c", FILLED_MEANWHILE]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=TOP, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        done = select.select([process.stdout], [], [], 10)[0]  # nobody reads stderr
        process.kill()
        assert done
        assert process.stdout.read(4) == b"done"


FORK = """
import os, sys, threading, time
from duet_rpc.log import Log

log = Log("info", sys.argv[1])
log.start_loguru()
stop = False

def work():
    while not stop: log.info("a thread's")

thread = threading.Thread(target=work)
thread.start()
for number in range(50):
    if (pid := os.fork()) == 0:
        log.info(f"child {number}")
        os._exit(0)
    os.waitpid(pid, 0)
stop = True
thread.join()
"""


def test_a_child_forked_while_a_thread_logs_can_log(tmp_path: Path) -> None:
    path = tmp_path / "duet.log"
    script_run(FORK, str(path))
    assert len(re.findall(r" child \d+\n", path.read_text())) == 50
