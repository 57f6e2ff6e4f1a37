"""Configuration files: which one wins, and the errors for wrong ones."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from duet_rpc.config.files import load
from duet_rpc.config.trust import remember
from tests.machine import cpu_seconds_of_children
from tests.support import SOURCE, TOP, request, run
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


def test_the_tests_read_nothing_of_whoever_runs_them(tmp_path: Path) -> None:
    """Run a test that lists all methods, as somebody who has one and a wrong configuration."""
    for folder in ("home/.config", "xdg"):
        methods = tmp_path / folder / "duet-rpc" / "methods"
        methods.mkdir(parents=True)
        (methods / "mine.py").write_text("from duet_rpc import method\nmethod(len)\n")
        (methods.parent / "config.toml").write_text("wrong")
    test = "tests/process/test_daemon.py::test_discover_stands_in_no_list_and_describes_the_six"
    for more in ({}, {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}):
        subprocess.run(
            [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", test],
            env={**os.environ, "HOME": str(tmp_path / "home"), "DUET_RPC_CONFIG": "wrong", **more},
            cwd=TOP,
            stdout=subprocess.DEVNULL,
            timeout=60,
            check=True,
        )


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
         'timeout = "1"\n', ":6: backends.b.timeout must be a number of seconds, or 0 for none"),
        ('[backends.a]\ntimeout = true\n', ":2: backends.a.timeout must be a number of seconds"),
        ('[backends.a]\ntimeout = -1\n', ":2: backends.a.timeout must be a number of seconds"),
        ('[backends.a]\ncommand = ["x"]\ntools = ["a"]\n', ':3: backends.a.tools needs dialect'),
        ('[workers.w]\n', ":1: workers.w has no methods"),
        ('[workers.w]\nmethod = ["x.py"]\n', "did you mean 'methods'"),
        ('[workers.w]\nmethods = "x.py"\n', ":2: workers.w.methods must be a list of files"),
        ('[workers.w]\nmethods = ["x.py"]\nmemory = "2 GB"\n',
         ':3: workers.w.memory must be a size, such as "512M" or "2G"'),
        ('[workers.w]\nmethods = ["x.py"]\npython = "a"\ndependencies = []\n',
         ":3: workers.w.python and dependencies exclude each other"),
        ('[workers.main]\nmethods = ["x.py"]\n', ":1: worker name 'main' is reserved"),
        ('[workers.a]\nmethods = ["x.py"]\n[backends.a]\ncommand = ["x"]\n',
         ":3: the worker and the backend 'a' have the same name"),
        ('[backends.a]\ntimeout = nan\n', ":2: backends.a.timeout must be a number of seconds"),
        ('[backends.a]\ncommand = "x -y"\n',
         ':2: backends.a.command must be a list of strings, such as ["server", "--stdio"]'),
        ('[backends.a]\ncommand = []\n', ":2: backends.a.command must be a list of strings"),
        ('[backends.a]\ncommand = ["x\\u0000"]\n', ":2: backends.a.command must be a list"),
        ('[backends.a]\ndialect = "MCP"\n',
         ":2: backends.a.dialect must be one of plain, lsp, mcp"),
        ('[backends.a]\nframing = ["lines"]\n',
         ":2: backends.a.framing must be one of content-length, length-prefixed, lines"),
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
        ("debug = 1\n", ":1: debug must be true or false"),
        ("\n[debug]\n", ":2: debug must be true or false"),
        ("debgu = true\n", ":1: unknown key 'debgu'; did you mean 'debug'?"),
        ("[log]\ndebug = true\n", ":2: unknown key 'log.debug'"),
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
    before = cpu_seconds_of_children()
    code, _, log = run(request(1), env={"DUET_RPC_CONFIG": str(path)})
    assert code == 2
    assert ":50005: log.level must" in log
    assert cpu_seconds_of_children() - before < 15


ROOM = 512 * 1024


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a." * 32_000 + "a = 1\n", ":1: nested too deeply: at most 32 tables and arrays inside"),
        ("\n[" + "a." * 250_000 + "a]\n", ":2: nested too deeply"),
        ("x = { " + '"a" . ' * 80_000 + "a = 1 }\n", ":1: nested too deeply"),
        ("x = {\"\"\" . \"\"\" = 1}\n\ny = " + "{a.a=" * 16 + "1", ":3: nested too deeply"),
        ("a = " + "[" * 500_000, ":1: nested too deeply"),
        ("#" * (ROOM + 1), ": is larger than 524,288 bytes, the limit for a configuration file"),
        ("é" * ROOM, ": is larger than 524,288 bytes"),
        # Not deep, only long, and each of it a way to make a careless search slow.
        ('a = """' + '\n\\"""' * 100_000, ": Unterminated string"),
        ("a = '''" + "\n\\'''" * 100_000, ": Invalid statement"),
        ("".join(f"{'a.' * 25}k{i} = 1\n" for i in range(8_000)), ":1: unknown key 'a'"),
        (f"[{'a.' * 28}a]\n" + "".join(f"k{i}=1\n" for i in range(50_000)), ":1: unknown key 'a'"),
    ],
    ids=range(11),
)  # fmt: skip
def test_a_file_made_to_be_slow_is_refused_at_once(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / ".duet-rpc.toml"
    path.write_text(text)
    env = environment(tmp_path / "home")

    before = cpu_seconds_of_children()
    code, out, err = invoke(["config"], env, cwd=tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith(f"duet-rpc: {path}:")
    assert message in err
    assert cpu_seconds_of_children() - before < 5


def test_as_deep_as_anybody_needs_is_allowed(tmp_path: Path) -> None:
    depth = "{ a = " * 20 + "1" + " }" * 20
    text = f"[backends.x]\ncommand = ['x']\ndialect = 'mcp'\ncapabilities = {depth}\n"
    dots = "." * 1000
    text += f'[backends.y]\ncommand = ["x", "{dots}", \'{dots}\', """{dots}\n{dots}"""] # {dots}\n'
    (tmp_path / "x.toml").write_text(text)
    env = environment(tmp_path, DUET_RPC_CONFIG=str(tmp_path / "x.toml"))
    code, out, _ = invoke(["config"], env)
    assert code == 0
    assert "backends.y" in out


def test_a_relative_name_in_the_variable_counts_from_here(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("log.level = 'debug'\nmethods.load = ['x.py']\n")
    (tmp_path / "below").mkdir()
    env = environment(tmp_path / "home", DUET_RPC_CONFIG="a.toml")
    code, out, _ = invoke(["config"], env, cwd=tmp_path)
    assert code == 0
    assert f"methods.load    {tmp_path / 'x.py'}  (a.toml)" in out
    code, _, err = invoke(["config"], env, cwd=tmp_path / "below")
    assert code == 2
    assert err.startswith("duet-rpc: a.toml (named in DUET_RPC_CONFIG): cannot be read")


# Files that another user may have put there.

NOT_READ = "../.duet-rpc.toml is not read: "


@pytest.fixture
def below(tmp_path: Path) -> Path:
    """Return a folder of the user's below one that has a file."""
    folder = tmp_path / "open" / "mine"
    folder.mkdir(parents=True)
    (folder.parent / ".duet-rpc.toml").write_text("this is broken\n")
    (tmp_path / "home").mkdir()
    return folder


def start(folder: Path) -> tuple[int, str]:
    """Start a daemon; return its exit code and its log."""
    env = environment(folder.parent.parent / "home")
    code, _, log = invoke(["rpc"], env, cwd=folder)
    return code, log


@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o757])
def test_a_file_in_a_folder_open_to_others_is_ignored(below: Path, mode: int) -> None:
    assert start(below)[0] == 2
    below.parent.chmod(mode)
    code, log = start(below)
    assert code == 0
    (line,) = [each for each in log.splitlines() if " WARN " in each]
    assert f"{NOT_READ}other users can write to its folder. Remove it, or, if it is yours, " in line
    assert "`chmod go-w`" in line
    assert "DUET_RPC_CONFIG" in line
    assert str(below.parent) not in log


def test_a_file_open_to_others_is_not_read(below: Path) -> None:
    (below.parent / ".duet-rpc.toml").chmod(0o666)
    code, log = start(below)
    assert code == 0
    assert f"WARN  {NOT_READ}other users can write to it. " in log


@pytest.mark.parametrize("kind", ["folder", "broken link"])
def test_whatever_has_that_name_there_ends_no_start(below: Path, kind: str) -> None:
    path = below.parent / ".duet-rpc.toml"
    path.unlink()
    path.mkdir() if kind == "folder" else path.symlink_to("nowhere")
    assert start(below)[0] == 2
    below.parent.chmod(0o1777)
    assert start(below)[0] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("what", ["its folder", "it"])
def test_what_belongs_to_another_user_is_not_read(below: Path, what: str) -> None:
    path = below.parent if what == "its folder" else below.parent / ".duet-rpc.toml"
    os.chown(path, 12345, 12345)
    code, log = start(below)
    assert code == 0
    assert f"WARN  {NOT_READ}{what} belongs to another user. " in log


def test_the_search_goes_on_above_a_file_not_read(below: Path) -> None:
    below.parent.chmod(0o777)
    (below.parent.parent / ".duet-rpc.toml").write_text("log.level = 'debug'\n")
    assert "level debug" in start(below)[1]


def test_a_group_of_several_users_counts_as_others(below: Path) -> None:
    me = pwd.getpwuid(os.geteuid())
    groups = [group.gr_gid for group in grp.getgrall() if group.gr_gid != me.pw_gid]
    below.parent.chmod(0o775)
    if os.geteuid() == 0:
        os.chown(below.parent, -1, groups[0])
        assert start(below)[0] == 0
        os.chown(below.parent, -1, me.pw_gid)
    own = grp.getgrgid(me.pw_gid)
    if own.gr_name == me.pw_name and set(own.gr_mem) <= {me.pw_name}:
        assert start(below)[0] == 2, "the group of the user alone: the file is read"


def test_a_file_not_read_cannot_be_trusted(below: Path) -> None:
    below.parent.chmod(0o777)
    env = environment(below.parent.parent / "home")
    code, out, err = invoke(["trust", "--yes"], env, cwd=below)
    assert (code, out) == (1, "")
    assert err.startswith(f"duet-rpc: {NOT_READ}other users can write to its folder.")
    out = invoke(["config"], env, cwd=below)[1]
    assert f"! {NOT_READ}" in out


def test_a_file_named_by_the_user_is_always_read(below: Path) -> None:
    below.parent.chmod(0o777)
    path = below.parent / ".duet-rpc.toml"
    path.write_text("log.level = 'debug'\n")
    assert level(below, DUET_RPC_CONFIG=str(path)) == "debug"


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
