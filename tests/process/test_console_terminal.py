"""`duet-rpc console` at a terminal, with each line editor there is: keys, history, completion."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from duet_rpc import __version__
from duet_rpc.terminal.console import complete
from duet_rpc.terminal.prompt import HISTORY_MAX
from tests.calling import VERSION
from tests.console import editor, env, history
from tests.machine import wait_until_idle
from tests.support import SOURCE, wait_until
from tests.terminal import WITH_DAEMON, Person, children, is_asleep, is_gone

__all__ = ["editor", "env"]


# At a terminal.


def test_a_session_at_a_terminal(editor: dict[str, str]) -> None:
    with Person(["console"], editor) as person:
        person.see("help lists them")
        person.see("duet>")
        person.type("version\r")
        person.see(f'"version": "{__version__}"')
        person.see(" ms)")
        person.see("duet>")
        person.type("nonsense\r")
        person.see("Method not found: nonsense")
        person.see("duet>")
        person.type("\x04")
        assert person.leave() == 0
    assert "\x1b[34m" in person.raw
    assert history(editor).read_text() == "version\nnonsense\n"


@pytest.mark.parametrize("rest", ["2>&-", "2>&- | cat", "2>/dev/full | cat"])
def test_an_unwritable_stderr_costs_at_most_the_prompt(editor: dict[str, str], rest: str) -> None:
    command = ["/bin/sh", "-c", f'"$0" "$@" {rest}', *SOURCE]
    with Person(["console"], editor, command) as person:
        person.type("version\r")
        person.see(f'"version": "{__version__}"')
        for pid in (person.process.pid, *children(person.process.pid)):
            wait_until_idle(pid)  # nothing shows the prompt
        person.type("\x04")
        assert person.leave() == 0


def test_ctrl_c_clears_the_line(editor: dict[str, str]) -> None:
    with Person(["console"], editor) as person:
        person.see("duet>")
        person.type("shutdown")
        person.see("shutdown")
        # Python's readline misses a signal that comes with a key.
        wait_until(lambda: is_asleep(person.process.pid), "the next key is waited for")
        person.type("\x03")
        person.see("duet>")
        person.type("version\r")
        person.see(f'"{__version__}"')
        person.see("duet>")
        person.type("quit\r")
        assert person.leave() == 0
    assert "Shutting down" not in person.screen


def test_ctrl_c_cancels_the_method_and_the_session_continues(editor: dict[str, str]) -> None:
    with Person(["cancel", "console"], editor, WITH_DAEMON) as person:
        for _ in range(2):
            person.see("duet>")
            person.type("slow\r")
            person.see("running")
            person.type("\x03")
            person.see("duet-rpc: cancelled")
        person.see("duet>")
        person.type("\x04")
        assert person.leave() == 0


def test_a_second_ctrl_c_kills_only_the_daemon(env: dict[str, str]) -> None:
    with Person(["methods", "console"], env, WITH_DAEMON) as person:
        person.see("duet>")
        person.type("stubborn\r")
        person.see("method=stubborn")
        (daemon,) = children(person.process.pid)
        wait_until_idle(daemon)
        person.type("\x03")
        person.see("cancelling")
        person.type("\x03")
        person.see("the daemon was killed; the next line starts a new one")
        person.see("duet>")
        person.type("version\r")
        person.see(f'"{__version__}"')


def test_tab_completes_methods_parameters_and_values(editor: dict[str, str]) -> None:
    if editor["EDITOR_NAME"] == "plain":
        pytest.skip("there is no completion without a line editor")
    with Person(["console"], editor) as person:
        person.see("duet>")
        for keys, seen in (("setL\t", "setLogLevel "), ("l\t", "level="), ("deb\t", "debug")):
            person.type(keys)
            person.see(seen[len(keys) - 1 :].rstrip())
            wait_until_idle(person.process.pid)
        person.type("\r")
        person.see('"level": "debug"')


def test_history_is_there_in_the_next_session(editor: dict[str, str]) -> None:
    if editor["EDITOR_NAME"] == "plain":
        pytest.skip("there are no earlier lines without a line editor")
    history(editor).parent.mkdir(parents=True)
    history(editor).write_text("listMethods\nversion\n")
    with Person(["console"], editor) as person:
        person.see("duet>")
        person.type("\x10")
        person.see("version")
        person.type("\r")
        person.see(f'"{__version__}"')
        person.see("duet>")
        person.type("\x04")
        assert person.leave() == 0
    assert history(editor).read_text() == "listMethods\nversion\n", "one line twice"


def use(person: Person, *lines: str) -> None:
    for line in (*lines, "quit"):
        person.see("duet>")
        person.type(f"{line}\r")
    assert person.leave() == 0


def test_history_is_the_users_alone_and_bounded(env: dict[str, str]) -> None:
    path = history(env)
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"line {number}\n" for number in range(3 * HISTORY_MAX)))
    path.chmod(0o644)
    with Person(["console"], env) as person:
        use(person, "version", " initialize")
    lines = path.read_text().splitlines()
    assert lines[0] == f"line {2 * HISTORY_MAX}"
    assert lines[-2:] == ["version", "quit"]
    assert len(lines) == HISTORY_MAX + 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_xdg_state_home_is_where_the_history_is(env: dict[str, str], tmp_path: Path) -> None:
    with Person(["console"], {**env, "XDG_STATE_HOME": str(tmp_path / "state")}) as person:
        use(person, "version")
    path = tmp_path / "state" / "duet-rpc" / "history"
    assert path.read_text() == "version\nquit\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("trouble", ["a folder", "no folder", "no home", "home not there"])
def test_a_history_that_cannot_be_saved_is_one_warning(
    trouble: str, env: dict[str, str], tmp_path: Path
) -> None:
    if trouble == "a folder":
        history(env).mkdir(parents=True)
    elif trouble == "no folder":
        (Path(env["HOME"]) / ".local").write_text("")
    else:
        env["HOME"] = "" if trouble == "no home" else str(tmp_path / "never")
    with Person(["console"], env) as person:
        use(person, "version", "initialize")
    assert f'"{__version__}"' in person.screen
    said = person.screen.count("history is not saved")
    assert said == (1 if "folder" in trouble else 0)
    assert not (tmp_path / "never").exists()


def test_garbage_in_the_history_is_left_out(env: dict[str, str]) -> None:
    history(env).parent.mkdir(parents=True)
    history(env).write_bytes(b"\xff\xfe\x00\x1b[2J\nversion\n")
    with Person(["console"], env) as person:
        use(person, "version")
    assert "\x1b[2J" not in person.raw


def test_a_dumb_terminal_gets_a_plain_prompt(env: dict[str, str]) -> None:
    with Person(["console"], {**env, "TERM": "dumb"}) as person:
        use(person, "version")
    assert "\x1b" not in person.raw


def test_with_stdout_elsewhere_the_prompt_is_on_stderr(env: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    descriptor = os.open(out, os.O_WRONLY | os.O_CREAT)
    with Person(["console"], env, redirect={"stdout": descriptor}) as person:
        use(person, "version")
    os.close(descriptor)
    assert out.read_text() == VERSION


def test_closing_the_terminal_leaves_no_daemon(env: dict[str, str]) -> None:
    with Person(["methods", "console"], env, WITH_DAEMON) as person:
        person.see("duet>")
        person.type("sleep seconds=30\r")
        person.see("method=sleep")
        (daemon,) = children(person.process.pid)
        wait_until_idle(daemon)
        person.process.send_signal(1)
        assert person.leave() == 129
        assert is_gone(daemon, 1.0)


def test_methods_that_appear_meanwhile_are_completed(env: dict[str, str]) -> None:
    with Person(["grow", "console"], env, WITH_DAEMON) as person:
        person.see("duet>")
        person.type("x\r")
        person.see("[]")
        person.see("duet>")
        person.type("af\t")
        person.see("after_1")
        person.type("\x15x\r")
        person.see("[]")
        person.see("duet>")
        person.type("help\r")
        person.see("after_2")
        person.see("duet>")
        person.type("\x04")
        assert person.leave() == 0


# Completion.

METHODS: dict[str, dict[str, object]] = {
    "setLogLevel": {"params": [{"name": "level", "schema": {"enum": ["debug", "info"]}}]},
    "sort": {
        "params": [
            {"name": "lines", "schema": {"type": "array"}},
            {"name": "reverse", "schema": {"type": "boolean"}},
        ]
    },
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ["setLogLevel ", "sort ", "help ", "quit"]),
        ("s", ["setLogLevel ", "sort "]),
        ("x", []),
        ("help s", ["setLogLevel", "sort"]),
        ("help sort ", []),
        ("sort ", ["lines=", "reverse="]),
        ("sort r", ["reverse="]),
        ("sort lines=[] ", ["reverse="]),
        ("sort reverse=", ["reverse=true ", "reverse=false "]),
        ("sort lines=", []),
        ("  setLogLevel level=d", ["level=debug "]),
        ("nonsense ", []),
        ("nonsense a=", []),
    ],
)
def test_completions(text: str, found: list[str]) -> None:
    assert complete(text, METHODS) == found
