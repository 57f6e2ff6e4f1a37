"""Log lines: where they go, what they say, and what they never say."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from duet_rpc import __version__
from tests.hostile import typed
from tests.support import SOURCE, TOP, WITH_METHODS, Client, daemon, frame, request, run

LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d (DEBUG|INFO |WARN |ERROR) \S.*"
)
SECRET = "sk-0123456789-secret"  # noqa: S105


def test_every_line_has_time_severity_and_message() -> None:
    _, _, log = run(
        request(1, "setLogLevel", ["debug"]) + request(2) + request(None, "no") + frame("{")
    )
    lines = log.splitlines()
    assert len(lines) == 6
    for line in lines:
        assert LINE.fullmatch(line), line
    assert f"duet-rpc {__version__} started: pid " in lines[0]
    assert "level info, log to stderr" in lines[0]
    assert lines[2].endswith("DEBUG method=version id=2 served")
    assert "WARN  method=no id=null Method not found" in lines[3]
    assert "WARN  id=null Parse error" in lines[4]
    assert lines[5].endswith("INFO  stdin closed, shutting down gracefully")


def test_the_start_line_is_first_even_if_it_is_written_late() -> None:
    with daemon([*SOURCE, "rpc", "--log-level", "debug"]) as client:
        client.call("version")
        time.sleep(0.8)
        client.call("version", id=2)
        _, _, log = client.finish()
    lines = log.splitlines()
    assert "started" in lines[0]
    assert "id=1 " in lines[1]
    assert "id=2 " in lines[2]
    times = [line.split()[0] for line in lines]
    assert times == sorted(times)


def test_with_and_without_loguru_a_line_looks_the_same() -> None:
    _, _, quick = run(request(1, "x"))
    with daemon() as client:
        client.send(request(1, "x"))
        time.sleep(0.8)  # long enough for loguru to be loaded
        _, _, slow = client.finish()
    blank = re.compile(r"\d")
    assert blank.sub("0", quick).replace("0", "") == blank.sub("0", slow).replace("0", "")


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
exec(sys.argv[2])
log.info("the last")
log.share()
log.close()
print(len(os.listdir("/dev/fd")))
"""


@pytest.mark.parametrize("how", ["log.share()", "log.offer(); import loguru"])
def test_lines_that_come_while_loguru_is_being_imported_are_written(
    tmp_path: Path, how: str
) -> None:
    path = tmp_path / "duet.log"
    done = subprocess.run(
        [sys.executable, "-c", IN_THE_MIDDLE, str(path), how],
        capture_output=True, text=True, cwd=TOP, timeout=20, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    messages = [line.split(maxsplit=2)[2] for line in path.read_text().splitlines()]
    assert messages == [*(f"line {number}" for number in range(150)), "the last"]
    assert done.stdout == "5\n"  # three, the log, the folder that is listed


@pytest.mark.parametrize("wait", [0.0, 0.8], ids=["leaving at once", "staying"])
def test_a_file_takes_the_lines_and_stderr_stays_empty(tmp_path: Path, wait: float) -> None:
    path = tmp_path / "duet.log"
    with daemon(env={"DUET_RPC_LOG": str(path)}) as client:
        client.send(request(1, "nonsense"))
        client.receive()
        time.sleep(wait)
        code, _, err = client.finish()
    assert (code, err) == (0, "")
    text = path.read_text()
    assert f"log to {path}" in text
    assert "Method not found" in text
    assert "stdin closed" in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_was_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "duet.log"
    path.write_text("old\n")
    path.chmod(0o644)
    run(b"", env={"DUET_RPC_LOG": str(path)})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().startswith("old\n")


def test_an_empty_variable_is_not_set() -> None:
    _, _, log = run(b"", env={"DUET_RPC_LOG": ""})
    assert "log to stderr" in log


@pytest.mark.parametrize("kind", ["directory", "missing folder", "pipe"])
def test_what_cannot_be_written_is_one_warning_and_stderr(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path = tmp_path / "no" / "such" / "folder.log"
    code, _, log = run(b"", env={"DUET_RPC_LOG": str(path)})
    assert code == 0
    assert log.count("WARN") == 1
    assert "DUET_RPC_LOG can't be written" in log
    assert "log to stderr" in log


def test_a_file_below_a_working_directory_that_is_gone_is_one_warning(tmp_path: Path) -> None:
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


def test_stderr_by_its_name_is_a_place_for_a_log_also_where_it_is_a_pipe() -> None:
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
        time.sleep(0.8)
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
        time.sleep(0.8)
        assert client.finish()[0] == 0
    assert "nonsense" in path.read_text()
    rotated = {each.name for each in tmp_path.iterdir()} - {name, *others}
    assert len(rotated) == 2
    assert ours[2] in rotated
    for each in others:
        assert (tmp_path / each).read_text() == "precious"


def test_a_full_file_is_rotated_even_by_a_daemon_that_leaves_at_once(tmp_path: Path) -> None:
    path = tmp_path / "duet.log"
    path.write_bytes(b"x" * 9_999_999)
    run(request(1), env={"DUET_RPC_LOG": str(path)})
    assert len(list(tmp_path.iterdir())) == 2
    assert "started" in path.read_text()


def test_a_deleted_file_is_made_anew_and_a_lost_folder_is_survived(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    path = folder / "duet.log"
    with daemon(env={"DUET_RPC_LOG": str(path)}) as client:
        time.sleep(0.8)
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


def test_behind_a_link_the_file_is_rotated_and_the_link_stays(tmp_path: Path) -> None:
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


def test_a_full_disk_is_no_harm() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with daemon(env={"DUET_RPC_LOG": "/dev/full"}) as client:
        time.sleep(0.5)
        client.call("version")
        client.send(request(2, "unknown"))
        client.receive()
        assert client.finish()[::2] == (0, "")


@pytest.mark.parametrize("wait", [0.0, 0.8], ids=["leaving at once", "staying"])
def test_a_folder_lost_before_the_first_line_is_written_is_survived(
    tmp_path: Path, wait: float
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with daemon(env={"DUET_RPC_LOG": str(folder / "duet.log")}) as client:
        client.call("version")
        (folder / "duet.log").unlink()
        folder.rmdir()
        folder.write_text("in the way")
        time.sleep(wait)
        client.send(request(2, "second"))
        assert client.receive()["id"] == 2
        time.sleep(wait)
        if wait:
            folder.unlink()
            folder.mkdir()
            client.send(request(3, "third"))
            assert client.receive()["id"] == 3
        code, _, err = client.finish()
    assert (code, err) == (0, "")
    if wait:
        assert "method=third" in (folder / "duet.log").read_text()


# Colour.


def terminal_output(command: list[str], env: dict[str, str] | None = None) -> str:
    """Run a daemon with a terminal for its stderr."""
    main, side = os.openpty()
    with daemon(command, env=env, stderr=side) as client:
        os.close(side)
        client.call("version")
        time.sleep(0.8)
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
        time.sleep(0.8)
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
@pytest.mark.parametrize("wait", [0.0, 0.8], ids=["plain", "loguru"])
def test_what_the_client_sends_takes_no_effect(method: str, wait: float) -> None:
    with daemon() as client:
        client.send(request(method, method))
        client.receive()
        time.sleep(wait)
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


def has_loguru(client: Client) -> bool:
    try:
        maps = Path(f"/proc/{client.process.pid}/maps").read_text()
    except FileNotFoundError:
        pytest.skip("no /proc here")
    return "_asyncio" in maps  # which it imports, and nothing else here


def test_a_disabled_level_never_loads_loguru() -> None:
    with daemon([*SOURCE, "rpc", "--log-level", "error"]) as client:
        client.call("version")
        time.sleep(0.8)
        assert not has_loguru(client)
        assert client.finish()[2] == ""


@pytest.mark.parametrize(
    "how",
    [
        "log.share(); log.info('ours')",
        "log.offer(); log.info('ours')",
        "log.info('ours'); log.settle(); log.offer()",
        "import loguru; log.offer(); log.info('ours')",
    ],
)
def test_a_method_that_uses_loguru_itself_logs_to_the_same_place(how: str) -> None:
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
def test_a_method_that_uses_loguru_late_logs_to_the_same_place(tmp_path: Path, file: bool) -> None:
    path, log = tmp_path / "late.py", tmp_path / "duet.log"
    path.write_text(
        "from duet_rpc import method\n@method\ndef f() -> int:\n"
        "    from loguru import logger\n    logger.info('theirs')\n    return 1\n"
    )
    env = {"DUET_RPC_LOG": str(log) if file else ""}
    with daemon([*SOURCE, "rpc", "--methods", str(path)], env) as client:
        assert client.call("f") == 1
        assert client.call("f") == 1
        _, _, err = client.finish()
    lines = (log.read_text() if file else err).splitlines()
    assert all(LINE.fullmatch(line) for line in lines)
    said = [line.split(maxsplit=2)[2] for line in lines]
    assert said[0].startswith("duet-rpc")
    assert said[1:] == ["theirs", "theirs", "stdin closed, shutting down gracefully"]
    assert not file or not err


def test_once_methods_are_loaded_a_line_is_written_before_the_reply(tmp_path: Path) -> None:
    path = tmp_path / "duet.log"
    flags = ["--methods", "system", "--log-level", "warn"]
    with daemon([*SOURCE, "rpc", *flags], {"DUET_RPC_LOG": str(path)}) as client:
        assert client.call("system.ping") == "pong"
        time.sleep(0.8)
        client.send(request(2, "nonsense"))
        client.receive()
        assert "method=nonsense id=2 Method not found" in path.read_text()


def test_a_method_that_does_not_use_loguru_does_without() -> None:
    with daemon([*SOURCE, "rpc", "--methods", "system"]) as client:
        assert client.call("system.ping") == "pong"
        time.sleep(0.8)
        assert not has_loguru(client)


@pytest.mark.parametrize("more", ["", "logger.add(sys.stderr, format='mine {message}')"])
@pytest.mark.parametrize("level", ["info", "error"])
def test_a_method_that_sets_loguru_up_for_itself_does_not_take_our_log(
    tmp_path: Path, more: str, level: str
) -> None:
    path, log = tmp_path / "own.py", tmp_path / "duet.log"
    path.write_text(
        "import sys\nfrom loguru import logger\nfrom duet_rpc import method\n"
        f"logger.remove()\n{more}\n"
        "@method\ndef f() -> int: logger.info('theirs'); return 1\n"
        "@method\ndef fail() -> int: return 1 // 0\n"
    )
    command = [*SOURCE, "rpc", "--methods", str(path), "--log-level", level]
    with daemon(command, env={"DUET_RPC_LOG": str(log)}) as client:
        client.call("version")
        time.sleep(0.8)
        client.call("f")
        client.send(request(2, "fail"))
        client.receive()
        client.call("f")
        _, _, err = client.finish()
    assert "method=fail id=2 Internal error: ZeroDivisionError" in log.read_text()
    assert "theirs" not in log.read_text()
    assert err == ("mine theirs\n" * 2 if more else "")


def test_the_log_of_methods_names_file_and_line_but_no_folder() -> None:
    _, _, log = run(request(1, "boom"), WITH_METHODS)
    assert re.search(r"RuntimeError: it broke \(daemon_with_methods\.py:\d+ in boom\)", log)
    assert str(TOP) not in log


def test_a_failure_inside_a_library_names_the_line_of_the_method_and_no_folder() -> None:
    _, _, log = run(request(1, "read_folder"), WITH_METHODS)
    what = r"FileNotFoundError: No such file or directory: notes\.txt"
    assert re.search(what + r" \(daemon_with_methods\.py:\d+ in read_folder\)", log)
    assert "private" not in log
