"""The command line: help, version, options, errors, exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from duet_rpc import __version__
from tests.support import PYZ, SOURCE, TOP, request, run
from tests.terminal import Person, environment

USAGE = "usage: python -m duet_rpc"
COMMANDS = [
    "rpc",
    "mcp",
    "gateway",
    "call",
    "console",
    "new",
    "list",
    "doctor",
    "env",
    "config",
    "trust",
    "untrust",
    "version",
]


def invoke(*words: str, command: Sequence[str | Path] = SOURCE, **env: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*map(str, command), *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(TOP), **env},
        timeout=20,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def test_no_arguments_and_help_print_the_same_help() -> None:
    code, out, err = invoke()
    assert (code, err) == (0, "")
    assert invoke("--help") == invoke("-h") == (0, out, "")
    options = (
        "--methods --framing --batch --gateway --check --pdb --all --json --prune --yes --debug "
        "--log-level --no-color"
    )
    for word in (*COMMANDS, *options.split(), "--version", "--help"):
        assert re.search(rf"^  (-h, )?{word}\b", out, re.MULTILINE), word
    for variable in ("DUET_RPC_LOG", "DUET_RPC_CONFIG", "NO_COLOR"):
        assert variable in out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_after_a_command_is_about_that_command(command: str) -> None:
    code, out, err = invoke(command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"{USAGE} {command} [OPTION]...")
    assert invoke("-h", command) == invoke(command, "-h") == (0, out, "")
    assert "--log-level LEVEL" in out
    assert ("--framing FRAMING" in out) == (command == "rpc")
    assert ("--batch" in out) == (command in ("rpc", "mcp"))
    assert ("--debug" in out) == (command in ("rpc", "mcp", "gateway", "call", "console"))
    assert ("METHOD [ARG]..." in out) == (command == "call")


def test_help_fits_into_80_columns() -> None:
    for words in ([], *([command] for command in COMMANDS)):
        assert max(map(len, invoke(*words, "--help")[1].splitlines())) < 80


@pytest.mark.parametrize("name", ["duet-rpc.pyz", "duet", "my duet.pyz"])
def test_hints_name_the_archive_as_it_was_started(tmp_path: Path, name: str) -> None:
    link = tmp_path / name
    link.symlink_to(PYZ)
    _, _, err = invoke("cal", command=[sys.executable, link])
    assert err == (
        f"duet-rpc: unknown command 'cal'; did you mean 'call'? ({name} --help lists all)\n"
        f"usage: {name} [OPTION]... COMMAND\n"
    )


def test_hints_name_the_installed_command(tmp_path: Path) -> None:
    script = tmp_path / "duet-rpc"
    script.write_text("from duet_rpc.cli import main\nmain()\n")
    _, _, err = invoke("cal", command=[sys.executable, script])
    assert "(duet-rpc --help lists all)\nusage: duet-rpc [OPTION]..." in err


def test_the_version_is_semver_and_the_same_everywhere() -> None:
    assert re.fullmatch(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", __version__)
    assert invoke("--version") == invoke("version") == (0, f"{__version__}\n", "")
    head = (TOP / "elisp" / "duet-rpc.el").read_text()
    assert f";; Version: {__version__}\n" in head
    assert f"## {__version__}" in (TOP / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["frobnicate"], "unknown command 'frobnicate' (python -m duet_rpc --help lists all)\n"),
        (["--frobnicate"], "unknown option '--frobnicate' (python -m duet_rpc --help lists all)\n"),
        (["-x"], "unknown option '-x' (python"),
        (["doctro"], "unknown command 'doctro'; did you mean 'doctor'? (python -m"),
        (["RPC"], "unknown command 'RPC'; did you mean 'rpc'? (python -m"),
        (["--log-levle", "x"], "unknown option '--log-levle'; did you mean '--log-level'? (python"),
        (["rpc", "--frame=x"], "unknown option '--frame'; did you mean '--framing'? (python -m "
         "duet_rpc rpc --help lists all)\n"),
        (["rpc", "--jsn"], "unknown option '--jsn' (python -m duet_rpc rpc --help lists all)\n"),
        (["rpc", "rpc"], "unexpected argument 'rpc' after rpc"),
        (["version", "rpc"], "unexpected argument 'rpc' after version"),
        (["rpc", "--batch=yes"], "--batch takes no value"),
        (["rpc", "--log-level"], "--log-level needs a level: debug, info, warn or error"),
        (["rpc", "--methods="], "--methods needs a source: a Python file or the name of a module"),
        (["rpc", "--log-level", "loud"],
         "unknown log level 'loud' (debug, info, warn or error)"),
        (["--log-level=wran", "rpc"],
         "unknown log level 'wran'; did you mean 'warn'? (debug, info, warn or error)"),
        (["rpc", "--framing", "line"], "unknown framing 'line'; did you mean 'lines'? (content-"),
        (["gateway", "--batch"], "--batch is an option of rpc, mcp, not of gateway"),
        (["--yes"], "--yes is an option of trust, but no command was given"),
        (["-"], "unknown command '-' ("),
        ([""], "unknown command '' ("),
        (["\x1b[2J\n" * 50], "unknown command '\\x1b[2J\\n\\x1b["),
    ],
)  # fmt: skip
def test_wrong_arguments_are_usage_on_stderr_and_exit_2(words: list[str], message: str) -> None:
    code, out, err = invoke(*words)
    assert (code, out) == (2, "")
    first, second = err.splitlines(keepends=True)
    assert first.startswith(f"duet-rpc: {message}")
    assert second.startswith(USAGE)


@pytest.mark.parametrize("server", [["rpc"], ["mcp"], ["mcp", "--gateway"]])
def test_batch_is_accepted_by_the_servers_that_have_it(server: list[str]) -> None:
    assert run(b"", [*SOURCE, *server, "--batch"])[0] == 0


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
    assert "DEBUG method=version id=1 answered in" in log
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
def test_version_wins_over_other_arguments(words: str) -> None:
    assert invoke(*words.split()) == (0, f"{__version__}\n", "")
    assert invoke(*words.split(), "--frobnicate")[:2] == (2, "")
    assert USAGE in invoke(*words.split(), "--help")[1]


@pytest.mark.parametrize("option", ["--framing=lines", "--batch", "--methods=x", "--gateway"])
def test_help_wins_over_other_options(option: str) -> None:
    done = subprocess.run([*SOURCE, option, "--help"], capture_output=True, timeout=20, check=False)
    assert done.returncode == 0
    assert USAGE.encode() in done.stdout


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full", "2>&1 >&3 | :"])
@pytest.mark.parametrize("words", ["nonsense", "config", "trust", "call version", "rpc"])
def test_an_unwritable_stderr_changes_neither_exit_code_nor_stdout(
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
