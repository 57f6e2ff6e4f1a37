"""Words on the command line: help, version, flags, exit codes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from duet_rpc import __version__
from tests.support import SOURCE, TOP, request, run
from tests.terminal import Person, environment


def say(*words: str, **env: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*SOURCE, *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(TOP), **env},
        timeout=20,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def test_no_words_and_help_are_the_same_help() -> None:
    code, out, err = say()
    assert (code, err) == (0, "")
    assert say("--help") == say("-h") == say("rpc", "--help") == (0, out, "")
    words = "rpc call console doctor config trust untrust version --methods --log-level --no-color"
    for word in (*words.split(), "--json", "--yes", "--version", "--help"):
        assert re.search(rf"^  (-h, )?{word}\b", out, re.MULTILINE), word
    for variable in ("DUET_RPC_LOG", "DUET_RPC_CONFIG", "NO_COLOR"):
        assert variable in out


def test_the_version_is_semver_and_the_same_everywhere() -> None:
    assert re.fullmatch(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", __version__)
    assert say("--version") == say("version") == (0, f"{__version__}\n", "")
    head = (TOP / "elisp" / "duet-rpc.el").read_text()
    assert f";; Version: {__version__}\n" in head
    assert f"## {__version__}" in (TOP / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["frobnicate"], "no such command: frobnicate"),
        (["--frobnicate"], "no such option: --frobnicate"),
        (["-x"], "no such option: -x"),
        (["rpc", "--frobnicate"], "no such option: --frobnicate"),
        (["rpc", "rpc"], "one word too many: rpc"),
        (["version", "rpc"], "one word too many: rpc"),
        (["rpc", "--log-level"], "--log-level needs a level: debug, info, warn or error"),
        (["rpc", "--log-level", "loud"], "no such log level: loud"),
        (["--log-level=loud", "rpc"], "no such log level: loud"),
        (["-"], "no such command: -"),
        ([""], "no such command: "),
    ],
)
def test_unknown_words_are_usage_on_stderr_and_exit_2(words: list[str], message: str) -> None:
    code, out, err = say(*words)
    assert (code, out) == (2, "")
    assert message in err
    assert "usage: duet-rpc" in err


@pytest.mark.parametrize(
    "words",
    [
        ["--log-level", "debug", "rpc"],
        ["rpc", "--log-level", "DEBUG"],
        ["rpc", "--log-level=Debug"],
        ["--no-color", "--log-level=debug", "rpc"],
    ],
)
def test_flags_stand_before_or_after_the_command(words: list[str]) -> None:
    _, _, log = run(request(1), [*SOURCE, *words])
    assert "DEBUG method=version id=1 served" in log
    assert "level debug" in log


def test_the_default_level_of_rpc_is_info() -> None:
    _, _, log = run(request(1), [*SOURCE, "rpc"])
    assert "INFO" in log
    assert "DEBUG" not in log


@pytest.mark.parametrize(("kind", "colored"), [("xterm", True), ("dumb", False)])
def test_a_log_has_colour_where_the_terminal_knows_it(
    kind: str, colored: bool, tmp_path: Path
) -> None:
    with Person(["rpc"], environment(tmp_path, TERM=kind)) as person:
        person.see(" started: ")
    assert ("\x1b[" in person.raw) is colored


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = f"{' '.join(SOURCE)} --help | true"
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=20, check=False)
    assert done.stderr == b""


def test_a_working_directory_that_is_gone_is_no_traceback(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"cd {gone} && rmdir {gone} && {' '.join(SOURCE)} rpc"
    env = {**os.environ, "PYTHONPATH": str(TOP)}
    done = subprocess.run(
        ["sh", "-c", command],
        input=request(1),
        capture_output=True,
        env=env,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0
    assert b'"version"' in done.stdout
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "--version rpc", "rpc --version", "rpc --framing lines --version", "call --version",
        "--methods system --version", "--version mcp --gateway", "--version --yes",
        "gateway --version",
    ],
)  # fmt: skip
def test_the_version_is_given_whatever_else_is_said(words: str) -> None:
    assert say(*words.split()) == (0, f"{__version__}\n", "")
    assert say(*words.split(), "--frobnicate")[:2] == (2, "")
    assert "usage: duet-rpc" in say(*words.split(), "--help")[1]


@pytest.mark.parametrize("option", ["--framing=lines", "--batch", "--methods=x", "--gateway"])
def test_help_is_given_whatever_else_is_said(option: str) -> None:
    done = subprocess.run([*SOURCE, option, "--help"], capture_output=True, timeout=20, check=False)
    assert done.returncode == 0
    assert b"usage: duet-rpc" in done.stdout


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full", "2>&1 >&3 | :"])
@pytest.mark.parametrize("words", ["nonsense", "config", "trust", "call version", "rpc"])
def test_a_stderr_that_takes_nothing_changes_neither_exit_code_nor_stdout(
    tmp_path: Path, words: str, stderr: str
) -> None:
    (tmp_path / ".duet-rpc.toml").write_text("wrong\n")
    command = f"{{ {' '.join(SOURCE)} {words}; echo $? >code; }} 3>&1 {stderr}"
    done = subprocess.run(
        ["sh", "-c", command],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TOP), "DUET_RPC_CONFIG": ""},
        timeout=20,
        check=False,
    )
    assert (done.stdout, done.stderr) == (b"", b"")
    assert (tmp_path / "code").read_text() == "2\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [("--help", 0), ("version", 0), ("config", 0), ("gateway --check", 1)],
)
def test_a_stdout_that_is_closed_is_no_traceback(tmp_path: Path, words: str, expected: int) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[backends.a]\ncommand = ["false"]\n')
    done = subprocess.run(
        ["sh", "-c", f"{' '.join(SOURCE)} {words} >&-"],
        capture_output=True,
        env=environment(tmp_path, DUET_RPC_CONFIG=str(config)),
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (expected, b"")
