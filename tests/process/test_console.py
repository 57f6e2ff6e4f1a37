"""`duet-rpc console`: its lines, above all from a pipe, and what becomes of a daemon that exits."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from duet_rpc import __version__
from duet_rpc.terminal.params import ArgumentError, split_line
from tests.calling import VERSION
from tests.console import env, history, script, values
from tests.support import PYZ, SOURCE, wait_for_file, wait_until
from tests.terminal import WITH_DAEMON, Person, children, invoke, is_alive

__all__ = ["env"]


# Lines.


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("  m  ", ["m"]),
        ("m a=1 b=two", ["m", "a=1", "b=two"]),
        ("m 'a=two words' b=\"x y\" c=d\\ e", ["m", "a=two words", "b=x y", "c=d e"]),
        ('m {"a": [1, 2]}', ["m", '{"a": [1, 2]}']),
        ('m   [1, "x y"]  ', ["m", '[1, "x y"]']),
        ('m a={"b": "c d"} e=[1, 2] f=3', ["m", 'a={"b": "c d"}', "e=[1, 2]", "f=3"]),
        ("m '{\"a\": 1}'", ["m", '{"a": 1}']),
        ("m a='{\"b\": 1}'", ["m", 'a={"b": 1}']),
        ("m {a: 1} b", ["m", "{a: 1} b"]),
        ("m a={x y", ["m", "a={x", "y"]),
        ("m a=[1]x", ["m", "a=[1]x"]),
        ("m a=#1 #b", ["m", "a=#1", "#b"]),
        ("m ''", ["m", ""]),
        ("m a=''", ["m", "a="]),
        ("m\ta=1\u00a0 b=2", ["m", "a=1\u00a0", "b=2"]),
        ("m a=日本語", ["m", "a=日本語"]),
    ],
)
def test_lines_split_as_in_a_shell_except_for_json(line: str, words: list[str]) -> None:
    assert split_line(line) == words


@pytest.mark.parametrize("line", ["m 'a", 'm "a', "m a\\"])
def test_a_line_that_does_not_end_is_refused(line: str) -> None:
    with pytest.raises(ArgumentError, match=r"no closing quotation|no escaped character"):
        split_line(line)


def test_a_pipe_gets_replies_on_stdout_and_nothing_else(env: dict[str, str]) -> None:
    text = 'version\n\n# a comment\nsetLogLevel {"level": "error"}\nsetLogLevel ["warn"]'
    code, out, err = script(text, env)
    assert (code, err) == (0, "")
    assert out.startswith(VERSION)
    assert values(out)[1:] == [{"level": each, "success": True} for each in ("error", "warn")]
    assert not history(env).exists()


def test_lines_have_the_form_of_call(env: dict[str, str]) -> None:
    code, out, _ = script("m a=1 b='x y' c={\"d\": [1, 2]}\nm\nm [1, 2]\n", env, "echo")
    assert code == 0
    params = [value[1] for value in values(out) if isinstance(value, list)]
    assert params == [{"a": 1, "b": "x y", "c": {"d": [1, 2]}}, None, [1, 2]]


@pytest.mark.parametrize("word", ["quit", "exit", " quit "])
def test_quit_leaves_the_rest_unread(word: str, env: dict[str, str]) -> None:
    assert script(f"{word}\nversion\n", env) == (0, "", "")


def test_a_failed_line_is_explained_and_the_next_runs(env: dict[str, str]) -> None:
    text = "verison\nsetLogLevel level=loud\nversion a\nversion -\nversion 'x\nversion\n"
    code, out, err = script(text, env)
    assert (code, out) == (1, VERSION)
    for part in (
        "duet-rpc: Method not found: verison (-32601)\n  did you mean 'version'?\n",
        "  signature: setLogLevel(level: string) -> object\n",
        "duet-rpc: a: expected name=value, one JSON object or array\n",
        "duet-rpc: - (JSON on stdin) works only with `python -m duet_rpc call`\n",
        "duet-rpc: no closing quotation: 'x\n",
    ):
        assert part in err


def test_lines_that_are_not_utf_8_are_refused(env: dict[str, str]) -> None:
    code, out, err = invoke(["console"], env, b"version a=\xff\nversion\n")
    assert (code, out) == (1, VERSION)
    assert "not UTF-8" in err


def test_help_lists_and_explains(env: dict[str, str]) -> None:
    code, out, err = script("help\n", env)
    assert (code, err) == (0, "")
    names = [line.split()[0] for line in out.splitlines()]
    assert names == ["initialize", "listMethods", "describeMethods", "version", "setLogLevel",
                     "shutdown", "help", "quit"]  # fmt: skip
    _, out, _ = script("help setLogLevel\n", env)
    assert out.splitlines() == [
        "setLogLevel(level: string) -> object",
        "  Set how much is logged, from now on.",
        "",
        "  level: required; one of debug, info, warn, error",
    ]
    _, out, _ = script("help version\n", env)
    assert out.splitlines() == ["version() -> object", "  Return the version of duet-rpc."]
    code, out, err = script("help verison\nhelp a b\n", env)
    assert (code, out) == (1, "")
    assert "duet-rpc: unknown method 'verison'\n  did you mean 'version'?\n" in err
    assert "duet-rpc: help takes one METHOD; remove 'b'\n" in err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_help_is_escaped_where_the_encoding_lacks_characters(
    encoding: str, env: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "words.py"
    file.write_text(
        "from duet_rpc import method\n@method\ndef count(text: str) -> int:\n"
        '    """Zähle Wörter — 日本."""\n    return 1\n'
    )
    words = ["console", "--methods", str(file)]
    code, out, err = invoke(
        words, {**env, "PYTHONIOENCODING": encoding}, b"help\nhelp count\n", encoding=encoding
    )
    assert (code, err) == (0, "")
    shown = "Zähle Wörter — 日本.".encode(encoding, "backslashreplace").decode(encoding)
    assert out.count(shown) == 2


SLOW = (
    "import time\nfrom duet_rpc import method\nopen({!r}, 'w').close(); time.sleep({})\n"
    "@method\ndef mine(): return 1\n"
)


def test_methods_may_take_long_to_load(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    file.write_text(
        SLOW.format(str(tmp_path / "mark"), 10.5)
    )  # longer than the default timeout of a call
    code, out, err = invoke(["console", "--methods", str(file)], env, b"mine\n")
    assert (code, out, err) == (0, "1\n", "")


def test_ctrl_c_cancels_the_loading_of_methods(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    file.write_text(SLOW.format(str(tmp_path / "mark"), 60))
    with Person(["console", "--methods", str(file)], env) as person:
        person.see("Ctrl-D exits")
        wait_for_file(tmp_path / "mark")
        person.type("\x03")
        person.see("slow.py:3: ")
        person.see("duet>")
        person.type("version\r")
        person.see(__version__)
        person.see("duet>")
        person.type("\x04")
        assert person.leave() == 0


def test_the_daemon_keeps_its_state_between_lines(env: dict[str, str]) -> None:
    _, _, err = script("setLogLevel level=debug\nversion\n", env)
    assert "DEBUG method=version" in err


# A daemon that exits.


@pytest.mark.parametrize(
    ("daemon", "how"),
    [("exit", "exited with code 3"), ("crash", "was killed by SIGKILL")],
)
def test_an_exited_daemon_is_replaced_at_the_next_line(
    daemon: str, how: str, env: dict[str, str]
) -> None:
    code, out, err = script("a\nhelp\nb\n", env, daemon)
    assert code == 1
    assert out.startswith("help ")
    line = f"duet-rpc: the daemon {how} before it answered; the next line starts a new one\n"
    assert err == line * 2


def test_after_shutdown_the_next_line_starts_a_new_daemon(env: dict[str, str]) -> None:
    code, out, err = script("shutdown\nversion\n", env)
    assert code == 0
    assert values(out) == [{"message": "Shutting down gracefully"}, {"version": __version__}]
    assert err == "the daemon exited with code 0; the next line starts a new one\n"


def test_an_exit_between_two_lines_is_noticed(env: dict[str, str]) -> None:
    with Person(["console"], env) as person:
        person.see("duet>")
        person.type("version\r")
        person.see("ms)")
        (daemon,) = children(person.process.pid)
        os.kill(daemon, 9)
        wait_until(lambda: not is_alive(daemon), "the daemon has ended")
        person.type("version\r")
        person.see("the daemon was killed by SIGKILL; starting a new one")
        person.see(f'"{__version__}"')


def test_a_daemon_that_cannot_start_is_reported_and_retried(env: dict[str, str]) -> None:
    code, out, err = script("version\n", env, "nowhere")
    assert (code, out) == (1, "")
    assert err.count("cannot start the daemon, ") == 2


def test_a_daemon_is_not_left_behind(env: dict[str, str]) -> None:
    _, _, err = script("setLogLevel level=debug\nshutdown\nsetLogLevel level=info\n", env)
    assert "stdin closed, shutting down gracefully" in err


# Scripts.


def test_the_pyz_has_a_console(env: dict[str, str]) -> None:
    env = {**env, "PYTHONPATH": ""}
    assert invoke(["console"], env, b"version\n", [sys.executable, PYZ]) == (0, VERSION, "")


def test_without_any_stdin_it_ends(env: dict[str, str]) -> None:
    command = ["sh", "-c", f"{' '.join(SOURCE)} console <&-"]
    assert invoke([], env, None, command) == (0, "", "")


def test_a_script_asks_for_no_lists(env: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    env["DUET_RPC_LOG"] = str(log)
    invoke(["console", "--log-level", "debug"], env, b"version\nversion\nversion\n")
    assert "method=rpc.discover" not in log.read_text(), "it would start every worker"
    assert log.read_text().count("method=version") == 6, "each received and answered"


def test_a_failed_method_shows_its_place_or_with_debug_more(env: dict[str, str]) -> None:
    data = {
        "type": "KeyError",
        "text": "'x'",
        "place": "/a/words.py:12",
        "traceback": "Traceback (most recent call last):\nKeyError: 'x'\n",
    }
    error = {"code": -32603, "message": "Internal error", "data": data}
    env["FAKE_REPLY"] = json.dumps({"jsonrpc": "2.0", "id": 1, "error": error})
    head = "duet-rpc: m: KeyError: 'x' (words.py:12)\n"
    code, _, err = invoke(["raw", "console"], env, b"m\n", WITH_DAEMON)
    assert code == 1
    assert err.startswith(f"{head}  --debug shows the traceback")
    words = ["raw", "console", "--debug"]
    _, _, err = invoke(words, env, b"m\n", WITH_DAEMON, tracebacks=True)
    assert err == head + data["traceback"]


def test_a_failure_of_an_earlier_version_is_called_that(
    env: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "a.py"
    text = "from duet_rpc import method\n@method\ndef spoil(): open(__file__, 'w').write('oops(')\n"
    file.write_text(text + "@method\ndef f(): 1 / 0\n")
    _, _, err = invoke(["console", "--methods", str(file)], env, b"spoil\nf\n")
    assert (
        "duet-rpc: f: ZeroDivisionError: division by zero (a.py:5)\n"
        "  this was the file before its last change, which could not be loaded:\n"
        "  a.py:1: SyntaxError: '(' was never closed\n"
    ) in err.replace("unexpected EOF while parsing", "'(' was never closed")  # Python 3.9
