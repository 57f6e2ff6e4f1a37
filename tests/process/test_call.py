"""`duet-rpc call`: arguments, replies, errors, progress, Ctrl-C, in the real program."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from duet_rpc import __version__
from tests.machine import cpu_seconds_of_children, wait_until_computing
from tests.support import PYZ, SOURCE, TOP
from tests.terminal import WITH_DAEMON, Person, children, environment, invoke, is_gone

VERSION = json.dumps({"version": __version__}, indent=2) + "\n"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    return environment(tmp_path / "home")


def fake(
    behaviour: str, words: list[str], env: dict[str, str], stdin: bytes = b"", **more: str
) -> tuple[int, str, str]:
    return invoke([behaviour, *words], {**env, **more}, stdin, WITH_DAEMON)


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


# Errors.


def explained(err: str) -> str:
    """Return stderr without the lines of the daemon's log."""
    return "".join(line for line in err.splitlines(True) if not re.match(r"\d{4}-", line))


@pytest.mark.parametrize(
    ("method", "hint"),
    [
        ("verison", "did you mean 'version'?"),
        ("VERSION", "did you mean 'version'?"),
        ("listmethod", "did you mean 'listMethods'?"),
        ("zzz", "available: initialize, listMethods, describeMethods, version, "),
        ("", "available: initialize"),
    ],
)
def test_an_unknown_method_brings_the_nearest(method: str, hint: str, env: dict[str, str]) -> None:
    code, out, err = invoke(["call", method], env)
    assert (code, out) == (1, "")
    first, second = explained(err).splitlines()
    assert first == f"duet-rpc: Method not found: {method} (-32601)"
    assert second.startswith(f"  {hint}")


def test_without_a_nearest_one_the_users_own_methods_come_first(
    env: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from duet_rpc import method\n@method\ndef mine() -> int: return 1\n")
    _, _, err = invoke(["call", "--methods", str(file), "zzz"], env)
    assert "  available: mine, initialize, listMethods" in err


def test_wrong_params_bring_the_signature(env: dict[str, str]) -> None:
    code, out, err = invoke(["call", "setLogLevel", "level=loud"], env)
    assert (code, out) == (1, "")
    levels = "debug, info, warn, error"
    assert explained(err).splitlines() == [
        f"duet-rpc: Invalid params: level: expected one of {levels}, received loud (-32602)",
        "  param:     level",
        f"  expected:  one of {levels}",
        "  received:  loud",
        f"  accepted:  {levels}",
        "  signature: setLogLevel(level: string) -> object",
    ]


def test_a_number_where_text_is_needed_brings_the_right_quoting(env: dict[str, str]) -> None:
    data = {"param": "text", "expected": "string", "received": "integer"}
    error = {"code": -32602, "message": "Invalid params", "data": data}
    reply = json.dumps({"jsonrpc": "2.0", "id": 1, "error": error})
    for typed in ("3", "1.10", "12e45", "-0", "true", " 7", '[1,  "ä\\n"]'):
        _, _, err = fake("raw", ["call", "m", "other=1", f"text={typed}"], env, FAKE_REPLY=reply)
        hint = err.partition("to send it as text, write ")[2]
        _, out, _ = fake("echo", ["call", "m", *shlex.split(hint)], env)
        assert json.loads(out)[1] == {"text": typed}
    _, _, err = fake("raw", ["call", "m", '{"text": 3}'], env, FAKE_REPLY=reply)
    assert "as text" not in err, "in JSON there is no doubt of what was meant"


def test_a_number_too_large_for_a_float_is_text(env: dict[str, str]) -> None:
    _, out, _ = fake("echo", ["call", "m", "hash=12e4567", "b=-1E999"], env)
    assert json.loads(out)[1] == {"hash": "12e4567", "b": "-1E999"}


def test_the_daemons_log_comes_before_the_error_message(env: dict[str, str]) -> None:
    code, out, err = invoke(["methods", "call", "boom"], env, None, WITH_DAEMON)
    assert (code, out) == (1, "")
    log, message = (
        err.index("RuntimeError (daemon_with_methods.py:"),
        err.index("duet-rpc: Internal error (-32603)"),
    )
    assert log < message
    assert err.endswith(
        "  the log has the reason: on stderr, or in the file that DUET_RPC_LOG names\n"
    )


RAISED = {
    "type": "KeyError",
    "text": "'x'",
    "place": "/home/me/methods/words.py:12",
    "traceback": "Traceback (most recent call last):\n"
    '  File "/home/me/methods/words.py", line 12, in word_count\n'
    "    return {}['x']\n"
    "KeyError: 'x'\x1b[2J\n",
}


def test_a_failed_method_is_shown_with_type_text_and_place(
    env: dict[str, str], tmp_path: Path
) -> None:
    error = {"code": -32603, "message": "Internal error", "data": RAISED}
    reply = json.dumps({"jsonrpc": "2.0", "id": 1, "error": error})
    head = "duet-rpc: word_count: KeyError: 'x' (words.py:12)\n"
    code, out, err = fake("raw", ["call", "word_count"], env, FAKE_REPLY=reply)
    assert (code, out) == (1, "")
    hint = "  --debug shows the traceback; `call --pdb` stops there in the debugger\n"
    assert err == head + hint
    config = tmp_path / "config.toml"
    config.write_text("debug = true\n")
    for words, file in ((["--debug"], ""), ([], str(config))):
        more = {**env, "FAKE_REPLY": reply, "DUET_RPC_CONFIG": file}
        command = ["raw", "call", "word_count", *words]
        _, _, err = invoke(command, more, command=WITH_DAEMON, tracebacks=True)
        assert err == head + RAISED["traceback"].replace("\x1b", "\\x1b")


@pytest.mark.parametrize(
    ("data", "head"),
    [
        ({"type": "KeyError", "text": "", "place": "a.py:1"}, "m: KeyError (a.py:1)\n"),
        ({"type": "KeyError", "text": "a\nb"}, "m: KeyError: a\\nb\n"),
        ({"type": 3, "text": "x", "place": ""}, "Internal error (-32603)\n"),
        ("x", "Internal error (-32603)\n"),
    ],
)
def test_less_than_all_of_an_exception_is_shown_too(
    env: dict[str, str], data: object, head: str
) -> None:
    error = {"code": -32603, "message": "Internal error", "data": data}
    reply = json.dumps({"jsonrpc": "2.0", "id": 1, "error": error})
    _, _, err = fake("raw", ["call", "m"], env, FAKE_REPLY=reply)
    assert err.startswith(f"duet-rpc: {head}")


BOOM = "from duet_rpc import method\n@method\ndef boom() -> int:\n    return {}['x']\n"


BREAK = "from duet_rpc import method\n@method\ndef stop() -> None: breakpoint()\n"


def test_no_error_is_shown_twice_on_a_terminal(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "words.py"
    file.write_text(BOOM)
    _, _, err = invoke(["call", "--methods", str(file), "boom"], env)
    assert err.count("words.py:4") == 1
    file.write_text(BREAK)
    assert invoke(["call", "--methods", str(file), "stop"], env)[2].count("words.py:3") == 1
    wrong = ["call", "setLogLevel", "level=loud"]
    assert "WARN" not in invoke(wrong, env)[2]
    assert " WARN  method=setLogLevel" in invoke([*wrong, "--log-level", "warn"], env)[2]
    log = tmp_path / "log"
    assert "WARN" not in invoke(wrong, {**env, "DUET_RPC_LOG": str(log)})[2]
    assert " WARN  method=setLogLevel" in log.read_text(), "a file is no terminal"


def test_the_author_is_told_type_text_and_line(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(BOOM)
    (tmp_path / "bad.py").write_text("x = 1\ny = (\n")
    words = ["call", "boom"]
    for name in ("words.py", "bad.py"):
        words += ["--methods", str(tmp_path / name)]
    _, _, err = invoke(words, env)
    problem, head, hint = err.splitlines()
    assert problem.startswith("duet-rpc: bad.py:2: SyntaxError")
    assert head == "duet-rpc: boom: KeyError: 'x' (words.py:4)"
    assert hint.startswith("  --debug shows the traceback")
    _, _, err = invoke([*words, "--debug"], env, tracebacks=True)
    assert f'  File "{tmp_path / "words.py"}", line 4, in boom\n' in err
    assert err.endswith("KeyError: 'x'\n")
    assert f'  File "{tmp_path / "bad.py"}", line 2\n' in err
    assert err.count("Traceback") == 1  # Python prints none for the syntax error


def test_a_method_and_its_children_see_no_variables_of_call(
    env: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "words.py"
    file.write_text(
        "import os\nfrom duet_rpc import method\n@method\ndef names() -> list:\n"
        "    return [name for name in os.environ if name.startswith('DUET_RPC')]\n"
    )
    assert invoke(["call", "--methods", str(file), "names"], env) == (0, "[]\n", "")


def test_what_the_daemon_has_to_say_is_printed_once(env: dict[str, str]) -> None:
    code, out, err = fake("say", ["call", "version"], env)
    assert (code, out, err) == (
        0,
        '"done"\n',
        "a\nb\nduet-rpc: words.py:1: \\x1b[2JSyntaxError\n",
    )
    code, _, err = fake("say", ["call", "m"], env)
    assert code == 1
    assert err.count("words.py:1") == 1
    assert err.endswith("  could not be loaded: other.py:2: KeyError\n")


def test_an_error_raised_by_a_method_shows_its_data(env: dict[str, str]) -> None:
    code, _, err = invoke(["methods", "call", "refuse"], env, None, WITH_DAEMON)
    assert code == 1
    assert 'duet-rpc: Not today (-32001)\n  {\n    "when": "tomorrow"\n  }\n' in err


def test_escape_sequences_in_an_error_are_escaped(env: dict[str, str]) -> None:
    error = {"code": 1, "message": "\x1b[2J\nx", "data": {"\x1b": "\x9b"}}
    reply = json.dumps({"jsonrpc": "2.0", "id": 1, "error": error})
    _, _, err = fake("raw", ["call", "m"], env, FAKE_REPLY=reply)
    assert err.startswith("duet-rpc: \\x1b[2J\\nx (1)\n")
    assert "\x1b" not in err
    assert "\x9b" not in err


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("exit", "the daemon exited with code 3 before it answered"),
        ("crash", "the daemon was killed by SIGKILL before it answered"),
        ("half", "the daemon exited with code 0 before it answered"),
        ("huge", "the reply is larger than 10485760 bytes"),
        ("closed", "the daemon closed its stdout before it answered"),
        ("junk", "the daemon's stdout has text that is not a frame: Welcome to \\x1b[1mPython"),
        ("nowhere", f"cannot start the daemon, {TOP}/tests/nowhere: No such file or directory"),
    ],
)
def test_a_failed_daemon_is_one_clear_line(
    behaviour: str, message: str, env: dict[str, str]
) -> None:
    code, out, err = fake(behaviour, ["call", "m"], env)
    assert (code, out) == (1, "")
    lines = [line for line in err.splitlines() if not line.startswith("pid ")]
    assert len(lines) == 1
    assert lines[0].startswith(f"duet-rpc: {message}")


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "nonsense",
        "[]",
        "3",
        '{"id": 1}',
        '{"id": 1, "error": 3}',
        '{"id":1,"error":{}}',
        "\x00",
    ],
)
def test_an_invalid_reply_is_one_clear_line(reply: str, env: dict[str, str]) -> None:
    env = {**env, "FAKE_REPLY": reply.replace("\x00", "{")}
    code, out, err = fake("raw", ["call", "m"], env)
    assert (code, out) == (1, "")
    assert re.fullmatch(r"duet-rpc: the daemon's reply is not valid JSON(-RPC)?\n", err)


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
