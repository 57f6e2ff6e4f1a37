"""A project's file that names code to run: ignored until the user trusts it."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.support import SOURCE, TOP, daemon, request, run, wait_for_file
from tests.terminal import Person, environment
from tests.terminal import invoke as invoke_plain

METHOD = "from duet_rpc import method\n@method\ndef mine() -> int: return 1\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "below").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    (folder / "mine.py").write_text(METHOD)
    (folder / ".duet-rpc.toml").write_text(
        '[log]\nlevel = "debug"\n[methods]\nload = ["mine.py"]\n'
    )
    return folder


def invoke(
    project: Path, *words: str, typed: str | None = None, **more: str
) -> tuple[int, str, str]:
    """Run duet-rpc in the project; `typed` is what a person types at a terminal."""
    env = {
        **os.environ,
        "HOME": str(project.parent / "home"),
        "XDG_CONFIG_HOME": "",
        "XDG_STATE_HOME": "",
        "PYTHONPATH": str(TOP),
        **more,
    }
    main, side = os.openpty()
    if typed is not None:
        os.write(main, typed.encode())
    done = subprocess.run(
        [*SOURCE, *words],
        cwd=project / "below",
        env=env,
        stdin=subprocess.DEVNULL if typed is None else side,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    os.close(main)
    os.close(side)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def call(project: Path) -> tuple[object, str]:
    """Call the project's method; return result or error code, and the log."""
    command = ["sh", "-c", 'cd "$0" && exec "$@"', str(project / "below"), *SOURCE, "rpc"]
    env = {"HOME": str(project.parent / "home"), "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": ""}
    _, replies, log = run(request(1, "mine"), command, env)
    return replies[0].get("result", replies[0].get("error", {}).get("code")), log


def test_before_trust_only_settings_that_run_code_are_skipped(project: Path) -> None:
    result, log = call(project)
    assert result == -32601
    assert "WARN  [methods] of the project's .duet-rpc.toml is skipped" in log
    assert "run `python -m duet_rpc trust` there" in log
    assert "level debug" in log


def test_a_trusted_file_runs_until_it_changes(project: Path) -> None:
    code, out, _ = invoke(project, "trust", "--yes")
    assert code == 0
    assert str(project / "mine.py") in out
    assert call(project)[0] == 1
    assert "WARN" not in call(project)[1]
    file = project / ".duet-rpc.toml"
    file.write_text(file.read_text() + "\n")
    assert call(project)[0] == -32601
    invoke(project, "trust", "--yes")
    assert call(project)[0] == 1
    assert "no longer trusted" in invoke(project, "untrust")[1]
    assert call(project)[0] == -32601
    assert "is not trusted" in invoke(project, "untrust")[1]


def test_the_same_text_elsewhere_is_not_trusted(project: Path) -> None:
    invoke(project, "trust", "--yes")
    other = project.parent / "other"
    (other / "below").mkdir(parents=True)
    (other / "mine.py").write_text(METHOD)
    (other / ".duet-rpc.toml").write_text((project / ".duet-rpc.toml").read_text())
    assert call(other)[0] == -32601


def test_a_link_to_a_trusted_file_is_not_trusted(project: Path) -> None:
    invoke(project, "trust", "--yes")
    other = project.parent / "other"
    (other / "below").mkdir(parents=True)
    (other / "mine.py").write_text(METHOD.replace("return 1", "return 666"))
    (other / ".duet-rpc.toml").symlink_to("../project/.duet-rpc.toml")
    assert call(other)[0] == -32601
    assert call(project)[0] == 1


def test_a_folder_reached_through_a_link_is_the_same_folder(project: Path) -> None:
    invoke(project, "trust", "--yes")
    link = project.parent / "link"
    link.symlink_to("project")
    assert call(link)[0] == 1


def test_a_renamed_folder_is_not_trusted(project: Path) -> None:
    invoke(project, "trust", "--yes")
    other = project.rename(project.parent / "renamed")
    assert call(other)[0] == -32601


@pytest.mark.parametrize("name", ["a\nb", "a\u2028b", "a\\nb", "a b", "\x1b[2J", "a\rb"])
def test_a_folder_of_any_name_can_be_trusted(project: Path, name: str) -> None:
    other = project.rename(project.parent / name)
    code, out, _ = invoke(other, "trust", "--yes")
    assert code == 0
    assert "\x1b" not in out
    assert call(other)[0] == 1
    assert "\x1b" not in invoke(other, "untrust")[1] + invoke(other, "config")[1]
    assert call(other)[0] == -32601


def test_an_ascii_stdout_is_no_traceback(project: Path) -> None:
    other = project.rename(project.parent / "ordinateur-à-moi")
    for words in (["trust", "--yes"], ["config"], ["untrust"]):
        code, out, _ = invoke(other, *words, PYTHONIOENCODING="ascii")
        assert code == 0
        assert r"ordinateur-\xe0-moi" in out


def test_escape_sequences_cannot_hide_what_would_run(project: Path) -> None:
    (project / ".duet-rpc.toml").write_text('methods.load = ["evil.py\\u001b[2K\\r", "good.py"]\n')
    out = invoke(project, "trust", typed="n\n")[1]
    assert r"evil.py\x1b[2K\r" in out
    assert "\x1b" not in out


@pytest.mark.parametrize("home", ["", "relative", "no folder"])
def test_an_unwritable_record_is_named(project: Path, home: str) -> None:
    if home == "no folder":
        (project.parent / "home").rmdir()
        (project.parent / "home").write_text("")
        home = str(project.parent / "home")
        message = f"nothing was changed: cannot write {home}/.local/state/duet-rpc/trusted: Not a"
    else:
        message = "nothing was changed: no home directory for the record of trusted files; set HOME"
    for words in (["trust", "--yes"], ["untrust"]):
        code, out, err = invoke(project, *words, HOME=home)
        if words == ["trust", "--yes"]:
            assert code == 1
            assert message in err
            assert "Trusted" not in out
    assert not (project / "below" / "relative").exists()


@pytest.mark.parametrize(
    ("typed", "trusted"), [("y\n", True), ("n\n", False), ("\n", False), ("\x04", False)]
)
def test_a_person_is_asked(project: Path, typed: str, trusted: bool) -> None:
    code, out, _ = invoke(project, "trust", typed=typed)
    assert (code == 0) is trusted
    assert "Trust this file as it is now? [y/N]" in out
    assert (call(project)[0] == 1) is trusted


def test_a_file_named_by_the_user_needs_no_trust(project: Path) -> None:
    file = str(project / ".duet-rpc.toml")
    out = invoke(project, "config", DUET_RPC_CONFIG=file)[1]
    assert f"methods.load    {project / 'mine.py'}  ({file})" in out
    assert "not trusted" not in out


def test_without_a_terminal_nothing_is_trusted(project: Path) -> None:
    code, _, err = invoke(project, "trust")
    assert code == 1
    assert "not trusted: stdin or stdout is not a terminal; add --yes\n" in err
    assert call(project)[0] == -32601


def test_the_record_is_the_users_own(project: Path) -> None:
    invoke(project, "trust", "--yes")
    record = project.parent / "home" / ".local" / "state" / "duet-rpc" / "trusted"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert len(record.read_text().splitlines()) == 1
    invoke(project, "trust", "--yes")
    assert len(record.read_text().splitlines()) == 1


def test_without_a_project_file_there_is_nothing_to_trust(project: Path) -> None:
    (project / ".duet-rpc.toml").unlink()
    for word in ("trust", "untrust"):
        code, _, err = invoke(project, word)
        assert code == 1
        assert "no .duet-rpc.toml in this folder or in one above it" in err


def test_a_syntax_error_in_the_project_file_is_reported(project: Path) -> None:
    (project / ".duet-rpc.toml").write_text("[methods\n")
    for word in ("trust", "config", "rpc"):
        code, _, err = invoke(project, word)
        assert code == 2
        assert "toml:1: Expected" in err


def test_config_shows_each_setting_and_its_origin(project: Path) -> None:
    file = str(project / ".duet-rpc.toml")
    code, out, _ = invoke(project, "config", "--no-color")
    assert code == 0
    assert f"log.level       debug  ({file})" in out
    assert "log.color       false  (--no-color)" in out
    assert "log.file        stderr  (default)" in out
    assert "methods.load    nothing  (default)" in out
    assert "! [methods] of the project's .duet-rpc.toml is skipped" in out
    invoke(project, "trust", "--yes")
    out = invoke(project, "config", "--log-level", "warn")[1]
    assert "log.level       warn  (--log-level)" in out
    assert f"methods.load    {project / 'mine.py'}  ({file})" in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[methods]\nload = "x.py"\n', ":2: methods.load must be a list of files and modules"),
        ("[methods]\nload = [1]\n", ":2: methods.load must be a list of files and modules"),
        ("[methods]\nlaod = []\n", ":2: unknown key 'methods.laod'; did you mean 'load'?"),
    ],
)
def test_wrong_keys_are_named_trusted_or_not(project: Path, text: str, message: str) -> None:
    (project / ".duet-rpc.toml").write_text(text)
    code, _, err = invoke(project, "config")
    assert code == 2
    assert message in err


def test_backends_of_a_project_run_only_once_they_are_trusted(project: Path) -> None:
    ran = project / "ran"
    text = f"""[backends.evil]
command = ["sh", "-c", "touch '{ran}'; \\u001b[2K"]
env = {{ LD_PRELOAD = "x.so" }}
cwd = "below"
start = "eager"
"""
    (project / ".duet-rpc.toml").write_text(text)
    _, _, err = invoke(project, "gateway")
    assert "[backends] of the project's .duet-rpc.toml is skipped" in err
    assert invoke(project, "call", "evil/x")[0] == 1
    code, out, err = invoke(project, "gateway", "--check")
    assert (code, "is skipped" in err, "no backends are configured" in out) == (1, True, True)
    code, out, _ = invoke(project, "trust", typed="n\n")
    assert "LD_PRELOAD=x.so sh -c" in out
    assert f"cd {project / 'below'} && " in out
    assert "(backend evil)" in out
    assert "\x1b" not in out, "nothing in it takes effect on the terminal"
    assert not ran.exists()
    invoke(project, "trust", "--yes")
    assert "backends.evil" in invoke(project, "config")[1]
    command = ["sh", "-c", 'cd "$0" && exec "$@"', str(project), *SOURCE, "gateway"]
    with daemon(command, environment(project.parent / "home")):
        wait_for_file(ran)


def test_debug_of_a_project_counts_once_it_is_trusted(project: Path) -> None:
    (project / ".duet-rpc.toml").write_text("debug = true\n")
    out = invoke(project, "config")[1]
    assert "debug           false  (default)" in out
    assert "! debug of the project's .duet-rpc.toml is skipped: the file is not trusted" in out
    out = invoke(project, "trust", "--yes")[1]
    assert "show the text of errors" in out
    out = invoke(project, "config")[1]
    assert f"debug           true  ({project / '.duet-rpc.toml'})" in out


def test_a_command_too_long_to_read_cannot_be_trusted(project: Path) -> None:
    file = project / ".duet-rpc.toml"
    file.write_text(f'[backends.x]\ncommand = ["echo", "{"x" * 3980}", "rm"]\n')
    code, out, _ = invoke(project, "trust", "--yes")
    assert code == 0
    assert "xxx rm  (backend x)\n" in out, "up to the limit all of it is shown"
    for text in (
        f'[backends.x]\ncommand = ["echo", "{" " * 4000}", "rm"]\n',
        f'[backends.x]\ncommand = ["echo"]\nenv = {{ A = "{"x" * 4000}" }}\n',
    ):
        file.write_text(text)
        code, out, err = invoke(project, "trust", "--yes")
        assert (code, out) == (1, "")
        assert err.startswith("duet-rpc: nothing was changed: backends.x is 4,0")
        assert "characters long, more than can be read here (at most 4,000); put the" in err
        assert "is not trusted" in invoke(project, "config")[1]
    file.write_text(f'[methods]\nload = ["{"x" * 4000}.py"]\n')
    code, _, err = invoke(project, "trust", "--yes")
    assert code == 1
    assert "methods.load is 4,0" in err


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_streams_may_be_closed(project: Path, closed: str) -> None:
    command = f'cd {project} && exec "$0" "$@" {closed}'
    env = environment(project.parent / "home")
    with Person(["trust"], env, ["/bin/sh", "-c", command, *SOURCE]) as person:
        if closed == "2>&-":
            person.see("[y/N]")
            person.type("y\n")
        assert person.leave() == (0 if closed == "2>&-" else 1)
        if "2>&-" not in closed:
            assert "stdin or stdout is not a terminal; add --yes" in person.screen
    assert (call(project)[0] == 1) is (closed == "2>&-")
    assert invoke_plain(["trust", "--yes"], env, None, ["sh", "-c", command, *SOURCE])[0] == 0
    assert call(project)[0] == 1


def test_many_may_trust_and_untrust_at_once(project: Path) -> None:
    env = environment(project.parent / "home")
    folders = [project.parent / f"project {number}" for number in range(20)]
    for folder in folders:
        folder.mkdir()
        (folder / ".duet-rpc.toml").write_text('[methods]\nload = ["mine.py"]\n')

    def all_at_once(commands: list[tuple[Path, list[str]]]) -> None:
        running = [
            subprocess.Popen([*SOURCE, *words], cwd=folder, env=env, stdout=subprocess.DEVNULL)
            for folder, words in commands
        ]
        assert [each.wait(20) for each in running] == [0] * len(commands)

    state = project.parent / "home" / ".local" / "state" / "duet-rpc"
    all_at_once([(folder, ["trust", "--yes"]) for folder in folders])
    assert len((state / "trusted").read_text().splitlines()) == 20
    all_at_once(
        [(folder, ["untrust"]) for folder in folders[:10]]
        + [(project, ["trust", "--yes"])]
        + [(folder, ["untrust"]) for folder in folders[10:]]
    )
    (line,) = (state / "trusted").read_text().splitlines()
    assert line.endswith(f"{project}/.duet-rpc.toml")
    assert sorted(each.name for each in state.iterdir()) == ["trusted", "trusted.lock"]


def test_a_record_that_cannot_be_replaced_leaves_no_temporary_file(project: Path) -> None:
    state = project.parent / "home" / ".local" / "state" / "duet-rpc"
    (state / "trusted").mkdir(parents=True)
    code, _, err = invoke(project, "trust", "--yes")
    assert code == 1
    assert "nothing was changed" in err
    assert sorted(each.name for each in state.iterdir()) == ["trusted", "trusted.lock"]


def test_untrust_touches_no_file_whose_name_ends_alike(project: Path) -> None:
    home = str(project.parent / "home")
    other = project.parent / "a " / str(project)[1:]
    (other / "below").mkdir(parents=True)
    (other / ".duet-rpc.toml").write_text("")
    for folder in (other, project):
        invoke(folder, "trust", "--yes", HOME=home)
    assert "is no longer trusted" in invoke(project, "untrust", HOME=home)[1]
    assert "is no longer trusted" in invoke(other, "untrust", HOME=home)[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[methods]\nlaod = ["mine.py"]\n', ":2: unknown key 'methods.laod'; did you mean 'load'?"),
        ('[methods]\nload = "mine.py"\n', ":2: methods.load must be a list"),
        ('[methods]\nload = ["mine.py"]\n[log]\nlevel = 3\n', ":4: log.level must be one of"),
        ("backends = 3\n", ":1: backends must be a table"),
    ],
)
def test_a_file_with_a_wrong_key_is_refused(project: Path, text: str, message: str) -> None:
    (project / ".duet-rpc.toml").write_text(text)
    code, out, err = invoke(project, "trust", "--yes")
    assert (code, out) == (2, "")
    assert message in err
