"""`duet-rpc doctor`: each problem that it knows, made to happen once."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import site
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from duet_rpc import __version__
from tests.support import PYZ, SOURCE, TOP
from tests.terminal import WITH_DAEMON, Person, environment, invoke

GOOD_EMACS = 'echo "emacs 29.1"; echo "jsonrpc 1.0.17"'


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return an environment without problems, with a fake Emacs."""
    for name in ("home", "bin", "tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    for tool in ("sh", "sleep"):
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    env = environment(tmp_path / "home", PATH=str(tmp_path / "bin"), TMPDIR=str(tmp_path / "tmp"))
    put_emacs(env, GOOD_EMACS)
    return env


@pytest.fixture
def pyz(tmp_path: Path, env: dict[str, str]) -> list[str | Path]:
    """Put both files of a release into a folder."""
    env["PYTHONPATH"] = ""
    folder = tmp_path / "release"
    folder.mkdir()
    shutil.copy(PYZ, folder)
    (folder / "duet-rpc.el").write_text(f";;; duet-rpc.el --- x\n\n;; Version: {__version__}\n")
    return [sys.executable, folder / "duet-rpc.pyz"]


def put_emacs(env: dict[str, str], script: str) -> None:
    path = Path(env["PATH"]) / "emacs"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def examine(
    env: dict[str, str], command: list[str | Path] | None = None, cwd: Path | None = None
) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the checks by name."""
    code, out, err = invoke(["doctor", "--json"], env, None, command or SOURCE, cwd)
    assert err == ""
    report = json.loads(out)
    for check in report["checks"]:
        assert list(check) == ["name", "status", "detail", "fix"]
        assert (check["fix"] is None) == (check["status"] == "ok"), "a fix for each failure"
    assert report["ok"] == (code == 0)
    assert report["ok"] == all(check["status"] != "fail" for check in report["checks"])
    return code, {check["name"]: check for check in report["checks"]}


def trouble(checks: dict[str, Any]) -> dict[str, str]:
    """Return what is not ok."""
    return {name: each["status"] for name, each in checks.items() if each["status"] != "ok"}


def with_fake(daemon: str) -> list[str | Path]:
    return [*WITH_DAEMON, daemon]


# Everything works.


def test_no_problems_found(env: dict[str, str]) -> None:
    code, checks = examine(env)
    assert code == 0
    assert list(checks) == ["Python", "program", "home", "config", "log", "folder", "daemon",
                            "stdout", "methods", "Emacs", "jsonrpc.el"]  # fmt: skip
    assert trouble(checks) == {}
    assert checks["methods"]["detail"] == "no user methods"
    code, out, err = invoke(["doctor"], env)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert all(line.startswith("✓ ") for line in lines[:-2])
    assert lines[-1] == "no problems found"


def test_no_problems_with_the_pyz(env: dict[str, str], pyz: list[str | Path]) -> None:
    code, checks = examine(env, pyz)
    assert (code, trouble(checks)) == (0, {})
    assert checks["program"]["detail"] == f"{__version__}, {pyz[1]}"
    assert checks["cache"]["detail"].startswith(f"{env['HOME']}/.cache/duet-rpc/")
    assert checks["duet-rpc.el"]["detail"].startswith(__version__)
    assert {"python3", "daemon", "stdout"} <= set(checks)


def test_methods_are_counted_and_load_errors_are_named(env: dict[str, str]) -> None:
    folder = Path(env["HOME"]) / ".config" / "duet-rpc" / "methods"
    folder.mkdir(parents=True)
    (folder / "good.py").write_text("from duet_rpc import method\n@method\ndef good(): pass\n")
    code, checks = examine(env)
    assert (code, checks["methods"]["detail"]) == (0, "1 loaded")
    (folder / "bad.py").write_text("x = 1\ny = (\n")
    code, checks = examine(env)
    assert code == 1
    assert checks["methods"]["status"] == "fail"
    assert checks["methods"]["detail"].startswith("bad.py:2: SyntaxError")
    assert "fix that line" in checks["methods"]["fix"]


def test_a_worker_that_cannot_start_is_reported_once(env: dict[str, str]) -> None:
    folder = Path(env["HOME"]) / ".config" / "duet-rpc" / "methods"
    folder.mkdir(parents=True)
    text = "# /// script\n# {}\n# ///\nfrom duet_rpc import method\n@method\ndef {}(): pass\n"
    (folder / "a.py").write_text(text.format("dependancies = []", "a"))
    (folder / "b.py").write_text(text.format('dependencies = ["no-such-package"]', "b"))
    uv = Path(env["PATH"]) / "uv"
    uv.write_text("#!/bin/sh\nexit 3\n")
    uv.chmod(0o755)
    code, out, _ = invoke(["doctor", "--json"], env)
    failed = [each for each in json.loads(out)["checks"] if each["status"] == "fail"]
    assert (code, [each["name"] for each in failed]) == (1, ["worker", "methods"])
    assert failed[0]["detail"].startswith("a.py:2: unknown key 'dependancies'")
    what = "b.py: an environment with no-such-package could not be made: uv failed with exit code 3"
    assert failed[1]["detail"] == f"{what} (a call of one of its methods tries again)"
    assert failed[1]["fix"].endswith("tries again, and shows the end of the installer's output")
    problems = json.loads(invoke(["list", "--json"], env)[1])["problems"]
    assert [each.partition(":")[0] for each in problems] == ["a.py", "b.py"]


def test_a_failed_environment_is_tried_again_by_calls_alone(env: dict[str, str]) -> None:
    folder = Path(env["HOME"]) / ".config" / "duet-rpc" / "methods"
    folder.mkdir(parents=True)
    block = '# /// script\n# dependencies = ["no-such-package"]\n# ///\n'
    file = folder / "b.py"
    file.write_text(f"{block}from duet_rpc import method\n@method\ndef b(): pass\n")
    tries = Path(env["HOME"]) / "tries"
    uv = Path(env["PATH"]) / "uv"
    uv.write_text(f"#!/bin/sh\necho again >> {tries}\nexit 3\n")
    uv.chmod(0o755)
    for count, command in enumerate(["doctor", "list", "doctor"]):
        out = invoke([command], env)[1]
        assert "could not be made: uv failed with exit code 3 (a call of one of its" in out
        assert ("its environment with no-such-package could not be made" in out) == (count == 2)
        assert tries.read_text() == "again\n"
    code, _, err = invoke(["call", "b"], env)
    assert (code, tries.read_text()) == (1, "again\nagain\n")
    assert "It wrote nothing.\nTry it by hand: uv venv " in err
    # Other requirements are another environment, which may be one that can be made.
    file.write_text(file.read_text().replace("no-such-package", "none-either"))
    assert "none-either could not be made" in invoke(["list"], env)[1]
    assert tries.read_text() == "again\n" * 3


def find_pandas(env: dict[str, str], python: Path | str, module: str = "pandas") -> dict[str, str]:
    """Return the check of a file that imports a module that is not installed."""
    folder = Path(env["HOME"]) / ".config" / "duet-rpc"
    (folder / "methods").mkdir(parents=True, exist_ok=True)
    (folder / "methods" / "bad.py").write_text(f"\nimport {module}\n")
    (folder / "config.toml").write_text(f'[methods]\npython = "{python}"\n' if python else "")
    env["PYTHONPATH"] = os.pathsep.join([str(TOP), *site.getsitepackages()])
    code, checks = examine(env)
    assert code == 1
    check: dict[str, str] = checks["methods"]
    return check


@pytest.mark.parametrize(
    ("module", "package"),
    [("no_such_module", "no_such_module"), ("no_such.part", "no_such"), ("cv2", "opencv-python")],
)
def test_a_missing_module_gets_the_command_that_installs_it(
    env: dict[str, str], module: str, package: str
) -> None:
    check = find_pandas(env, "", module)
    shown = module.partition(".")[0]
    assert check["detail"] == f"bad.py:2 imports '{shown}', which is not installed"
    assert check["fix"] == f"{sys.executable} -m pip install {package}"


def test_the_command_is_for_the_python_that_runs_methods(
    env: dict[str, str], tmp_path: Path
) -> None:
    venv = tmp_path / "a venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin" / "python"
    fix = f"that Python has no pip: uv pip install --python '{python}' no_such"
    env["PYTHONPATH"] = ""
    assert find_without_pip(env, python)["fix"] == fix
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "pip.py").write_text("")
    assert find_without_pip(env, python)["fix"] == f"'{python}' -m pip install no_such"


def find_without_pip(env: dict[str, str], python: Path) -> dict[str, str]:
    """Do the same with the .pyz, which needs no package beside it."""
    folder = Path(env["HOME"]) / ".config" / "duet-rpc"
    (folder / "methods").mkdir(parents=True, exist_ok=True)
    (folder / "methods" / "bad.py").write_text("import no_such\n")
    (folder / "config.toml").write_text(f'[methods]\npython = "{python}"\n')
    _, checks = examine(env, [sys.executable, PYZ])
    check: dict[str, str] = checks["methods"]
    return check


def test_where_pip_is_forbidden_the_fix_is_an_environment(
    env: dict[str, str], tmp_path: Path
) -> None:
    python = tmp_path / "python"
    # A Python whose distribution has put the mark of PEP 668 beside its library.
    library = tmp_path / "library"
    library.mkdir()
    (library / "EXTERNALLY-MANAGED").write_text("")
    hook = (
        "import sys, sysconfig; sys.prefix = sys.base_prefix; "
        f"sysconfig.get_path = lambda name: {str(library)!r}"
    )
    (library / "sitecustomize.py").write_text(hook)
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{library}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert find_pandas(env, python, "no_such")["fix"] == (
        f"{python} -m venv ~/.local/share/duet-rpc/venv && "
        "~/.local/share/duet-rpc/venv/bin/python -m pip install no_such, "
        'then put python = "~/.local/share/duet-rpc/venv/bin/python" under [methods] into '
        "your configuration"
    )


def test_the_folder_of_methods_is_named(env: dict[str, str]) -> None:
    folder = Path(env["HOME"]) / ".config" / "duet-rpc" / "methods"
    detail = examine(env)[1]["folder"]["detail"]
    assert detail == f"{folder} does not exist; `python -m duet_rpc new NAME` makes it"
    invoke(["new", "words"], env)
    assert examine(env)[1]["folder"]["detail"] == str(folder)


def test_slow_loading_of_methods_is_no_failure(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    file.write_text("import time\ntime.sleep(1.5)\n")
    env["TIMEOUT"] = "1"
    words = ["doctor", "--json", "--methods", str(file)]
    code, out, _ = invoke(words, env, None, with_fake("real"))
    assert code == 0
    assert "0 loaded" in out


@pytest.mark.skipif(shutil.which("emacs") is None, reason="no Emacs here")
def test_the_real_emacs_reports_its_versions(env: dict[str, str]) -> None:
    _, checks = examine({**env, "PATH": os.environ["PATH"]})
    assert checks["Emacs"]["status"] == "ok"
    assert checks["jsonrpc.el"]["detail"].startswith("1.")


@pytest.mark.skipif(shutil.which("emacs") is None, reason="no Emacs here")
def test_a_newer_installed_jsonrpc_is_the_one_reported(env: dict[str, str]) -> None:
    folder = Path(env["HOME"]) / ".emacs.d" / "elpa" / "jsonrpc-9.9.9"
    folder.mkdir(parents=True)
    (folder / "jsonrpc-pkg.el").write_text('(define-package "jsonrpc" "9.9.9" "x" nil)\n')
    _, checks = examine({**env, "PATH": os.environ["PATH"]})
    assert checks["jsonrpc.el"]["detail"] == "9.9.9"


# The report.


def test_each_failure_has_its_fix_below(env: dict[str, str]) -> None:
    code, out, _ = invoke(["doctor"], {**env, "DUET_RPC_LOG": "/nowhere/duet.log", "HOME": ""})
    assert code == 1
    lines = out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("✗ log "))
    assert lines[at + 1].startswith("  fix:         mkdir -p /nowhere")
    assert any(line.startswith("! home ") for line in lines)
    assert lines[-1] == "1 failure, 1 warning"


def test_warnings_alone_are_exit_0(env: dict[str, str]) -> None:
    (Path(env["PATH"]) / "emacs").unlink()
    code, out, _ = invoke(["doctor"], env)
    assert code == 0
    assert out.endswith("0 failures, 1 warning\n")


def test_an_ascii_stdout_gets_ascii_marks(env: dict[str, str]) -> None:
    home = Path(env["HOME"]).with_name("häuser")
    home.mkdir()
    env = {**env, "PYTHONIOENCODING": "ascii", "DUET_RPC_LOG": "/nowhere/x", "HOME": str(home)}
    code, out, err = invoke(["doctor"], env)
    assert (code, err) == (1, "")
    assert out.startswith("ok Python ")
    assert "\nX log " in out
    assert "h\\xe4user" in out


def test_marks_have_colour_on_a_terminal(env: dict[str, str]) -> None:
    with Person(["doctor"], {**env, "DUET_RPC_LOG": "/nowhere/x"}) as person:
        assert person.leave() == 1
    assert "\x1b[32m✓\x1b[0m Python" in person.raw
    assert "\x1b[31m✗\x1b[0m log" in person.raw
    with Person(["doctor", "--no-color"], env) as person:
        assert person.leave() == 0
    assert "\x1b" not in person.raw


def test_a_reader_that_goes_away_is_no_traceback(env: dict[str, str]) -> None:
    command = f"{' '.join(SOURCE)} doctor | :"
    done = subprocess.run(["/bin/sh", "-c", command], env=env, capture_output=True, check=False)
    assert done.stderr == b""


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


# Problems with the daemon.


def test_the_fix_for_methods_that_end_the_daemon_shows_it(
    env: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "bad methods.py"
    file.write_text("import os\nos._exit(3)\n")
    _, out, _ = invoke(["doctor", "--json", "--methods", str(file)], env)
    (check,) = (each for each in json.loads(out)["checks"] if each["status"] == "fail")
    python, *words = shlex.split(check["fix"].split("`")[1])
    assert (python, words[:2]) == ("python", ["-m", "duet_rpc"])
    code, _, err = invoke(words[2:], env)
    assert code == 1
    assert "the daemon exited with code 3" in err


@pytest.mark.parametrize(
    ("daemon", "detail"),
    [
        ("exit", "the daemon exited with code 3 before it answered"),
        ("crash", "the daemon was killed by SIGKILL before it answered"),
        ("nowhere", "cannot start the daemon, "),
        ("deaf", "the daemon did not answer within 0.5 s"),
        ("raw", "the daemon's reply is not valid JSON"),
    ],
)
def test_a_daemon_that_does_not_answer(daemon: str, detail: str, env: dict[str, str]) -> None:
    env = {**env, "TIMEOUT": "0.5" if daemon == "deaf" else "10", "FAKE_REPLY": "x"}
    code, checks = examine(env, with_fake(daemon))
    assert (code, trouble(checks)) == (1, {"daemon": "fail"})
    assert checks["daemon"]["detail"].startswith(detail)
    assert "methods" not in checks


def test_a_daemon_of_another_version(env: dict[str, str]) -> None:
    env = {**env, "FAKE_VERSION": "0.0.1", "FAKE_JUNK": ""}
    code, checks = examine(env, with_fake("late-junk"))
    assert (code, trouble(checks)) == (1, {"daemon": "fail"})
    assert "'0.0.1'" in checks["daemon"]["detail"]


@pytest.mark.parametrize(
    ("daemon", "junk"), [("junk", ""), ("late-junk", "bye\n"), ("late-junk", "bye")]
)
def test_a_stdout_with_more_than_frames(daemon: str, junk: str, env: dict[str, str]) -> None:
    env = {**env, "FAKE_VERSION": __version__, "FAKE_JUNK": junk}
    code, checks = examine(env, with_fake(daemon))
    assert code == 1
    assert checks["stdout"]["status"] == "fail"
    assert "sitecustomize" in checks["stdout"]["fix"]
    assert checks["daemon"]["status"] == ("fail" if daemon == "junk" else "ok")


def test_a_python_that_prints_when_it_starts(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('Hello from the company', flush=True)\n")
    env["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{env['PYTHONPATH']}"
    code, out, _ = invoke(["doctor"], env)
    assert code == 1
    assert "✗ daemon       the daemon's stdout has text that is not a frame: Hello from" in out
    assert "✗ stdout " in out


def test_no_place_for_temporary_files_is_no_traceback(env: dict[str, str]) -> None:
    """TemporaryFile is replaced: Python would fall back to /tmp and the working directory."""
    code = (
        "import tempfile\n"
        "def refuse(*_):\n    raise FileNotFoundError(2, 'No usable temporary directory found')\n"
        "tempfile.TemporaryFile = refuse\n"
        "from duet_rpc.cli import main; main()\n"
    )
    exit_code, checks = examine(env, [sys.executable, "-c", code])
    assert exit_code == 1
    assert "cannot create a temporary file" in checks["daemon"]["detail"]


# Problems with Emacs.


@pytest.mark.parametrize(
    ("script", "found", "detail"),
    [
        (None, {"Emacs": "warn"}, "no emacs on PATH"),
        ('echo "emacs 27.2"; echo "jsonrpc 1.0.12"', {"Emacs": "fail"}, "27.2, "),
        ('echo "emacs 28.0.91"; echo "jsonrpc 1.0.14"', {"Emacs": "fail"}, "28.0.91, "),
        ('echo "emacs 26.1"', {"Emacs": "fail", "jsonrpc.el": "fail"}, "26.1, "),
        ("exit 127", {"Emacs": "fail"}, "does not print its version"),
        ('echo "emacs what"', {"Emacs": "fail"}, "does not print its version"),
        ("sleep 30", {"Emacs": "fail"}, "did not answer within 1 s"),
    ],
)
def test_an_emacs_that_does_not_work(
    script: str | None, found: dict[str, str], detail: str, env: dict[str, str]
) -> None:
    if script is None:
        (Path(env["PATH"]) / "emacs").unlink()
    else:
        put_emacs(env, script)
    code, checks = examine({**env, "TIMEOUT": "1"}, with_fake("methods"))
    assert (code, trouble(checks)) == (1 if script else 0, found)
    assert detail in checks["Emacs"]["detail"]


def test_an_emacs_without_jsonrpc(env: dict[str, str]) -> None:
    put_emacs(env, 'echo "emacs 30.1"')
    code, checks = examine(env)
    assert (code, trouble(checks)) == (1, {"jsonrpc.el": "fail"})
    assert "package-install jsonrpc" in checks["jsonrpc.el"]["fix"]


@pytest.mark.parametrize(
    ("text", "status", "detail"),
    [
        (None, "warn", "duet-rpc.el not found"),
        (";;; duet-rpc.el\n;; Version: 0.0.9\n", "fail", f"is 0.0.9, the .pyz is {__version__}"),
        (";;; duet-rpc.el\n", "fail", "has no version line"),
        ("", "fail", "cannot be read: Is a directory"),
    ],
)
def test_an_elisp_file_of_another_release(
    text: str | None, status: str, detail: str, env: dict[str, str], pyz: list[str | Path]
) -> None:
    path = Path(pyz[1]).with_name("duet-rpc.el")
    path.unlink()
    if text:
        path.write_text(text)
    elif text == "":
        path.mkdir()
    code, checks = examine(env, pyz)
    assert trouble(checks) == {"duet-rpc.el": status}
    assert code == (1 if status == "fail" else 0)
    assert detail in checks["duet-rpc.el"]["detail"]
    assert __version__ in checks["duet-rpc.el"]["fix"]


@pytest.mark.parametrize("beside", ["the file", "the link"])
def test_a_link_to_the_pyz_hides_no_elisp_file(
    beside: str, env: dict[str, str], pyz: list[str | Path], tmp_path: Path
) -> None:
    link = tmp_path / "bin" / "duet"
    link.symlink_to(pyz[1])
    elisp = Path(pyz[1]).with_name("duet-rpc.el")
    if beside == "the link":
        elisp = elisp.rename(tmp_path / "bin" / "duet-rpc.el")
    code, checks = examine(env, [sys.executable, link])
    assert (code, trouble(checks)) == (0, {})
    assert checks["duet-rpc.el"]["detail"] == f"{__version__}, {elisp}"
