"""Log lines: where they go, what they say, and what they never say."""

from __future__ import annotations

import os
import re
import select
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from duet_rpc import __version__
from tests.hostile import typed
from tests.machine import wait_for_loguru, wait_until_idle
from tests.support import (
    SOURCE,
    TOP,
    WITH_METHODS,
    Client,
    daemon,
    frame,
    request,
    run,
    wait_until,
)

LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d (DEBUG|INFO |WARN |ERROR) \S.*"
)
SECRET = "sk-0123456789-secret"  # noqa: S105


def test_every_line_has_time_severity_and_message() -> None:
    _, _, log = run(
        request(1, "setLogLevel", ["debug"]) + request(2) + request(None, "no") + frame("{")
    )
    lines = log.splitlines()
    assert len(lines) == 9
    for line in lines:
        assert LINE.fullmatch(line), line
    assert f"duet-rpc {__version__} started: pid " in lines[0]
    assert "level info, log to stderr" in lines[0]
    assert lines[2].endswith("DEBUG method=version id=2 received")
    assert re.search(r"DEBUG method=version id=2 answered in \d+\.\d ms$", lines[3])
    assert "DEBUG method=no id=null received" in lines[4]
    assert "WARN  method=no id=null Method not found" in lines[5]
    assert "WARN  Parse error" in log
    assert "INFO  stdin closed, shutting down gracefully" in log


def test_an_invalid_request_is_logged_with_what_could_be_read() -> None:
    invalid = [
        ('{"jsonrpc":"1.0","id":7,"method":"old"}', "WARN  method=old id=7 Invalid Request"),
        ('{"jsonrpc":"2.0","id":null,"method":5}', "WARN  id=null Invalid Request"),
        ('{"jsonrpc":"2.0","id":[],"method":"listed"}', "WARN  method=listed Invalid Request"),
        ('{"jsonrpc":"2.0","method":"cut","id":8', "WARN  method=cut Parse error"),
        ("garbage", "WARN  Parse error"),
    ]
    _, _, log = run(b"".join(frame(text) for text, _ in invalid))
    lines = [line for line in log.splitlines() if "WARN" in line]
    assert len(lines) == len(invalid)
    for line, (_, expected) in zip(lines, invalid):
        assert expected in line


def test_with_and_without_loguru_a_line_looks_the_same() -> None:
    _, _, quick = run(request(1, "x"))
    with daemon() as client:
        client.send(request(1, "x"))
        wait_for_loguru(client.process.pid)
        _, _, slow = client.finish()
    blank = re.compile(r"\d")
    assert blank.sub("0", quick).replace("0", "") == blank.sub("0", slow).replace("0", "")


# On time.


@contextmanager
def logged(tmp_path: Path, sink: str, *flags: str) -> Iterator[tuple[Client, Callable[[], str]]]:
    """Run a daemon, with what reads all that is on its sink by now."""
    path = tmp_path / "duet.log"
    env = {"DUET_RPC_LOG": str(path) if sink == "file" else ""}
    with daemon([*SOURCE, "rpc", *flags], env) as client:
        assert client.process.stderr is not None
        stderr = client.process.stderr.fileno()
        os.set_blocking(stderr, False)

        def read() -> str:
            if sink == "file":
                return path.read_text()
            try:
                return os.read(stderr, 1 << 20).decode()
            except BlockingIOError:
                return ""

        yield client, read


SINKS = pytest.mark.parametrize("sink", ["stderr", "file"])
EARLY_AND_LATE = pytest.mark.parametrize("late", [False, True], ids=["direct", "loguru"])


@SINKS
@pytest.mark.parametrize("gap", [0.0, 0.01], ids=["in a burst", "one by one"])
@EARLY_AND_LATE
def test_what_was_logged_survives_kill_9(tmp_path: Path, sink: str, gap: float, late: bool) -> None:
    with logged(tmp_path, sink) as (client, read):
        client.call("version")
        if late:
            wait_for_loguru(client.process.pid)
        for number in range(87):
            client.send(request(number, "nonsense"))
            assert client.receive()["id"] == number
            time.sleep(gap)  # a client that takes its time
        client.process.kill()
        client.process.wait()
        text = read()
    assert text.count(" started: pid ") == 1
    assert re.findall(r"method=nonsense id=(\d+) Method", text) == [str(n) for n in range(87)]


@SINKS
@EARLY_AND_LATE
def test_a_line_is_on_its_sink_before_the_reply(tmp_path: Path, sink: str, late: bool) -> None:
    with logged(tmp_path, sink) as (client, read):
        client.call("version")
        assert "started: pid" in read()
        if late:
            wait_for_loguru(client.process.pid)
        for number in range(20):
            client.send(request(number, "nonsense"))
            client.receive()
            assert f"method=nonsense id={number} Method not found" in read()


CRASHES = """
import ctypes, os
from duet_rpc import method, Context

@method
def abort(ctx: Context) -> None:
    ctx.log.info("about to crash")
    os.abort()

@method
def segfault(ctx: Context) -> None:
    ctx.log.info("about to crash")
    ctypes.string_at(0)
"""


@SINKS
@pytest.mark.parametrize("method", ["abort", "segfault"])
def test_a_crash_in_the_first_call_leaves_a_log(tmp_path: Path, sink: str, method: str) -> None:
    path = tmp_path / "crash.py"
    path.write_text(CRASHES)
    with logged(tmp_path, sink, "--methods", str(path)) as (client, read):
        client.send(request(1, method))
        assert client.wait()[0] < 0
        text = read()
    assert "started: pid" in text
    assert f"INFO  method={method} id=1 about to crash" in text


@pytest.mark.parametrize("how", ["", "file", "color"])
def test_in_the_steady_state_loguru_writes_every_line(tmp_path: Path, how: str) -> None:
    path = repr(str(tmp_path / "duet.log")) if how == "file" else "None"
    script = (
        "import sys\nfrom duet_rpc.log import Log\n"
        f"log = Log('info', {path}, {how == 'color'})\n"
        "log.info('early'); log.start_loguru()\n"
        "def note(frame, event, _):\n"
        "    code = frame.f_code\n"
        "    if event == 'call' and code.co_name == 'emit' and 'loguru' in code.co_filename:\n"
        "        seen.append(1)\n"
        "seen = []\n"
        "sys.setprofile(note)\n"
        "for _ in range(7): log.info('late')\n"
        "sys.setprofile(None)\n"
        "print(len(seen))\n"
    )
    done = script_run(script)
    assert done.stdout == "7\n"
    text = (tmp_path / "duet.log").read_text() if how == "file" else done.stderr
    assert text.count("late\n") == 7
    assert text.count("early\n") == 1


@pytest.mark.parametrize("level", ["debug", "error"])
def test_loguru_is_there_after_the_first_silence(level: str) -> None:
    with daemon([*SOURCE, "rpc", "--log-level", level]) as client:
        client.call("version")
        wait_for_loguru(client.process.pid)


# Several at once.


def script_run(script: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a script that uses the log in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=TOP, timeout=60, check=True, **{"capture_output": True, "text": True, **options},
    )  # fmt: skip


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


@pytest.mark.parametrize("how", ["direct", "loguru"])
def test_lines_of_two_threads_stay_whole(how: str) -> None:
    lines = script_run(THREADS, how, stdin=subprocess.DEVNULL).stderr.splitlines()
    assert all(LINE.fullmatch(line) for line in lines)
    if not any("could not be written" in line for line in lines):
        assert len(lines) == 2001


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


# Where lines go.


@pytest.mark.parametrize("stays", [False, True], ids=["leaving at once", "staying"])
def test_a_file_takes_the_lines_and_stderr_stays_empty(tmp_path: Path, stays: bool) -> None:
    path = tmp_path / "duet.log"
    with daemon(env={"DUET_RPC_LOG": str(path)}) as client:
        client.send(request(1, "nonsense"))
        client.receive()
        if stays:
            wait_for_loguru(client.process.pid)
        code, _, err = client.finish()
    assert (code, err) == (0, "")
    text = path.read_text()
    assert f"log to {path}" in text
    assert "Method not found" in text
    assert "stdin closed" in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_log_file_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "duet.log"
    path.write_text("old\n")
    path.chmod(0o644)
    run(b"", env={"DUET_RPC_LOG": str(path)})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().startswith("old\n")


def test_an_empty_variable_is_not_set() -> None:
    _, _, log = run(b"", env={"DUET_RPC_LOG": ""})
    assert "log to stderr" in log


@pytest.mark.parametrize("level", ["info", "error"])
@pytest.mark.parametrize("kind", ["directory", "missing folder", "pipe", "full device"])
def test_what_cannot_be_written_is_one_warning_and_stderr(
    tmp_path: Path, kind: str, level: str
) -> None:
    path = tmp_path / "x"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "full device":
        path = Path("/dev/full")
        if not path.exists():
            pytest.skip("no /dev/full here")
    else:
        path = tmp_path / "no" / "such" / "folder.log"
    command = [*SOURCE, "rpc", "--log-level", level]
    code, _, log = run(b"", command, env={"DUET_RPC_LOG": str(path)})
    assert code == 0
    assert log.count("WARN") == 1
    assert re.match(r"\S+ WARN  DUET_RPC_LOG can't be written \(.*\); logging to stderr\n", log)
    assert ("log to stderr" in log) == (level == "info")


@contextmanager
def with_files_of_at_most(blocks: int, path: Path, *flags: str) -> Iterator[Client]:
    """Run a daemon that can write no larger files, as if the disk were full."""
    command = f"ulimit -f {blocks}; exec {sys.executable} -m duet_rpc rpc {' '.join(flags)}"
    with daemon(["sh", "-c", command], {"DUET_RPC_LOG": str(path)}) as client:
        yield client


def test_a_file_is_checked_by_writing_to_it(tmp_path: Path) -> None:
    path = tmp_path / "duet.log"
    with with_files_of_at_most(0, path, "--log-level", "error") as client:
        assert client.call("version")
        _, _, log = client.finish()
    assert "WARN  DUET_RPC_LOG can't be written (File too large); logging to stderr" in log


def test_the_check_leaves_no_trace_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "duet.log"
    path.write_text("old\n")
    run(request(1), [*SOURCE, "rpc", "--log-level", "error"], {"DUET_RPC_LOG": str(path)})
    assert path.read_text() == "old\n"


def test_a_disk_that_fills_up_later_is_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "duet.log"
    with with_files_of_at_most(4, path) as client:
        for number in range(100):
            client.send(request(number, "nonsense"))
            assert client.receive()["id"] == number
        assert client.finish()[::2] == (0, "")
    assert "started" in path.read_text()
    assert path.stat().st_size <= 4096


def test_a_log_below_a_deleted_directory_is_one_warning(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    with daemon(
        ["sh", "-c", f"rmdir {gone}; exec {sys.executable} -m duet_rpc rpc"],
        env={"DUET_RPC_LOG": "duet.log"},
        cwd=gone,
    ) as client:
        assert client.call("version")
        code, _, log = client.finish()
    assert code == 0
    assert log.count("WARN") == 1
    assert "DUET_RPC_LOG can't be written" in log


def test_dev_stderr_can_be_the_log_even_as_a_pipe() -> None:
    code, _, log = run(request(1, "x"), env={"DUET_RPC_LOG": "/dev/stderr"})
    assert code == 0
    assert "WARN  method=x id=1 Method not found" in log
    assert "DUET_RPC_LOG" not in log


def test_without_loguru_lines_are_written_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "duet.log"
    (tmp_path / "loguru.py").write_text("raise ImportError('gone')")
    places = f"{tmp_path}{os.pathsep}{TOP}"
    with daemon(env={"DUET_RPC_LOG": str(path), "PYTHONPATH": places}) as client:
        client.send(request(1, "x"))
        client.receive()
        wait_until(lambda: "loguru can't be used" in path.read_text(), "it has tried")
        assert client.call("version")
        assert client.finish()[0] == 0
    assert "Method not found" in path.read_text()


def test_dev_null_is_a_place_for_a_log() -> None:
    mode = os.stat(os.devnull).st_mode
    code, _, log = run(request(1, "x"), env={"DUET_RPC_LOG": os.devnull})
    assert (code, log) == (0, "")
    assert os.stat(os.devnull).st_mode == mode


def test_a_file_never_grows_without_bound(tmp_path: Path) -> None:
    path = tmp_path / "duet.log"
    script = (
        "from duet_rpc.log import Log\n"
        f"log = Log('info', {str(path)!r})\n"
        "for n in range(42000): log.info('x' * 980)\n"
        "log.close()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=TOP, timeout=60)
    sizes = [file.stat().st_size for file in tmp_path.iterdir()]
    assert len(sizes) == 3
    assert max(sizes) <= 10_000_000
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}


ONLY_THE_FILE = """
import os, sys
from duet_rpc.log import Log

os.setuid(12345)
Log("info", sys.argv[1]).info("after")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_full_file_that_cannot_be_renamed_starts_again() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "duet.log")
        path.write_bytes(b"x" * 9_999_999)
        os.chown(path, 12345, 12345)
        script_run(ONLY_THE_FILE, str(path))
        assert os.listdir(folder) == ["duet.log"]
        (line,) = path.read_text().splitlines()
        assert line.endswith("INFO  after")


SHARING = """
import sys
from duet_rpc import sinks
from duet_rpc.log import Log

path, name, lines, sinks.LOG_FILE_MAX, sinks.LOG_FILES_KEPT = map(eval, sys.argv[1:])
log = Log("info", path)
log.start_loguru()
for number in range(lines):
    log.info(f"{name}={number} " + "x" * 900)
"""


def share(folder: Path, *settings: int) -> tuple[list[Path], str]:
    """Let three processes write to one file; return the old ones, and all that is in them."""
    path = folder / "duet.log"
    names = ["a", "b", "c"]
    command = [sys.executable, "-c", SHARING]
    started = [
        subprocess.Popen([*command, repr(str(path)), repr(name), *map(str, settings)], cwd=TOP)
        for name in names
    ]
    assert [process.wait(60) for process in started] == [0, 0, 0]
    *old, newest = sorted(folder.iterdir(), key=lambda file: (file == path, file.name))
    assert newest == path
    assert {stat.S_IMODE(file.stat().st_mode) for file in (*old, path)} == {0o600}
    text = "".join(file.read_text() for file in (*old, path))
    assert all(LINE.fullmatch(line) for line in text.splitlines())
    for name in names:  # of what is kept nothing is missing
        numbers = sorted(int(number) for number in re.findall(rf" {name}=(\d+) ", text))
        assert numbers == list(range(numbers[0], settings[0]))
    return old, text


def test_daemons_that_share_a_file_keep_its_bounds(tmp_path: Path) -> None:
    old, _ = share(tmp_path, 15_000, 10_000_000, 2)
    assert len(old) == 2
    # While one of them renames a full file the others go on writing to it.
    assert all(9_990_000 < file.stat().st_size < 11_000_000 for file in old)


def test_daemons_that_share_a_file_never_rotate_it_twice(tmp_path: Path) -> None:
    old, text = share(tmp_path, 2_000, 30_000, 1_000)
    assert len(text.splitlines()) == 6_000
    assert min(file.stat().st_size for file in old) > 25_000


@pytest.mark.parametrize("name", ["duet.log", "duet", "a{b}.log", "{}", "{time}.log", "a{"])
def test_rotation_deletes_its_own_files_and_no_others(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    root, ext = os.path.splitext(name)
    ours = [f"{root}.2020-01-0{day}_00-00-00_000000{ext}" for day in (1, 2, 3)]
    others = [
        f"{root}.py", f"{root}.notes.org", f"{name}.gz", f"{root}.monday{ext}", f"{name}.bak",
        f"{root}.2020-01-01{ext}", f"{root}.2020-01-01_00-00-00_000000{ext}.kept",
    ]  # fmt: skip
    for each in {*ours, *others}:
        (tmp_path / each).write_text("precious")
    path.write_bytes(b"x" * 9_999_990 + b"\n")
    with daemon(env={"DUET_RPC_LOG": str(path)}) as client:
        client.send(request(1, "nonsense"))
        client.receive()
        wait_for_loguru(client.process.pid)
        assert client.finish()[0] == 0
    assert "nonsense" in path.read_text()
    rotated = {each.name for each in tmp_path.iterdir()} - {name, *others}
    assert len(rotated) == 2
    assert ours[2] in rotated
    for each in others:
        assert (tmp_path / each).read_text() == "precious"


def test_a_short_lived_daemon_rotates_a_full_file(tmp_path: Path) -> None:
    path = tmp_path / "duet.log"
    path.write_bytes(b"x" * 9_999_999)
    run(request(1), env={"DUET_RPC_LOG": str(path)})
    assert len(list(tmp_path.iterdir())) == 2
    assert "started" in path.read_text()


def test_a_deleted_log_file_is_created_again(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    path = folder / "duet.log"
    with daemon(env={"DUET_RPC_LOG": str(path)}) as client:
        wait_until(lambda: path.exists() and "started" in path.read_text(), "it has started")
        path.unlink()
        client.send(request(1, "first"))
        client.receive()
        assert "method=first" in path.read_text()
        path.unlink()
        folder.rmdir()
        folder.write_text("in the way")
        client.send(request(2, "second"))
        assert client.receive()["id"] == 2
        folder.unlink()
        folder.mkdir()
        client.send(request(3, "third"))
        assert client.receive()["id"] == 3
        code, _, err = client.finish()
    assert (code, err) == (0, "")
    text = path.read_text()
    assert "1 log lines could not be written" in text
    assert "method=third" in text


def test_rotation_behind_a_link_keeps_the_link(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "duet.log").write_bytes(b"x" * 9_999_999)
    link = tmp_path / "link.log"
    link.symlink_to("logs/duet.log")
    run(request(1), env={"DUET_RPC_LOG": str(link)})
    assert link.is_symlink()
    assert "started" in link.read_text()
    assert sorted(file.stat().st_size for file in logs.iterdir())[1:] == [9_999_999]
    assert {stat.S_IMODE(file.stat().st_mode) for file in logs.iterdir()} == {0o600}


def test_the_name_of_stderr_is_no_file_to_be_renamed(tmp_path: Path) -> None:
    before = os.lstat("/dev/stderr").st_ino
    path = tmp_path / "err"
    path.write_bytes(b"x" * 9_999_999)
    with (
        path.open("ab") as file,
        daemon(env={"DUET_RPC_LOG": "/dev/stderr"}, stderr=file) as client,
    ):
        client.call("version")
        client.finish()
    assert os.lstat("/dev/stderr").st_ino == before
    assert "started" in path.read_text()


@pytest.mark.parametrize("stays", [False, True], ids=["leaving at once", "staying"])
def test_a_folder_lost_before_the_first_line_is_harmless(tmp_path: Path, stays: bool) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with daemon(env={"DUET_RPC_LOG": str(folder / "duet.log")}) as client:
        client.call("version")
        (folder / "duet.log").unlink()
        folder.rmdir()
        folder.write_text("in the way")
        if stays:
            wait_for_loguru(client.process.pid)
        client.send(request(2, "second"))
        assert client.receive()["id"] == 2
        if stays:
            wait_until_idle(client.process.pid)
            folder.unlink()
            folder.mkdir()
            client.send(request(3, "third"))
            assert client.receive()["id"] == 3
        code, _, err = client.finish()
    assert (code, err) == (0, "")
    if stays:
        assert "method=third" in (folder / "duet.log").read_text()


# Colour.


def terminal_output(command: list[str], env: dict[str, str] | None = None) -> str:
    """Run a daemon with a terminal for its stderr."""
    main, side = os.openpty()
    with daemon(command, env=env, stderr=side) as client:
        os.close(side)
        client.call("version")
        wait_for_loguru(client.process.pid)
        client.close_input()
        client.wait()
        try:
            return os.read(main, 10_000).decode()
        except OSError:
            return ""
        finally:
            os.close(main)


def test_a_terminal_gets_colour_and_nothing_else_does() -> None:
    plain = {"NO_COLOR": "", "TERM": "xterm"}
    assert "\x1b[" in terminal_output([*SOURCE, "rpc"], plain)
    assert "\x1b[" not in terminal_output([*SOURCE, "rpc", "--no-color"], plain)
    assert "\x1b[" not in terminal_output([*SOURCE, "--no-color", "rpc"], plain)
    assert "\x1b[" not in terminal_output([*SOURCE, "rpc"], {"NO_COLOR": "1"})
    with daemon([*SOURCE, "rpc"], env=plain) as client:
        wait_for_loguru(client.process.pid)
        assert "\x1b[" not in client.finish()[2]


def test_a_file_is_plain_on_a_terminal_too(tmp_path: Path) -> None:
    path = tmp_path / "duet.log"
    shown = terminal_output([*SOURCE, "rpc"], {"NO_COLOR": "", "DUET_RPC_LOG": str(path)})
    assert shown == ""
    assert "\x1b[" not in path.read_text()


# What the client sends is harmless.

NASTY = [
    "a\nFAKE 2026 INFO line",
    "\x1b[31mred\x1b[0m",
    "<red>markup</red>",
    "{braces} {0} {extra}",
    "%s %d",
    "\u202eright-to-left",
    "\x00\x07\r",
    "a id=5 forged",
    'quote"d',
    "\ud800",
]


@pytest.mark.parametrize("method", NASTY)
@pytest.mark.parametrize("late", [False, True], ids=["plain", "loguru"])
def test_what_the_client_sends_takes_no_effect(method: str, late: bool) -> None:
    with daemon() as client:
        client.send(request(method, method))
        client.receive()
        if late:
            wait_for_loguru(client.process.pid)
        _, _, log = client.finish()
    lines = log.splitlines()
    assert len(lines) == 3
    assert all(LINE.fullmatch(line) for line in lines)
    assert all(line.isprintable() for line in lines)
    if method.isprintable() and '"' not in method:
        assert f'method="{method}" id="{method}"' in lines[1]


def test_long_values_are_cut() -> None:
    _, _, log = run(request("i" * 5000, "m" * 5000))
    line = log.splitlines()[1]
    assert "method=" + "m" * 199 + "… " in line
    assert len(line) < 700


def test_no_payload_and_no_secret_after_a_fault() -> None:
    hostile = [
        frame(f'{{"id":1,"params":"{SECRET}"'),
        frame(f'{{"jsonrpc":"1.0","id":1,"params":"{SECRET}"}}'),
        frame(f'["{SECRET}"]'),
        frame(f'"{SECRET}"'),
        f"Content-Length: {SECRET}\r\n\r\n".encode(),
        f"{SECRET}\r\n".encode(),
        f"X-Token: {SECRET}\r\n\r\n".encode(),
        frame("{}", f"Content-Length: {{}}\r\nContent-Type: {SECRET}\r\n\r\n"),
        typed(f"application/vscode-jsonrpc; charset={SECRET}"),
        request(1, "setLogLevel", {"level": "debug"}),
        request(1, "version", {SECRET: SECRET}),
        f"Content-Length: 99999999\r\n\r\n{SECRET}".encode(),
        request(1),
    ]  # fmt: skip
    code, _, log = run(b"".join(hostile), env={"SOME_TOKEN": SECRET})
    assert code == 0
    assert SECRET not in log


def test_a_wrong_value_of_a_method_is_not_logged() -> None:
    _, _, log = run(request(1, "setLogLevel", {"level": SECRET}))
    assert "Invalid params" in log
    assert SECRET not in log


@pytest.mark.parametrize(
    "how",
    [
        "log.start_loguru(); log.info('ours')",
        "log.info('ours'); log.start_loguru()",
        "import loguru; log.info('ours'); log.start_loguru_if_imported()",
    ],
)
def test_a_method_with_loguru_logs_to_the_same_sink(how: str) -> None:
    # The sinks are shared; lines that are not ours keep their own message.
    script = (
        f"from duet_rpc.log import Log\nlog = Log('info'); {how}\n"
        "from loguru import logger\n"
        "logger.info('theirs {}', '{x} <red>')\n"
        "log.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, cwd=TOP, timeout=20, check=True
    )
    lines = done.stderr.decode().splitlines()
    assert [line.split(" ", 2)[2].strip() for line in lines] == ["ours", "theirs {x} <red>"]
    assert all(LINE.fullmatch(line) for line in lines)


@pytest.mark.parametrize("file", [False, True], ids=["stderr", "file"])
def test_a_method_that_imports_loguru_late_logs_there_too(tmp_path: Path, file: bool) -> None:
    path, log = tmp_path / "late.py", tmp_path / "duet.log"
    path.write_text(
        "from duet_rpc import method\n@method\ndef f() -> int:\n"
        "    from loguru import logger\n    logger.info('theirs')\n    return 1\n"
    )
    env = {"DUET_RPC_LOG": str(log) if file else ""}
    with daemon([*SOURCE, "rpc", "--methods", str(path)], env) as client:
        client.call("version")
        wait_for_loguru(client.process.pid)
        assert client.call("f") == 1
        assert client.call("f") == 1
        _, _, err = client.finish()
    lines = (log.read_text() if file else err).splitlines()
    assert all(LINE.fullmatch(line) for line in lines)
    said = [line.split(maxsplit=2)[2] for line in lines]
    assert said[0].startswith("duet-rpc")
    assert said[1:] == ["theirs", "theirs", "stdin closed, shutting down gracefully"]
    assert not file or not err


@pytest.mark.parametrize("more", ["", "logger.add(sys.stderr, format='mine {message}')"])
@pytest.mark.parametrize("level", ["info", "error"])
@pytest.mark.parametrize("remove", ["remove()", "remove(0)"])
@EARLY_AND_LATE
def test_a_method_that_configures_loguru_keeps_our_log_intact(
    tmp_path: Path, more: str, level: str, remove: str, late: bool
) -> None:
    path, log = tmp_path / "own.py", tmp_path / "duet.log"
    path.write_text(
        "import sys\nfrom loguru import logger\nfrom duet_rpc import method\n"
        f"logger.{remove}\n{more}\n"
        "@method\ndef f() -> int: logger.info('theirs'); return 1\n"
        "@method\ndef fail() -> int: return 1 // 0\n"
    )
    command = [*SOURCE, "rpc", "--methods", str(path), "--log-level", level]
    with daemon(command, env={"DUET_RPC_LOG": str(log)}) as client:
        client.call("version")
        if late:
            wait_for_loguru(client.process.pid)
        client.call("f")
        client.send(request(2, "fail"))
        client.receive()
        client.call("f")
        _, _, err = client.finish()
    assert "method=fail id=2 Internal error: ZeroDivisionError" in log.read_text()
    assert "theirs" not in log.read_text()
    assert err == ("mine theirs\n" * 2 if more else "")


LOUD = """
from loguru import logger
from duet_rpc import method

@method
def loud() -> int:
    for level in ("trace", "debug", "info", "success", "warning", "error", "critical"):
        getattr(logger, level)("theirs at {}", level)
    logger.warning("<red>{x}\\n\\x1b[31m")
    return 1

@method
def fail() -> int:
    try:
        raise ValueError("sk-secret")
    except ValueError:
        logger.exception("caught")
    return 1
"""


@EARLY_AND_LATE
def test_loguru_in_a_method_has_our_levels_and_format(tmp_path: Path, late: bool) -> None:
    path = tmp_path / "loud.py"
    path.write_text(LOUD)
    with daemon([*SOURCE, "rpc", "--methods", str(path), "--log-level", "warn"]) as client:
        client.call("version")
        if late:
            wait_for_loguru(client.process.pid)
        client.call("loud")
        client.call("setLogLevel", ["debug"])
        client.call("loud")
        client.call("setLogLevel", ["error"])
        client.call("loud")
        client.call("fail")
        _, _, log = client.finish()
    lines = [line for line in log.splitlines() if "method=" not in line]
    assert all(LINE.fullmatch(line) for line in lines)
    said = [line.split(maxsplit=1)[1] for line in lines]
    nasty = r"WARN  <red>{x}\n\x1b[31m"
    errors = ["ERROR theirs at error", "ERROR theirs at critical"]
    warnings = ["WARN  theirs at warning", *errors, nasty]
    quiet = ["DEBUG theirs at debug", "INFO  theirs at info", "INFO  theirs at success"]
    assert said[:-1] == [*warnings, *quiet, *warnings, *errors]
    assert said[-1] == "ERROR caught: ValueError (loud.py:15 in fail)"


def test_log_lines_of_methods_name_file_and_line_only() -> None:
    _, _, log = run(request(1, "boom"), WITH_METHODS)
    assert re.search(r"RuntimeError \(daemon_with_methods\.py:\d+ in boom\)", log)
    assert str(TOP) not in log


def test_a_failure_inside_a_library_names_the_method_line() -> None:
    _, _, log = run(request(1, "read_folder"), WITH_METHODS)
    assert re.search(r"FileNotFoundError \(daemon_with_methods\.py:\d+ in read_folder\)", log)
    assert "private" not in log
    assert "notes" not in log
