"""`duet-rpc call`: arguments and replies, in the real program and in the one file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.calling import VERSION, env, fake
from tests.machine import cpu_seconds_of_children
from tests.support import PYZ, SOURCE, TOP
from tests.terminal import invoke

__all__ = ["env"]


# Arguments.


@pytest.mark.parametrize(
    ("words", "params"),
    [
        ([], None),
        (["a=1"], {"a": 1}),
        (["a=text", "b=two words", "c="], {"a": "text", "b": "two words", "c": ""}),
        (["a=true", "b=null", "c=-1.5e3"], {"a": True, "b": None, "c": -1500.0}),
        (['a="3"', "b=[1, 2]", 'c={"d": 1}'], {"a": "3", "b": [1, 2], "c": {"d": 1}}),
        (["a=x=y", "b=NaN", "c=-Infinity", "d=01", "e=[1"],
         {"a": "x=y", "b": "NaN", "c": "-Infinity", "d": "01", "e": "[1"}),
        (["a-b.c=日本語 ✓"], {"a-b.c": "日本語 ✓"}),
        (["a=--no-color", "b=-", "c={"], {"a": "--no-color", "b": "-", "c": "{"}),
        (["--", "a=1"], {"a": 1}),
        (['{"a": "b=c"}'], {"a": "b=c"}),
        (["[1, [2]]"], [1, [2]]),
        (["{}"], None),
        (["[]"], []),
    ],
)  # fmt: skip
def test_arguments_are_params(words: list[str], params: object, env: dict[str, str]) -> None:
    code, out, err = fake("echo", ["call", "m", *words], env)
    assert (code, err) == (0, "")
    assert json.loads(out)[1] == params


@pytest.mark.parametrize(
    ("stdin", "params"), [(b'{"a": "\xc3\xa9"}', {"a": "é"}), (b"\n [1,\n2]\n", [1, 2])]
)
def test_a_dash_is_json_on_stdin(stdin: bytes, params: object, env: dict[str, str]) -> None:
    code, out, _ = fake("echo", ["call", "m", "-"], env, stdin)
    assert code == 0
    assert json.loads(out)[1] == params


@pytest.mark.parametrize(
    ("words", "stdin", "message"),
    [
        (["call"], b"", "call needs a METHOD"),
        (["call", "m", "a"], b"", "a: expected name=value, one JSON object or array, or - for"),
        (["call", "m", "3"], b"", "3: expected name=value"),
        (["call", "m", ""], b"", ": expected name=value"),
        (["call", "m", "=1"], b"", "=1: expected name=value"),
        (["call", "m", "a=1", "b"], b"", "b: expected name=value"),
        (["call", "m", "a=1", "a=2"], b"", "a is given twice"),
        (["call", "m", "{}", "a=1"], b"", "{} must be the only argument; remove a=1"),
        (["call", "m", "a=1", "[1]"], b"", "[1] must be the only argument; remove a=1"),
        (["call", "m", "a=1", "-"], b"", "- must be the only argument; remove a=1"),
        (["call", "m", "-", "-"], b"", "- must be the only argument; remove -"),
        (["call", "m", "{a: 1}"], b"", "invalid JSON: Expecting property name"),
        (["call", "m", "[1"], b"", "invalid JSON: Expecting ',' delimiter"),
        (["call", "m", "[1] x"], b"", "invalid JSON: Extra data"),
        (["call", "m", "[NaN]"], b"", "invalid JSON: NaN is not JSON"),
        (["call", "m", "a=[1e400]"], b"", "1e400 is too large for a number"),
        (["call", "m", "[-1e999]"], b"", "-1e999 is too large for a number"),
        (["call", "m", "-"], b"[" * 100_000, "invalid JSON: "),
        (["call", "m", "-"], b"", "stdin is empty"),
        (["call", "m", "-"], b" \n", "stdin is empty"),
        (["call", "m", "-"], b"3", "expected a JSON object or array"),
        (["call", "m", "-"], b"[\xff]", "stdin is not UTF-8"),
        (["call", "m", "--frobnicate"], b"", "unknown option '--frobnicate' (python"),
        (["call", "m", "--json"], b"", "--json is an option of doctor, list, env, not of call"),
        (["call", "m", "--log-level", "loud"], b"", "unknown log level 'loud' (debug"),
    ],
)
def test_wrong_arguments_are_a_usage_error(
    words: list[str], stdin: bytes, message: str, env: dict[str, str]
) -> None:
    code, out, err = invoke(words, env, stdin)
    assert (code, out) == (2, "")
    assert err.startswith("duet-rpc: ")
    assert message in err
    assert "usage: python -m duet_rpc call [OPTION]... METHOD [ARG]...\n" in err


def test_arguments_that_are_not_utf_8_are_a_usage_error(env: dict[str, str]) -> None:
    for words in ([b"m", b"a=\xff"], [b"\xff"]):
        done = subprocess.run(
            [*(word.encode() for word in SOURCE), b"call", *words],
            env=env,
            capture_output=True,
            timeout=20,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"\\udcff is not UTF-8" in done.stderr


def test_the_daemon_logs_from_warn_on_unless_told_otherwise(
    env: dict[str, str], tmp_path: Path
) -> None:
    def flags(*words: str, **more: str) -> object:
        return json.loads(fake("echo", ["call", *words], {**env, **more})[1])[0]

    assert flags("m") == ["--log-level", "warn", "--debug"]
    assert flags("m", "--debug") == ["--log-level", "warn", "--debug"]
    assert flags("m", "--log-level=debug") == ["--log-level", "debug", "--debug"]
    assert flags("--no-color", "m") == ["--log-level", "warn", "--no-color", "--debug"]
    config = tmp_path / "config.toml"
    config.write_text('[log]\nlevel = "error"\n')
    assert flags("m", DUET_RPC_CONFIG=str(config)) == ["--log-level", "error", "--debug"]


def test_a_wrong_configuration_is_reported_once(env: dict[str, str], tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[lgo]\n")
    code, out, err = invoke(["call", "version"], {**env, "DUET_RPC_CONFIG": str(config)})
    assert (code, out) == (2, "")
    assert err == f"duet-rpc: {config}:1: unknown key 'lgo'; did you mean 'log'?\n"


# Replies.


def test_a_result_is_json_with_an_indent_of_two(env: dict[str, str]) -> None:
    assert invoke(["call", "version"], env) == (0, VERSION, "")
    code, out, _ = invoke(["call", "listMethods", "{}"], env)
    assert code == 0
    assert out == json.dumps(json.loads(out), indent=2) + "\n"
    assert len(json.loads(out)) == 6


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -1.5, "", [], {}, [[]], {"a": {}}, [1, [2, {"b": [None]}]], "日本語 ✓ 😀"],
)
def test_every_kind_of_value_is_written_as_json_writes_it(
    value: object, env: dict[str, str]
) -> None:
    reply = json.dumps({"jsonrpc": "2.0", "id": 1, "result": value})
    code, out, err = fake("raw", ["call", "m"], env, FAKE_REPLY=reply)
    assert (code, err) == (0, "")
    assert out == json.dumps(value, indent=2, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("text", [r"\u001b[2J", r"\u009b2J é", r"\u007f", r"\ud800 é", r"\b"])
def test_control_characters_in_a_result_are_escaped(text: str, env: dict[str, str]) -> None:
    reply = f'{{"jsonrpc":"2.0","id":1,"result":"{text}"}}'
    code, out, err = fake("raw", ["call", "m"], env, FAKE_REPLY=reply)
    assert (code, out, err) == (0, f'"{text}"\n', "")


def test_an_ascii_stdout_gets_escaped_json(env: dict[str, str]) -> None:
    reply = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"é": "😀"}})
    code, out, err = fake("raw", ["call", "m"], env, FAKE_REPLY=reply, PYTHONIOENCODING="ascii")
    assert (code, err) == (0, "")
    assert out == '{\n  "\\u00e9": "\\ud83d\\ude00"\n}\n'


def test_a_deeply_nested_result_is_no_traceback(env: dict[str, str]) -> None:
    reply = '{"jsonrpc":"2.0","id":1,"result":' + "[" * 900 + "]" * 900 + "}"
    code, out, _ = fake("raw", ["call", "m"], env, FAKE_REPLY=reply)
    assert (code, out.count("[")) == (0, 900)
    reply = '{"jsonrpc":"2.0","id":1,"result":' + "[" * 60_000 + "]" * 60_000 + "}"
    code, out, err = fake("raw", ["call", "m"], env, FAKE_REPLY=reply)
    if code == 0:  # the parser of Python 3.14 and later can read it
        assert out.count("[") == 60_000
        return
    assert (code, out) == (1, "")
    assert "the daemon's reply is not valid JSON\n" in err


def test_large_params_and_a_large_result_come_through(env: dict[str, str]) -> None:
    text = "x" * 3_000_000
    code, out, _ = fake("echo", ["call", "m", "-"], env, json.dumps({"a": text}).encode())
    assert code == 0
    assert json.loads(out)[1] == {"a": text}


def test_params_beyond_the_limit_are_refused_by_the_daemon(env: dict[str, str]) -> None:
    code, out, err = invoke(["call", "version", "-"], env, b'["' + b"x" * 10_485_760 + b'"]')
    assert (code, out) == (1, "")
    assert "Invalid Request: body larger than 10485760 bytes (-32600)" in err
    assert '"reason": "oversize"' in err


def test_shutdown_is_a_call_like_any_other(env: dict[str, str]) -> None:
    code, out, _ = invoke(["call", "shutdown"], env)
    assert code == 0
    assert json.loads(out) == {"message": "Shutting down gracefully"}


def test_a_reader_that_goes_away_is_no_traceback(env: dict[str, str]) -> None:
    command = f"{' '.join(SOURCE)} call listMethods | true"
    done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, check=False)
    assert done.stderr == b""


def test_stdin_and_stderr_may_be_closed(env: dict[str, str]) -> None:
    for closed in ("<&-", "2>&-", "<&- 2>&-"):
        command = ["sh", "-c", f"{' '.join(SOURCE)} call version {closed}"]
        assert invoke([], env, None, command) == (0, VERSION, ""), closed
        command = ["sh", "-c", f"{' '.join(SOURCE)} call nonsense {closed}"]
        assert invoke([], env, None, command)[:2] == (1, ""), closed


def test_a_stdout_that_is_closed_or_full_is_no_traceback(env: dict[str, str]) -> None:
    command = f"{' '.join(SOURCE)} call version >&-"
    done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    command = f"{' '.join(SOURCE)} call version > /dev/full"
    done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr == b"duet-rpc: input or output failed: No space left on device\n"


# The one file.


def test_the_pyz_calls_itself(env: dict[str, str], tmp_path: Path) -> None:
    """From another folder, by a relative path, beside files that look like modules."""
    for name in ("json.py", "duet_rpc.py", "select.py"):
        (tmp_path / name).write_text("raise SystemExit('planted')\n")
    env = {**env, "PYTHONPATH": ""}
    pyz = os.path.relpath(PYZ, tmp_path)
    assert invoke(["call", "version"], env, None, [sys.executable, pyz], tmp_path) == (
        0,
        VERSION,
        "",
    )


def test_the_installed_command_ignores_modules_in_the_working_directory(
    env: dict[str, str], tmp_path: Path
) -> None:
    for name in ("json.py", "duet_rpc.py"):
        (tmp_path / name).write_text("raise SystemExit('planted')\n")
    script = tmp_path / "bin" / "duet-rpc"
    script.parent.mkdir()
    script.write_text(
        f"import sys; sys.path.append({str(TOP)!r})\nfrom duet_rpc.cli import main\nmain()\n"
    )
    env = {**env, "PYTHONPATH": ""}
    command = [sys.executable, str(script)]
    assert invoke(["call", "version"], env, None, command, tmp_path) == (0, VERSION, "")


def test_a_call_takes_well_under_200_ms(env: dict[str, str]) -> None:
    """Of CPU time, which does not depend on what else the machine does."""
    env = {**env, "PYTHONPATH": ""}
    invoke(["call", "version"], env, None, [sys.executable, PYZ])
    times = []
    for _ in range(5):
        before = cpu_seconds_of_children()
        invoke(["call", "version"], env, None, [sys.executable, PYZ])
        times.append(cpu_seconds_of_children() - before)
    assert min(times) < 0.2
