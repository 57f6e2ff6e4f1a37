"""`duet-rpc call`: what is said of an error, and of a daemon that does not answer as it should."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.calling import env, fake
from tests.support import TOP
from tests.terminal import WITH_DAEMON, invoke

__all__ = ["env"]


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
