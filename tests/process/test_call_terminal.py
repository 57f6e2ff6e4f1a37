"""`duet-rpc call` on a terminal: colour, progress, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.calling import VERSION, env
from tests.machine import wait_until_computing
from tests.terminal import WITH_DAEMON, Person, children, is_gone

__all__ = ["env"]


# On a terminal.


def test_a_terminal_has_colour_for_each_kind(env: dict[str, str]) -> None:
    reply = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"k": ["s", 1, True, None]}})
    env = {**env, "FAKE_REPLY": reply}
    with Person(["raw", "call", "m"], env, WITH_DAEMON) as person:
        assert person.leave() == 0
    painted = ('\x1b[34m"k"', '\x1b[32m"s"', "\x1b[36m1", "\x1b[35mtrue", "\x1b[35mnull")
    assert all(f"{each}\x1b[0m" in person.raw for each in painted)
    assert json.loads(person.screen) == {"k": ["s", 1, True, None]}


@pytest.mark.parametrize(
    ("words", "more"), [(["--no-color"], {}), ([], {"NO_COLOR": "1"}), ([], {"TERM": "dumb"})]
)
def test_colour_can_be_refused(words: list[str], more: dict[str, str], env: dict[str, str]) -> None:
    with Person(["call", "version", *words], {**env, **more}) as person:
        assert person.leave() == 0
    assert "\x1b" not in person.raw
    assert person.screen.replace("\r", "") == VERSION


def test_an_empty_no_color_refuses_nothing(env: dict[str, str]) -> None:
    with Person(["call", "version"], {**env, "NO_COLOR": ""}) as person:
        assert person.leave() == 0
    assert "\x1b[34m" in person.raw


STEPS = [
    {"done": 0, "total": 4, "message": "reading"},
    {"done": 1, "total": 4, "message": None},
    {"done": 7, "total": None, "message": "lines\x1b[2J"},
    {"done": 2.5, "total": 0},
    {"done": 9, "total": 4, "message": "日本語" * 60},
    {"done": "x", "total": 4},
    None,
]


def test_progress_is_a_bar_on_stderr_erased_at_the_end(env: dict[str, str]) -> None:
    env = {**env, "FAKE_PROGRESS": json.dumps(STEPS)}
    reading, writing = os.pipe()
    with Person(["progress", "call", "m"], env, WITH_DAEMON, {"stdout": writing}, 60) as person:
        os.close(writing)
        assert person.leave() == 0
    assert os.read(reading, 100) == b'"done"\n'
    os.close(reading)
    drawn = person.raw.split("\r\x1b[K")
    assert drawn[0] == drawn[-1] == ""
    bars = [bar.rstrip("\r") for bar in drawn[1:-1]]
    assert bars[:4] == [
        f"[{'-' * 30}]   0% reading",
        f"[{'#' * 7}{'-' * 23}]  25%",
        "[7] lines\\x1b[2J",
        "[2.5]",
    ]
    assert bars[4].startswith(f"[{'#' * 30}] 100% 日本語")
    assert sum(2 if ord(each) > 0x2000 else 1 for each in bars[4]) <= 59
    assert len(bars) == 5


def test_without_a_terminal_on_stderr_no_progress_is_asked_for(env: dict[str, str]) -> None:
    reading, writing = os.pipe()
    with Person(["echo", "call", "m"], env, WITH_DAEMON, {"stderr": writing}) as person:
        assert person.leave() == 0
    os.close(reading)
    os.close(writing)
    assert json.loads(person.screen)[1] is None


@pytest.mark.parametrize(
    ("words", "params"),
    [
        ([], {"_meta": {"progressToken": "bar"}}),
        (["a=1"], {"_meta": {"progressToken": "bar"}, "a": 1}),
        (["[1]"], [1]),
        (['{"_meta": {"progressToken": 7}}'], {"_meta": {"progressToken": 7}}),
    ],
)
def test_a_terminal_asks_for_progress_where_params_have_room(
    words: list[str], params: object, env: dict[str, str]
) -> None:
    with Person(["echo", "call", "m", *words], env, WITH_DAEMON) as person:
        assert person.leave() == 0
    assert json.loads(person.screen)[1] == params


def test_the_real_daemon_accepts_the_progress_token(env: dict[str, str]) -> None:
    with Person(["call", "setLogLevel", "level=warn"], env) as person:
        assert person.leave() == 0
    assert json.loads(person.screen) == {"level": "warn", "success": True}


# Ctrl-C.


def test_the_first_ctrl_c_cancels_the_request(env: dict[str, str]) -> None:
    with Person(["cancel", "call", "m"], env, WITH_DAEMON) as person:
        person.see("running")
        person.type("\x03")
        person.see("cancelling; press Ctrl-C again to stop at once")
        person.see("duet-rpc: cancelled")
        assert person.leave() == 130


def test_a_second_ctrl_c_ends_the_program_and_the_daemon(env: dict[str, str]) -> None:
    with Person(["deaf", "call", "m"], env, WITH_DAEMON) as person:
        person.see("pid ")
        person.see("\n")
        pid = int(person.screen.split()[1])
        person.type("\x03")
        person.see("cancelling")
        start = time.monotonic()
        person.type("\x03")
        assert person.leave() == 130
        assert time.monotonic() - start < 1.5
    assert is_gone(pid, 1.0)


def test_ctrl_c_cancels_the_method_without_signalling_the_daemon(
    env: dict[str, str],
) -> None:
    with Person(["methods", "call", "spin", "seconds=60"], env, WITH_DAEMON) as person:
        person.see("method=spin")
        (daemon,) = children(person.process.pid)
        wait_until_computing(daemon)
        person.type("\x03")
        person.see("cancelling")
        assert person.leave() == 130
    assert "duet-rpc: cancelled" in person.screen
    assert "SIGINT" not in person.screen


def test_ctrl_c_works_while_a_daemon_does_not_read(env: dict[str, str], tmp_path: Path) -> None:
    params = tmp_path / "params.json"
    params.write_text(json.dumps({"a": "x" * 1_000_000}))
    with params.open() as file, Person(
        ["deaf", "call", "m", "-"], env, WITH_DAEMON, {"stdin": file.fileno()}
    ) as person:  # fmt: skip
        person.see("pid ")
        person.type("\x03")
        person.see("cancelling")
        person.type("\x03")
        assert person.leave() == 130


def test_a_background_job_ignores_ctrl_c(env: dict[str, str]) -> None:
    """A shell without job control starts it with SIGINT ignored."""
    command = f"trap '' INT; exec {' '.join(WITH_DAEMON)} methods call sleep seconds=1.5"
    process = subprocess.Popen(
        ["sh", "-c", command], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    for _ in range(3):
        time.sleep(0.4)  # at its start, and while the method runs
        process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, b'"slept"\n')


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_to_the_caller_leaves_no_orphan(
    number: signal.Signals, env: dict[str, str]
) -> None:
    behaviour = "cancel" if number == signal.SIGKILL else "deaf"
    process = subprocess.Popen(
        [*WITH_DAEMON, behaviour, "call", "m"], env=env, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    process.stderr.readline()
    (child,) = children(process.pid)
    process.send_signal(number)
    code = process.wait(10)
    assert code == (-9 if number == signal.SIGKILL else 128 + number)
    assert is_gone(child, 3.0)
    process.stderr.close()
