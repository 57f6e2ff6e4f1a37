"""Configuration files: which one wins, and what is said of a wrong one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support import SOURCE, request, run


def level(cwd: Path, *flags: str, **env: str) -> str:
    """Return the level that the daemon says it logs at."""
    command = ["sh", "-c", 'cd "$0" && exec "$@"', str(cwd), *SOURCE, "rpc", *flags]
    environ = {"HOME": str(cwd / "home"), "XDG_CONFIG_HOME": "", "DUET_RPC_CONFIG": "", **env}
    _, replies, log = run(request(1) + request(2, "setLogLevel", ["info"]), command, environ)
    assert len(replies) == 2
    if " started: " not in log:
        return "above info"
    return log.split(" level ")[1].split(",")[0]


def test_flags_win_over_the_projects_file_and_that_over_the_users(tmp_path: Path) -> None:
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
        ('[log]\nlevle = "info"\n', ":2: no such key: log.levle; did you mean level?"),
        ('[lgo]\nlevel = "info"\n', ":1: no such key: lgo; did you mean log?"),
        ('# a\n\n[log]\nlevel = "loud"\n', ":4: log.level must be one of debug, info, warn, error"),
        ("[log]\nlevel = 3\n", ":2: log.level must be one of debug, info, warn, error"),
        ('[log]\ncolor = "no"\n', ":2: log.color must be true or false"),
        ("log = 1\n", ":1: log must be a table: [log]"),
        # The same name in two tables, in a string, in a comment, behind a comment.
        ('[methods]\nload = ["a.py"]\n[log]\nload = 3\n', ":4: no such key: log.load"),
        (
            '[methods]\nload = ["""\n[log]\nlevel = 3\n"""]\n[log]\nlevel = 3\n',
            ":7: log.level must",
        ),
        ("[methods]\nload = ['''\nlevel = 3''']\n[log]\nlevel = 3\n", ":5: log.level must"),
        ("# level = 4\n[log] # level = 5\n\n  # level\n  level = 3 # 6", ":5: log.level must"),
        ('[methods]\nload = ["#", "]",\n  # level\n  "a\\"[", ]\n[log]\nlevel=3', ":6: log.level"),
        # All the forms of a key.
        ("log = { color = true, levle = 3 }\n", ":1: no such key: log.levle; did you mean level?"),
        ("\nlog.levle = 3\n", ":2: no such key: log.levle; did you mean level?"),
        ('\n\nlog . "levle" = 3\n', ":3: no such key: log.levle; did you mean level?"),
        ("[ 'log' ]\n'level' = 3\n", ":2: log.level must"),
        ("[log.level]\nx = 1\n", ":1: log.level must"),
        ("\n[[log]]\nlevel = 3\n", ":2: log must be a table: [log]"),
        ("[log]\r\n\r\nlevel = 3\r\n", ":3: log.level must"),
        ('"l\\u001b[2Jg" = 1\n', r":1: no such key: l\x1b[2Jg"),
        ("[methods]\nload = [\n  'a.py',\n  3,\n]\n", ":2: methods.load must be a list"),
        # What is no TOML.
        ("[log\n", ":1: Expected ']' at the end of a table declaration: [log"),
        ("[log]\nlevel = 'info'\nlevel = 'secret'\n", ":3: Cannot overwrite a value: level\n"),
        ("[log]\n[methods]\n[log]\n", ":3: Cannot declare ('log',) twice: [log]"),
        ("[log]\nlevel", ":2: Expected '=' after a key in a key/value pair: level"),
        ("[log]\nlevel = 'info\n", ":2: "),
        ("\ufeff[log]\n", ":1: Invalid statement"),
        (f"a = {'[' * 5000}", ": nested too deeply"),
        (f"a = {'9' * 5000}", ": it holds a number that is too long"),
        (b"\xff", "not UTF-8"),
    ],
)
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


def test_a_long_file_is_searched_in_no_time(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[methods]\nload = [\n" + "'a.py',\n" * 50_000 + "]\n[log]\nlevel = 3\n")
    before = time.monotonic()
    code, _, log = run(request(1), env={"DUET_RPC_CONFIG": str(path)})
    assert code == 2
    assert ":50005: log.level must" in log
    assert time.monotonic() - before < 15


def test_a_relative_folder_in_the_environment_is_no_folder_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "rel" / "duet-rpc").mkdir(parents=True)
    (tmp_path / "rel" / "duet-rpc" / "config.toml").write_text("log.level = 'debug'\n")
    assert level(tmp_path, XDG_CONFIG_HOME="rel") == "info"


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    code, _, log = run(b"", env={"DUET_RPC_CONFIG": str(tmp_path / "no.toml")})
    assert code == 2
    assert "can't be read: No such file or directory" in log
