"""Where log lines go: to a file that stays private and small, or to stderr."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.logs import LINE, script_run
from tests.machine import wait_for_loguru, wait_until_idle
from tests.support import SOURCE, TOP, Client, daemon, request, run, wait_until


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


def test_dev_null_is_a_place_for_a_log() -> None:
    mode = os.stat(os.devnull).st_mode
    code, _, log = run(request(1, "x"), env={"DUET_RPC_LOG": os.devnull})
    assert (code, log) == (0, "")
    assert os.stat(os.devnull).st_mode == mode


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


# Rotation.


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
