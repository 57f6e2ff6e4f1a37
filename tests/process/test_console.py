"""`duet-rpc console`: through a pipe, and at a terminal with each line editor there is."""

from __future__ import annotations

import json
import os
import stat
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from duet_rpc import __version__
from duet_rpc.terminal.console import complete
from duet_rpc.terminal.params import ArgumentError, split_line
from duet_rpc.terminal.prompt import HISTORY_MAX
from tests.machine import wait_until_idle
from tests.support import PYZ, SOURCE, wait_for_file, wait_until
from tests.terminal import (
    WITH_DAEMON,
    Person,
    children,
    environment,
    invoke,
    is_alive,
    is_asleep,
    is_gone,
)

VERSION = json.dumps({"version": __version__}, indent=2) + "\n"


EDITORS = ["prompt_toolkit", "readline", "plain"]


def with_editor(name: str, folder: Path) -> dict[str, str]:
    """Return an environment where this is the best line editor installed."""
    for part in ("home", "hidden"):
        (folder / part).mkdir()
    for better in EDITORS[: EDITORS.index(name)]:
        (folder / "hidden" / f"{better}.py").write_text("raise ImportError\n")
    env = environment(folder / "home")
    # prompt_toolkit asks the terminal where the cursor is; nobody answers here.
    path = f"{folder / 'hidden'}{os.pathsep}{env['PYTHONPATH']}"
    return {**env, "PYTHONPATH": path, "PROMPT_TOOLKIT_NO_CPR": "1", "EDITOR_NAME": name}


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return with_editor("readline", tmp_path)


@pytest.fixture(params=EDITORS)
def editor(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    name: str = request.param
    if name != "plain" and find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    return with_editor(name, tmp_path)


def history(env: dict[str, str]) -> Path:
    return Path(env["HOME"]) / ".local" / "state" / "duet-rpc" / "history"


def script(
    text: str, env: dict[str, str], daemon: str | None = None, **more: str
) -> tuple[int, str, str]:
    """Run lines from a pipe in the console."""
    env = {**env, **more}
    if daemon is None:
        return invoke(["console"], env, text.encode())
    return invoke([daemon, "console"], env, text.encode(), WITH_DAEMON)


def values(text: str) -> list[object]:
    """Parse JSON texts that follow one another."""
    found, at = [], 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        value, at = json.JSONDecoder().raw_decode(text, at)
        found.append(value)
    return found


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


def test_the_pyz_has_a_console(env: dict[str, str]) -> None:
    env = {**env, "PYTHONPATH": ""}
    assert invoke(["console"], env, b"version\n", [sys.executable, PYZ]) == (0, VERSION, "")


def test_without_any_stdin_it_ends(env: dict[str, str]) -> None:
    command = ["sh", "-c", f"{' '.join(SOURCE)} console <&-"]
    assert invoke([], env, None, command) == (0, "", "")


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
