"""Configuration files: which one wins, and the errors for wrong ones."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from duet_rpc.config.files import load
from duet_rpc.config.trust import remember
from tests.support import SOURCE, request, run
from tests.terminal import environment, invoke


def level(cwd: Path, *flags: str, **env: str) -> str:
    """Return the level in the daemon's start-up line."""
    command = ["sh", "-c", 'cd "$0" && exec "$@"', str(cwd), *SOURCE, "rpc", *flags]
    environ = {"HOME": str(cwd / "home"), "XDG_CONFIG_HOME": "", "DUET_RPC_CONFIG": "", **env}
    _, replies, log = run(request(1) + request(2, "setLogLevel", ["info"]), command, environ)
    assert len(replies) == 2
    if " started: " not in log:
        return "above info"
    return log.split(" level ")[1].split(",")[0]


def test_options_override_project_file_overrides_user_file(tmp_path: Path) -> None:
    assert level(tmp_path) == "info"
    user = tmp_path / "home" / ".config" / "duet-rpc"
    user.mkdir(parents=True)
    (user / "config.toml").write_text('[log]\nlevel = "error"\n')
    assert level(tmp_path) == "above info"
    (tmp_path / ".duet-rpc.toml").write_text('[log]\nlevel = "DEBUG"\n')
    assert level(tmp_path) == "debug"
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert level(below, HOME=str(tmp_path / "home")) == "debug"
    assert level(tmp_path, "--log-level", "info") == "info"
    other = tmp_path / "other.toml"
    other.write_text("")
    assert level(tmp_path, DUET_RPC_CONFIG=str(other)) == "info"


def test_xdg_config_home_is_where_the_users_file_is(tmp_path: Path) -> None:
    (tmp_path / "xdg" / "duet-rpc").mkdir(parents=True)
    (tmp_path / "xdg" / "duet-rpc" / "config.toml").write_text("log.level = 'debug'\n")
    assert level(tmp_path, XDG_CONFIG_HOME=str(tmp_path / "xdg")) == "debug"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[log]\nlevle = "info"\n', ":2: unknown key 'log.levle'; did you mean 'level'?"),
        ('[lgo]\nlevel = "info"\n', ":1: unknown key 'lgo'; did you mean 'log'?"),
        ('# a\n\n[log]\nlevel = "loud"\n', ":4: log.level must be one of debug, info, warn, error"),
        ("[log]\nlevel = 3\n", ":2: log.level must be one of debug, info, warn, error"),
        ('[log]\ncolor = "no"\n', ":2: log.color must be true or false"),
        ("log = 1\n", ":1: log must be a table: [log]"),
        # The same name in two tables, in a string, in a comment, behind a comment.
        ('[methods]\nload = ["a.py"]\n[log]\nload = 3\n', ":4: unknown key 'log.load'"),
        (
            '[methods]\nload = ["""\n[log]\nlevel = 3\n"""]\n[log]\nlevel = 3\n',
            ":7: log.level must",
        ),
        ("[methods]\nload = ['''\nlevel = 3''']\n[log]\nlevel = 3\n", ":5: log.level must"),
        ("# level = 4\n[log] # level = 5\n\n  # level\n  level = 3 # 6", ":5: log.level must"),
        ('[methods]\nload = ["#", "]",\n  # level\n  "a\\"[", ]\n[log]\nlevel=3', ":6: log.level"),
        # All the forms of a key.
        ("log = { color = true, levle = 3 }\n",
         ":1: unknown key 'log.levle'; did you mean 'level'?"),
        ("\nlog.levle = 3\n", ":2: unknown key 'log.levle'; did you mean 'level'?"),
        ('\n\nlog . "levle" = 3\n', ":3: unknown key 'log.levle'; did you mean 'level'?"),
        ("[ 'log' ]\n'level' = 3\n", ":2: log.level must"),
        ("[log.level]\nx = 1\n", ":1: log.level must"),
        ("\n[[log]]\nlevel = 3\n", ":2: log must be a table: [log]"),
        ("[log]\r\n\r\nlevel = 3\r\n", ":3: log.level must"),
        ('"l\\u001b[2Jg" = 1\n', r":1: unknown key 'l\x1b[2Jg'"),
        ("[methods]\nload = [\n  'a.py',\n  3,\n]\n", ":2: methods.load must be a list"),
        ('[methods]\nload = ["a\\u0000.py"]\n', ":2: methods.load must be a list"),
        # Not TOML.
        ("[log\n", ":1: Expected ']' at the end of a table declaration: [log"),
        ("[log]\nlevel = 'info'\nlevel = 'secret'\n", ":3: Cannot overwrite a value: level\n"),
        ("[log]\n[methods]\n[log]\n", ":3: Cannot declare twice: [log]\n"),
        ('["a (b"]\n["a (b"]\n', ':2: Cannot declare twice: ["a (b"]\n'),
        ("a = {}\na.b.c = 1\n", ":2: Cannot mutate immutable namespace: a.b.c\n"),
        ("[log]\nlevel", ":2: Expected '=' after a key in a key/value pair: level"),
        ("[log]\nlevel = 'info\n", ":2: "),
        ("\ufeff[log]\n",
         ":1: begins with a byte-order mark; save it as UTF-8 without one"),
        (f"a = {'[' * 5000}", ": nested too deeply"),
        (f"a = {'9' * 5000}", ": contains a number that is too long"),
        ("backends = []\n", ":1: backends must be a table: [backends.NAME]"),
        ('[backends]\ncommand = ["x"]\n',
         ":2: command belongs to one backend: put it below [backends.NAME]"),
        ("[backends]\na = 1\n", ":2: backends.a must be a table: [backends.a]"),
        ("\n[backends.a]\n", ":2: backends.a has no command, such as"),
        ('[backends.a]\ncommand = ["x"]\n[backends.b]\ncomand = ["x"]\n',
         ":4: unknown key 'backends.b.comand'; did you mean 'command'?"),
        ('[backends.a]\ncommand = ["x"]\ntimeout = 1\n[backends.b]\ncommand = ["x"]\n'
         'timeout = "1"\n', ":6: backends.b.timeout must be a number of seconds above 0"),
        ('[backends.a]\ntimeout = true\n', ":2: backends.a.timeout must be a number of seconds"),
        ('[backends.a]\ntimeout = 0\n', ":2: backends.a.timeout must be a number of seconds"),
        ('[backends.a]\ntimeout = nan\n', ":2: backends.a.timeout must be a number of seconds"),
        ('[backends.a]\ncommand = "x -y"\n',
         ':2: backends.a.command must be a list of strings, such as ["server", "--stdio"]'),
        ('[backends.a]\ncommand = []\n', ":2: backends.a.command must be a list of strings"),
        ('[backends.a]\ncommand = ["x\\u0000"]\n', ":2: backends.a.command must be a list"),
        ('[backends.a]\ndialect = "MCP"\n',
         ":2: backends.a.dialect must be one of plain, lsp, mcp"),
        ('[backends.a]\nframing = ["lines"]\n',
         ":2: backends.a.framing must be one of content-length, lines, length-prefixed"),
        ('[backends.a]\nstart = "never"\n', ":2: backends.a.start must be one of lazy, eager"),
        ('[backends.a]\nenv = { A = 1 }\n', ":2: backends.a.env must be a table of strings"),
        ('[backends.a]\nenv = { "A=B" = "1" }\n', ":2: backends.a.env contains a name that no"),
        ('[backends.a.env]\nA = 1\n', ":1: backends.a.env must be a table of strings"),
        ('[backends.a]\ncwd = 1\n', ":2: backends.a.cwd must be the path of a folder"),
        ('[backends.a]\ncapabilities = 1\n', ":2: backends.a.capabilities must be a table"),
        ('[backends.a]\ncapabilities = { x = 1979-05-27 }\n',
         ":2: backends.a.capabilities contains a value that JSON cannot represent"),
        ('[backends.a]\ncommand = ["x"]\ncapabilities = { roots = {} }\n',
         ':3: backends.a.capabilities needs dialect = "mcp"'),
        ('[backends.gateway]\ncommand = ["x"]\n',
         ":1: backend name 'gateway' is reserved; choose another"),
        ('[backends."a/b"]\ncommand = ["x"]\n',
         ":1: invalid backend name 'a/b': use letters, digits, -, . and single _"),
        ('[backends.a__b]\ncommand = ["x"]\n', ":1: invalid backend name "),
        ('[backends.a_]\ncommand = ["x"]\n', ":1: invalid backend name "),
        ('[backends."é"]\ncommand = ["x"]\n', ":1: invalid backend name "),
        ('[backends.""]\ncommand = ["x"]\n', ":1: invalid backend name "),
        (b"\xff", "is not UTF-8"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_named_with_line_and_key(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    code, replies, log = run(request(1), env={"DUET_RPC_CONFIG": str(path)})
    assert (code, replies) == (2, [])
    assert log.startswith(f"duet-rpc: {path}")
    assert message in log
    assert "Traceback" not in log


def test_an_error_in_a_long_file_is_found_quickly(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[methods]\nload = [\n" + "'a.py',\n" * 50_000 + "]\n[log]\nlevel = 3\n")
    before = time.monotonic()
    code, _, log = run(request(1), env={"DUET_RPC_CONFIG": str(path)})
    assert code == 2
    assert ":50005: log.level must" in log
    assert time.monotonic() - before < 15


def test_a_relative_xdg_config_home_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "rel" / "duet-rpc").mkdir(parents=True)
    (tmp_path / "rel" / "duet-rpc" / "config.toml").write_text("log.level = 'debug'\n")
    assert level(tmp_path, XDG_CONFIG_HOME="rel") == "info"


def test_a_missing_file_is_reported_with_the_variable_naming_it(tmp_path: Path) -> None:
    path = tmp_path / "no.toml"
    code, _, log = run(b"", env={"DUET_RPC_CONFIG": str(path)})
    assert code == 2
    why = "cannot be read: No such file or directory"
    assert log == f"duet-rpc: {path} (named in DUET_RPC_CONFIG): {why}\n"


@pytest.mark.parametrize("name", [".duet-rpc.toml", "home/.config/duet-rpc/config.toml"])
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("folder", "is a folder"),
        ("loop", "is a broken link"),
        ("dangling", "is a broken link"),
    ],
)
def test_a_folder_or_broken_link_as_configuration_is_an_error(
    tmp_path: Path, name: str, what: str, message: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if what == "folder":
        path.mkdir()
    else:
        path.symlink_to(path if what == "loop" else "nowhere")
    env = environment(tmp_path / "home")
    for words in (["rpc"], ["config"], ["call", "version"], ["trust"]):
        if words != ["trust"] or name == ".duet-rpc.toml":
            code, out, err = invoke(words, env, cwd=tmp_path)
            assert (code, out) == (2, "")
            assert err.startswith(f"duet-rpc: {path}: {message}")
    code, out, _ = invoke(["doctor", "--json"], env, cwd=tmp_path)
    assert code == 1
    assert f"{path}: {message}" in out


@pytest.mark.parametrize("name", [".duet-rpc.toml", "home/.config/duet-rpc/config.toml"])
def test_a_link_to_dev_null_and_a_pipe_are_ignored(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("/dev/null")
    assert level(tmp_path) == "info"
    path.unlink()
    os.mkfifo(path)
    assert level(tmp_path) == "info"


def test_backends_of_both_files_count_and_the_projects_wins(tmp_path: Path) -> None:
    user = tmp_path / "home" / ".config" / "duet-rpc"
    user.mkdir(parents=True)
    (user / "config.toml").write_text(
        '[backends.a]\ncommand = ["./bin/a", "x"]\ncwd = "~/w"\n[backends.b]\ncommand = ["b"]\n'
        'dialect = "mcp"\n'
    )
    project = tmp_path / "project"
    project.mkdir()
    (project / ".duet-rpc.toml").write_text(
        '[backends.b]\ncommand = ["other"]\nenv = { A = "b c" }\ntimeout = 1.5\n'
    )
    environ = {"HOME": str(tmp_path / "home")}
    config = load(environ, str(project))
    assert str(config.backends["b"]) == "b", "the project's is not trusted"
    assert config.backends["b"].framing == "lines"
    assert "[backends] of the project's .duet-rpc.toml is skipped" in config.warnings[0]
    remember(str(project / ".duet-rpc.toml"), (project / ".duet-rpc.toml").read_text(), environ)
    config = load(environ, str(project))
    assert str(config.backends["b"]) == "A='b c' other"
    assert (config.backends["b"].framing, config.backends["b"].timeout) == ("content-length", 1.5)
    assert config.backends["a"].command == [str(user / "bin" / "a"), "x"]
    assert config.backends["a"].cwd == os.path.expanduser("~/w")
    assert config.origins["backends.b"] == str(project / ".duet-rpc.toml")
    assert config.origins["backends.a"] == str(user / "config.toml")
