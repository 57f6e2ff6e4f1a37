"""`duet-rpc doctor`: problems with Python, the .pyz, the configuration and the log."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.doctor import env, examine, pyz, trouble
from tests.terminal import Person, invoke

__all__ = ["env", "pyz"]


# Problems with Python and the .pyz.


def old_python() -> str | None:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = sorted(root.glob("3.8.*/bin/python")) if root.is_dir() else []
    if found:
        return str(found[0])
    name = shutil.which("python3.8")
    if name is None:
        return None
    # It may be a pyenv shim for the real one.
    code = "import sys; print(sys.executable)"
    done = subprocess.run([name, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() or None


@pytest.mark.skipif(old_python() is None, reason="no Python 3.8 here")
@pytest.mark.parametrize("word", ["doctor", "rpc", "version"])
def test_a_python_that_is_too_old(word: str, env: dict[str, str]) -> None:
    code, out, err = invoke([word], env, None, [str(old_python()), "-m", "duet_rpc"])
    assert (code, out) == (1, "")
    assert err.startswith("duet-rpc needs Python 3.9 or later; this is Python 3.8.")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        (None, "no python3 on PATH"),
        ("echo 3.8.1", "python3 on PATH is 3.8.1"),
        ("exit 1", "does not run"),
    ],
)
def test_the_python3_that_the_pyz_asks_for(
    script: str | None, detail: str, env: dict[str, str], pyz: list[str | Path]
) -> None:
    python3 = Path(env["PATH"]) / "python3"
    python3.unlink()
    if script is not None:
        python3.write_text(f"#!/bin/sh\n{script}\n")
        python3.chmod(0o755)
    code, checks = examine(env, pyz)
    assert (code, trouble(checks)) == (0, {"python3": "warn"})
    assert detail in checks["python3"]["detail"]


def test_a_pyz_that_is_not_executable(env: dict[str, str], pyz: list[str | Path]) -> None:
    Path(pyz[1]).chmod(0o644)
    code, checks = examine(env, pyz)
    assert (code, trouble(checks)) == (0, {"program": "warn"})
    assert checks["program"]["fix"] == f"chmod +x {pyz[1]}"


@pytest.mark.parametrize(
    ("more", "detail"),
    [
        ({"HOME": "/proc"}, "/proc/.cache/duet-rpc is not used; unpacked into "),
        ({"XDG_CACHE_HOME": "/proc/x"}, "/proc/x/duet-rpc is not used; unpacked into "),
        ({"HOME": ""}, "no home directory; unpacked into "),
        ({"HOME": "/proc", "TMPDIR": "/proc"}, "neither /proc/.cache/duet-rpc nor /proc/duet-rpc"),
        ({"HOME": "", "TMPDIR": "/proc"}, f"/proc/duet-rpc-{os.geteuid()} cannot be used; each"),
    ],
)
def test_a_cache_that_cannot_be_used(
    more: dict[str, str], detail: str, env: dict[str, str], pyz: list[str | Path]
) -> None:
    _, checks = examine({**env, **more}, pyz)
    assert checks["cache"]["status"] == "warn"
    assert checks["cache"]["detail"].startswith(detail)


def test_a_cache_that_others_can_write_to(env: dict[str, str], pyz: list[str | Path]) -> None:
    root = Path(env["HOME"]) / ".cache" / "duet-rpc"
    root.mkdir(parents=True)
    root.chmod(0o777)
    _, checks = examine(env, pyz)
    assert trouble(checks) == {"cache": "warn"}
    assert "only you can write to" in checks["cache"]["fix"]


# Problems with the configuration and the log.


def test_a_project_that_is_not_trusted(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".duet-rpc.toml").write_text('methods.load = ["mine.py"]\n')
    code, checks = examine(env, cwd=tmp_path)
    assert (code, trouble(checks)) == (0, {"trust": "warn"})
    assert "is skipped: the file is not trusted" in checks["trust"]["detail"]
    assert "run `python -m duet_rpc trust` there" in checks["trust"]["fix"]


@pytest.mark.parametrize(
    ("home", "detail"), [("", "HOME is not set"), ("/nowhere", "is not a folder")]
)
def test_no_home_directory(home: str, detail: str, env: dict[str, str]) -> None:
    code, checks = examine({**env, "HOME": home})
    assert (code, trouble(checks)) == (0, {"home": "warn"})
    assert detail in checks["home"]["detail"]


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ('[log]\nlevle = "info"\n', ":2: unknown key 'log.levle'; did you mean 'level'?"),
        ("[log\n", ":1: Expected"),
        (b"\xff", "not UTF-8"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_configuration(
    text: str | bytes | None, detail: str, env: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "config.toml"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    code, checks = examine({**env, "DUET_RPC_CONFIG": str(path)})
    assert (code, trouble(checks)) == (1, {"config": "fail", "daemon": "fail"})
    assert checks["config"]["detail"].startswith(str(path))
    assert detail in checks["config"]["detail"]
    assert "exited with code 2 before it answered: duet-rpc: " in checks["daemon"]["detail"]


def test_a_configuration_that_is_a_folder(env: dict[str, str], tmp_path: Path) -> None:
    code, checks = examine({**env, "DUET_RPC_CONFIG": str(tmp_path)})
    assert code == 1
    assert "cannot be read: Is a directory" in checks["config"]["detail"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_configuration_that_cannot_be_read(env: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("")
    path.chmod(0)
    code, checks = examine({**env, "DUET_RPC_CONFIG": str(path)})
    assert code == 1
    assert "cannot be read: Permission denied" in checks["config"]["detail"]


def test_every_configuration_file_in_force_is_named(env: dict[str, str], tmp_path: Path) -> None:
    user = Path(env["HOME"]) / ".config" / "duet-rpc" / "config.toml"
    user.parent.mkdir(parents=True)
    project = tmp_path / ".duet-rpc.toml"
    for path in (user, project):
        path.write_text('[log]\nlevel = "info"\n')
    code, out, _ = invoke(["doctor"], env, cwd=tmp_path)
    assert code == 0
    assert f"✓ config       {user}\n✓ config       {project}\n" in out


@pytest.mark.parametrize(
    ("name", "detail", "fix"),
    [
        ("missing/duet.log", "No such file or directory", "mkdir -p "),
        ("folder", "Is a directory", "set DUET_RPC_LOG to another file"),
        ("file/duet.log", "Not a directory", "mkdir -p "),
        ("pipe", "No such device or address", "set DUET_RPC_LOG to another file"),
    ],
)
def test_a_log_that_cannot_be_written(
    name: str, detail: str, fix: str, env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    code, checks = examine({**env, "DUET_RPC_LOG": str(tmp_path / name)})
    assert (code, trouble(checks)) == (1, {"log": "fail"})
    assert detail in checks["log"]["detail"]
    assert checks["log"]["fix"].startswith(fix)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what another user would plant")
def test_a_log_that_the_daemon_would_refuse_is_refused(env: dict[str, str], tmp_path: Path) -> None:
    shared, target = tmp_path / "shared", tmp_path / "private.log"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "link").symlink_to(target)
    os.lchown(shared / "link", 12345, 12345)
    code, checks = examine({**env, "DUET_RPC_LOG": str(shared / "link")})
    assert (code, trouble(checks)) == (1, {"log": "fail"})
    detail = f"{shared / 'link'} leads through a link of another user; the log goes to stderr"
    assert checks["log"]["detail"] == detail
    assert not target.exists()


def test_checking_a_log_file_leaves_it_unchanged(env: dict[str, str], tmp_path: Path) -> None:
    path, link = tmp_path / "duet.log", tmp_path / "link"
    link.symlink_to(path)
    for name in (path, link):
        code, checks = examine({**env, "DUET_RPC_LOG": str(name)})
        assert (code, checks["log"]["detail"]) == (0, str(path))
        assert not path.exists()
    path.write_text("a line\n")
    code, _ = examine({**env, "DUET_RPC_LOG": str(path)})
    assert (code, path.read_text()) == (0, "a line\n")


def test_a_terminal_can_be_the_log(env: dict[str, str]) -> None:
    with Person(["doctor"], {**env, "DUET_RPC_LOG": "/dev/tty"}) as person:
        assert person.leave() == 0
    assert "✓ log          /dev/tty" in person.screen


def test_the_last_stderr_line_of_a_failed_daemon_is_quoted(
    env: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "bad.py"
    file.write_text("import os, sys\nsys.stderr.write('no licence\\n')\nos._exit(3)\n")
    env["DUET_RPC_LOG"] = str(tmp_path / "duet.log")
    code, out, _ = invoke(["doctor", "--methods", str(file)], env)
    assert code == 1
    assert "✗ daemon       the daemon exited with code 3 before it answered: no licence" in out
    assert not (tmp_path / "duet.log").exists()
