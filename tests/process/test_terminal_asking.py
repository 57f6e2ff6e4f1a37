"""Questions and streams at a terminal: `duet-rpc call` and `console`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.machine import wait_until_idle
from tests.peer import METHODS
from tests.terminal import Person, environment, invoke


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path)


def call(method: str, *words: str) -> Sequence[str]:
    return ["call", "--methods", str(METHODS), method, *words]


def press_ctrl_c(person: Person) -> None:
    """Press it while readline waits: just before, Python would see it with the next key."""
    wait_until_idle(person.process.pid)
    person.type("\x03")


def test_a_text_is_asked_for_at_the_terminal(env: dict[str, str]) -> None:
    with Person(call("name"), env) as person:
        person.see("Name? [nobody] ")
        person.type("Ada\n")
        person.see('"hello Ada"')
        assert person.leave() == 0


def test_an_empty_line_is_the_default(env: dict[str, str]) -> None:
    with Person(call("name"), env) as person:
        person.see("Name? [nobody] ")
        person.type("\n")
        person.see('"hello nobody"')
        assert person.leave() == 0


def test_a_secret_is_not_shown(env: dict[str, str]) -> None:
    with Person(call("secret"), env) as person:
        person.see("Password? ")
        person.type("hunter2\n")
        person.see("7")
        assert person.leave() == 0
    assert "hunter2" not in person.raw


@pytest.mark.parametrize("typed", ["3\n", "blue\n", "bl\n", "x\n3\n"])
def test_a_choice_is_made_by_number_or_text(env: dict[str, str], typed: str) -> None:
    with Person(call("pick"), env) as person:
        person.see("Which colour?")
        person.see("1 red  (like fire)")
        person.see("3 blue")
        person.see("Number or text: ")
        for line in typed.splitlines():
            person.type(line + "\n")
        person.see('"blue"')
        assert person.leave() == 0


def test_a_choice_is_completed(env: dict[str, str]) -> None:
    pytest.importorskip("readline")
    with Person(call("pick"), env) as person:
        person.see("Number or text: ")
        person.type("gr\t\n")
        person.see('"green"')
        assert person.leave() == 0


def test_several_choices_are_made_in_one_line(env: dict[str, str]) -> None:
    with Person(call("pick", "multiple=true"), env) as person:
        person.see("separated by commas: ")
        person.type("1, blue\n")
        person.see('"red",')
        person.see('"blue"')
        assert person.leave() == 0


@pytest.mark.parametrize(
    ("typed", "shown"), [("y", "true"), ("yes", "true"), ("n", "false"), ("", "false")]
)
def test_yes_or_no(env: dict[str, str], typed: str, shown: str) -> None:
    with Person(call("sure"), env) as person:
        person.see("Really? [y/N] ")
        person.type(f"{typed}\n")
        person.see(shown)
        assert person.leave() == 0


def test_ctrl_d_declines(env: dict[str, str]) -> None:
    with Person(call("survive"), env) as person:
        person.see("Name? ")
        person.type("\x04")
        person.see("declined: Declined")
        assert person.leave() == 0


def test_ctrl_c_at_a_question_cancels_the_call(env: dict[str, str]) -> None:
    with Person(call("name"), env) as person:
        person.see("Name? ")
        press_ctrl_c(person)
        person.see("cancelled")
        assert person.leave() == 130


def test_prompts_stay_out_of_redirected_output(env: dict[str, str]) -> None:
    reading, writing = os.pipe()
    with Person(call("name"), env, redirect={"stdout": writing}) as person:
        person.see("Name? ")
        person.type("Ada\n")
        assert person.leave() == 0
    os.close(writing)
    assert os.read(reading, 1000) == b'"hello Ada"\n'
    os.close(reading)


def test_without_a_terminal_the_call_fails_and_says_why(env: dict[str, str]) -> None:
    code, out, err = invoke(call("name"), env)
    assert (code, out) == (1, "")
    assert "client/ask" in err
    assert "terminal" in err


def test_what_is_said_and_pushed_goes_to_stderr(env: dict[str, str]) -> None:
    code, out, err = invoke(call("tell", "text=hear this"), env)
    assert (code, out) == (0, "null\n")
    assert "hear this\n" in err
    code, _, err = invoke(call("stop_with_news"), env)
    assert code == 0
    assert 'files: {"changed":["a.txt"]}\n' in err


def test_a_stream_is_printed_as_it_comes(env: dict[str, str], tmp_path: Path) -> None:
    go = tmp_path / "go"
    with Person(call("two_then_wait", f"file={go}"), env) as person:
        person.see("ab")
        go.touch()
        person.see("c")
        assert person.leave() == 0
    assert "null" not in person.screen


def test_a_stream_ends_its_line_and_values_are_json(env: dict[str, str]) -> None:
    assert invoke(call("count", "n=3"), env)[:2] == (0, "0 1 2 \n")
    assert invoke(call("rows", "n=2"), env)[1] == '{\n  "row": 0\n}\n{\n  "row": 1\n}\n'


def test_a_stream_may_ask(env: dict[str, str]) -> None:
    with Person(call("stream_and_ask"), env) as person:
        person.see("before, ")
        person.see("Name? ")
        person.type("Ada\n")
        person.see("Ada, after")
        assert person.leave() == 0


def test_ctrl_c_ends_a_stream(env: dict[str, str], tmp_path: Path) -> None:
    with Person(call("endless", f"file={tmp_path / 'closed'}"), env) as person:
        person.see("xxx")
        person.type("\x03")
        assert person.leave() == 130
    assert (tmp_path / "closed").exists()


def test_the_console_asks_and_streams(env: dict[str, str]) -> None:
    with Person(["console", "--methods", str(METHODS)], env) as person:
        person.see("duet>")
        person.type("name\r")
        person.see("Name? [nobody] ")
        person.type("Ada\n")
        person.see('"hello Ada"')
        person.see("duet>")
        person.type("count n=3\r")
        person.see("0 1 2 ")
        person.see("duet>")
        person.type("sure\r")
        person.see("[y/N] ")
        press_ctrl_c(person)
        person.see("cancelled")
        person.see("duet>")
        person.type("quit\r")
        assert person.leave() == 0


def test_answers_stay_out_of_the_consoles_history(env: dict[str, str], tmp_path: Path) -> None:
    with Person(["console", "--methods", str(METHODS)], env) as person:
        person.see("duet>")
        person.type("name\r")
        person.see("Name? [nobody] ")
        person.type("Ada\n")
        person.see("duet>")
        person.type("quit\r")
        assert person.leave() == 0
    history = (tmp_path / ".local" / "state" / "duet-rpc" / "history").read_text()
    assert "Ada" not in history


def test_the_debugger_asks_as_well(env: dict[str, str]) -> None:
    with Person(["call", "--pdb", "--methods", str(METHODS), "name"], env) as person:
        person.see("Name? [nobody] ")
        person.type("Ada\n")
        person.see('"hello Ada"')
        assert person.leave() == 0
