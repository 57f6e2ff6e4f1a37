"""loguru writes the log once it is loaded, and what methods do with it leaves the log intact."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.logs import EARLY_AND_LATE, LINE, script_run
from tests.machine import wait_for_loguru
from tests.support import SOURCE, TOP, daemon, request, run, wait_until

# Our own lines.


def test_with_and_without_loguru_a_line_looks_the_same() -> None:
    _, _, quick = run(request(1, "x"))
    with daemon() as client:
        client.send(request(1, "x"))
        wait_for_loguru(client.process.pid)
        _, _, slow = client.finish()
    blank = re.compile(r"\d")
    assert blank.sub("0", quick).replace("0", "") == blank.sub("0", slow).replace("0", "")


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


# Methods that use it.


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
