"""`duet-rpc call --pdb`: a method in this process, and the debugger where it fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.terminal import Person, environment, invoke

METHODS = """\
import json
from duet_rpc import Context, RpcError, method

@method
def parse(text: str, ctx: Context) -> object:
    ctx.log.info("parsing")
    ctx.progress(1, 2)
    with ctx.uninterrupted():
        found = json.loads(text)
    return found

@method
def stop(number: int) -> int:
    breakpoint()
    return number + 1

@method
def refuse() -> int:
    raise RpcError(-32001, "Not today")

@method
def leave() -> int:
    raise SystemExit(3)

@method
def odd() -> object:
    return object()
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "home" / ".config" / "duet-rpc" / "methods"
    folder.mkdir(parents=True)
    (folder / "words.py").write_text(METHODS)
    return environment(tmp_path / "home")


def at_terminal(env: dict[str, str], *words: str) -> Person:
    return Person(["call", "--pdb", *words], env, tracebacks=True)


def test_pdb_stops_in_the_users_own_frame(env: dict[str, str]) -> None:
    with at_terminal(env, "parse", "text=x") as person:
        person.see("Traceback (most recent call last):\n  File ")
        person.see('words.py", line 9, in parse')
        person.see("JSONDecodeError: Expecting value")
        person.see("words.py(9)parse()\n-> found = json.loads(text)\n(Pdb) ")
        assert "duet_rpc/" not in person.screen, "no frame of the program itself"
        person.type("p text\n")
        person.see("'x'\n(Pdb) ")
        person.type("down\n")
        person.see("json/__init__.py")
        person.type("q\n")
        assert person.leave() == 1


def test_breakpoint_works_there(env: dict[str, str]) -> None:
    with at_terminal(env, "stop", "number=3") as person:
        # Before Python 3.13 it stops behind the call.
        person.see(f"words.py({14 if sys.version_info >= (3, 13) else 15})stop()\n")
        person.see("(Pdb) ")
        person.type("number = 6\n")
        person.see("(Pdb) ")
        person.type("c\n")
        person.see("\n7\n")
        assert person.leave() == 0
    with at_terminal(env, "stop", "number=3") as person:
        person.see("(Pdb) ")
        person.type("q\n")
        person.see("duet-rpc: stopped in the debugger")
        assert person.leave() == 1
        assert "Traceback" not in person.screen


@pytest.mark.parametrize(("method", "line"), [("refuse", 19), ("leave", 23)])
def test_whatever_is_raised_stops_it(env: dict[str, str], method: str, line: int) -> None:
    with at_terminal(env, method) as person:
        person.see(f"words.py({line}){method}()")
        person.see("(Pdb) ")
        person.type("\x04")
        assert person.leave() == 1


def test_a_result_is_printed_as_usual(env: dict[str, str]) -> None:
    code, out, err = invoke(["call", "--pdb", "parse", 'text="[1]"'], env)
    assert (code, out, err) == (0, "[\n  1\n]\n", "INFO  parsing\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["parse", "text=3"], "Invalid params: text: expected string, received integer (-32602)"),
        (["parse"], "Invalid params: text: expected string, received missing (-32602)"),
        (["prase"], "Method not found: --pdb runs only methods of yours (-32601)\n  did you mean"),
        (["version"], "Method not found: --pdb runs only methods of yours (-32601)"),
        (["odd"], "odd: "),
    ],
)
def test_other_errors_are_reported_without_a_debugger(
    env: dict[str, str], words: list[str], message: str
) -> None:
    code, out, err = invoke(["call", "--pdb", *words], env)
    assert (code, out) == (1, "")
    assert err.startswith(f"duet-rpc: {message}")
    if words[0] == "parse":
        assert "  signature: parse(text: string) -> any\n" in err


def test_stdin_belongs_to_the_debugger(env: dict[str, str]) -> None:
    code, _, err = invoke(["call", "--pdb", "parse", "-"], env, b"{}")
    assert code == 2
    assert err.startswith("duet-rpc: - (JSON on stdin) works only with `")
    code, _, err = invoke(["console", "--pdb"], env)
    assert code == 2
    assert "--pdb is an option of call, not of console" in err


def test_files_that_cannot_be_loaded_are_named(env: dict[str, str]) -> None:
    folder = Path(env["HOME"]) / ".config" / "duet-rpc" / "methods"
    (folder / "bad.py").write_text("x = (\n")
    code, _, err = invoke(["call", "--pdb", "parse", 'text="[1]"'], env)
    assert code == 0
    assert "duet-rpc: could not be loaded: bad.py:1: SyntaxError" in err


def test_a_project_that_is_not_trusted_is_not_loaded(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".duet-rpc.toml").write_text('[methods]\nload = ["mine.py"]\n')
    (tmp_path / "mine.py").write_text("open('ran', 'w')\n")
    _, _, err = invoke(["call", "--pdb", "mine"], env, cwd=tmp_path)
    assert "the file is not trusted" in err
    assert not (tmp_path / "ran").exists()
