"""`duet-rpc doctor`: its report, and problems with the daemon and with Emacs."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from duet_rpc import __version__
from tests.doctor import env, examine, put_emacs, pyz, trouble, with_fake
from tests.support import SOURCE
from tests.terminal import Person, invoke

__all__ = ["env", "pyz"]


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
