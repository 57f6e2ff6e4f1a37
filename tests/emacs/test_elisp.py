"""duet-rpc.el in real Emacsen: every ERT test, the byte compiler, checkdoc and package-lint.

`EMACSEN` lists the Emacs commands, separated by spaces. Each file of ERT tests runs in an Emacs of
its own, with a home directory of its own.
"""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.gateway import backend, write_config
from tests.support import RESTORE_SIGNALS

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "elisp" / "duet-rpc.el"
PYZ = ROOT / "dist" / "duet-rpc.pyz"
TESTS = ROOT / "tests" / "emacs"
EMACSEN = os.environ.get("EMACSEN", "emacs").split()

FORWARDED = ("PATH", "LANG", "LC_ALL", "TMPDIR")


@pytest.fixture(params=EMACSEN)
def emacs(request: pytest.FixtureRequest) -> str:
    """Return each Emacs command; skip it if it is not installed, but fail in CI."""
    command = str(request.param)
    if shutil.which(command) is None:
        message = f"{command} is not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return command


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment with a home directory of its own."""
    kept = {name: os.environ[name] for name in FORWARDED if name in os.environ}
    path = str(Path(sys.executable).parent) + os.pathsep + kept.get("PATH", os.defpath)
    home = tmp_path / "home"
    home.mkdir()
    return {
        **kept,
        "PATH": path,
        "HOME": str(home),
        "DUET_RPC_EL": str(LIBRARY),
        "DUET_RPC_PYZ": str(PYZ),
    }


def run(
    emacs: str, environment: dict[str, str], *arguments: object, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """Run Emacs in batch mode."""
    return subprocess.run(
        [emacs, "-Q", "--batch", *map(str, arguments)],
        env=environment,
        cwd=environment["HOME"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=timeout,
        check=False,
        restore_signals=RESTORE_SIGNALS,
    )


def on_terminal(emacs: str, environment: dict[str, str], form: str, timeout: float = 60) -> str:
    """Evaluate a form in an Emacs on a terminal, which has an echo area; return its value."""
    value = Path(environment["HOME"]) / "value"
    wrapped = f"""(let ((value "no value: the form failed"))
      (unwind-protect (setq value (format "%s" {form}))
        (let ((coding-system-for-write 'utf-8-unix))
          (write-region value nil "{value}" nil 'quiet))
        (kill-emacs)))"""
    ours, theirs = pty.openpty()
    # A session leader that opens a terminal gets it as its controlling terminal.
    shell = f'exec "$0" "$@" < {os.ttyname(theirs)} > {os.ttyname(theirs)} 2>&1'
    process = subprocess.Popen(
        ["sh", "-c", shell, emacs, "-Q", "-nw", "-l", str(LIBRARY), "--eval", wrapped],
        env={**environment, "TERM": "xterm"},
        cwd=environment["HOME"],
        start_new_session=True,
        restore_signals=RESTORE_SIGNALS,
    )
    end = time.monotonic() + timeout
    while process.poll() is None:
        if time.monotonic() > end:
            process.kill()
        if select.select([ours], [], [], 0.1)[0]:
            os.read(ours, 65536)
    os.close(ours)
    os.close(theirs)
    return value.read_text("utf-8")


@pytest.mark.parametrize("file", sorted(path.name for path in TESTS.glob("*-tests.el")))
def test_ert(emacs: str, environment: dict[str, str], file: str) -> None:
    """Run a file of ERT tests; all of them must have run and passed."""
    result = run(
        emacs, environment, "-L", TESTS, "-l", TESTS / file, "-f", "ert-run-tests-batch-and-exit"
    )
    assert result.returncode == 0, result.stdout
    defined = len(re.findall(r"^\(ert-deftest ", (TESTS / file).read_text("utf-8"), re.M))
    assert defined
    assert f"Ran {defined} tests, {defined} results as expected" in result.stdout, result.stdout


def test_byte_compiles_without_warnings(
    emacs: str, environment: dict[str, str], tmp_path: Path
) -> None:
    """Compile the library with warnings as errors."""
    copy = tmp_path / LIBRARY.name
    shutil.copy(LIBRARY, copy)
    strict = "(setq byte-compile-error-on-warn t)"
    result = run(emacs, environment, "--eval", strict, "-f", "batch-byte-compile", copy)
    assert result.returncode == 0, result.stdout
    assert result.stdout == ""


def test_checkdoc_is_silent(emacs: str, environment: dict[str, str]) -> None:
    """Check docstrings and messages."""
    form = f'(checkdoc-file "{LIBRARY}")'
    result = run(emacs, environment, "-l", "checkdoc", "--eval", form)
    assert result.returncode == 0, result.stdout
    assert result.stdout == ""


def test_package_lint_is_silent(emacs: str, environment: dict[str, str]) -> None:
    """Run the checks that MELPA runs."""
    sources = sorted(Path("/usr/share/emacs/site-lisp/elpa-src").glob("*"))
    if not any(path.name.startswith("package-lint") for path in sources):
        pytest.skip("package-lint is not installed; on Debian: apt-get install elpa-package-lint")
    paths = [word for path in sources for word in ("-L", path)]
    result = run(
        emacs,
        environment,
        *paths,
        "-l",
        "package-lint",
        "-f",
        "package-lint-batch-and-exit",
        LIBRARY,
    )
    assert "Entering directory" in result.stdout, result.stdout
    lines = [
        line
        for line in result.stdout.splitlines()
        if line.startswith(LIBRARY.name)
        # Debian's package-lint is older than Emacs 28.
        and "uninstallable in all released Emacs versions" not in line
    ]
    assert lines == []


def gone(pid: int, seconds: float) -> bool:
    """Wait until a process has exited and return whether it has; a zombie counts as exited."""
    end = time.monotonic() + seconds
    status = Path(f"/proc/{pid}/status")
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
            if status.exists() and "\nState:\tZ" in status.read_text("utf-8"):
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("how", ["kill -9", "exit"])
@pytest.mark.parametrize("doing", ["nothing", "a busy loop"])
def test_emacs_leaves_no_process(
    emacs: str, environment: dict[str, str], how: str, doing: str
) -> None:
    """Kill Emacs, or exit it normally; the daemon exits too, without a prompt."""
    form = """(progn
      (setq duet-rpc-program (getenv "DUET_RPC_PYZ")
            duet-rpc-arguments (list "rpc" "--methods" (getenv "METHODS")))
      (duet-rpc-request "version")
      (when (equal (getenv "DOING") "a busy loop")
        (duet-rpc-async-request "forever" nil)
        (accept-process-output nil 0.5))
      (princ (format "%d %d\n" (emacs-pid)
                     (process-id (duet-rpc--server-process (duet-rpc--server)))))
      (read-string "")
      (save-buffers-kill-emacs))"""
    process = subprocess.Popen(
        [emacs, "-Q", "--batch", "-l", str(LIBRARY), "--eval", form],
        env={**environment, "METHODS": str(TESTS / "methods.py"), "DOING": doing},
        cwd=environment["HOME"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        restore_signals=RESTORE_SIGNALS,
    )
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        parent, daemon = map(int, process.stdout.readline().split())
        os.kill(daemon, 0)
        if how == "exit":
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.wait(10) == 0
        else:
            os.kill(parent, signal.SIGKILL)
        assert gone(daemon, 6)


@pytest.mark.parametrize("how", ["kill -9", "exit"])
def test_emacs_leaves_no_backend(
    emacs: str, environment: dict[str, str], how: str, tmp_path: Path
) -> None:
    """End Emacs while a call to a backend is pending; all processes exit, without a prompt."""
    habits = ("ignore-term", "stay")
    config = write_config(tmp_path / "c.toml", {"b": backend(*habits)})
    form = """(progn
      (setq duet-rpc-program (getenv "DUET_RPC_PYZ"))
      (princ (format "%d %d %d %d\n" (emacs-pid)
                     (duet-rpc-gateway-request "b/pid")
                     (duet-rpc-gateway-request "b/grandchild")
                     (process-id (duet-rpc--server-process (duet-rpc--server 'gateway)))))
      (duet-rpc-gateway-async-request "b/hold" nil)
      (read-string "")
      (save-buffers-kill-emacs))"""
    process = subprocess.Popen(
        [emacs, "-Q", "--batch", "-l", str(LIBRARY), "--eval", form],
        env={**environment, "DUET_RPC_CONFIG": str(config)},
        cwd=environment["HOME"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        restore_signals=RESTORE_SIGNALS,
    )
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        parent, *children = map(int, process.stdout.readline().split())
        assert len(children) == 3
        for child in children:
            os.kill(child, 0)
        if how == "exit":
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.wait(10) == 0
        else:
            os.kill(parent, signal.SIGKILL)
        for child in children:
            assert gone(child, 6)


def test_a_crash_is_reported_in_the_echo_area(emacs: str, environment: dict[str, str]) -> None:
    """Kill the daemon; the message about it stays in the echo area."""
    form = """(progn
      (setq duet-rpc-program (getenv "DUET_RPC_PYZ"))
      (duet-rpc-request "version")
      (signal-process (duet-rpc--server-process (duet-rpc--server)) 9)
      (with-timeout (20)
        (while (not (eq (duet-rpc-status) 'waiting))
          (accept-process-output nil 0.05)))
      (current-message))"""
    shown = on_terminal(emacs, environment, form)
    assert shown.startswith("duet-rpc was killed by signal 9; restarting in 1 s")


def test_doctor_in_a_plain_emacs(emacs: str, environment: dict[str, str]) -> None:
    """Run the doctor with no other library loaded; ERT would load some."""
    form = """(progn
      (setq duet-rpc-program (getenv "DUET_RPC_PYZ"))
      (duet-rpc-doctor)
      (with-timeout (20)
        (while (string-match-p " \\\\.\\\\.\\\\.$" (buffer-string))
          (accept-process-output nil 0.1)))
      (princ (buffer-string)))"""
    result = run(emacs, environment, "-l", LIBRARY, "--eval", form)
    assert result.returncode == 0, result.stdout
    assert re.search(r"^jsonrpc.el +\d+\.\d+\.\d+, /", result.stdout, re.M), result.stdout
    assert re.search(r"^Ping +[\d.]+ ms", result.stdout, re.M), result.stdout


def test_unloading_leaves_nothing(emacs: str, environment: dict[str, str]) -> None:
    """Unload the library; its daemon exits and its part of the mode line is removed."""
    form = """(progn
      (setq duet-rpc-program (getenv "DUET_RPC_PYZ"))
      (duet-rpc-mode-line-mode 1)
      (duet-rpc-request "version")
      (unload-feature 'duet-rpc t)
      (accept-process-output nil 0.1)
      (princ (format "%s %s" (process-list)
                     (string-search "duet" (format "%s" mode-line-misc-info)))))"""
    result = run(emacs, environment, "-l", LIBRARY, "--eval", form)
    assert result.returncode == 0, result.stdout
    assert result.stdout.splitlines()[-1] == "nil nil", result.stdout


def test_commands_are_autoloaded(emacs: str, environment: dict[str, str], tmp_path: Path) -> None:
    """Generate autoloads as package.el does; they define every command and load nothing."""
    copy = tmp_path / "package" / LIBRARY.name
    copy.parent.mkdir()
    shutil.copy(LIBRARY, copy)
    commands = re.findall(r"`M-x (duet-rpc-[a-z-]+)`", (ROOT / "README.md").read_text("utf-8"))
    assert "duet-rpc-version" in commands
    form = f"""(progn
      (require 'package)
      (package-generate-autoloads "duet-rpc" "{copy.parent}")
      (load "{copy.parent}/duet-rpc-autoloads.el" nil t)
      (dolist (command '({" ".join(sorted(set(commands)))}))
        (unless (commandp command) (princ (format "%s is missing\n" command))))
      (when (featurep 'jsonrpc) (princ "loaded too much")))"""
    result = run(emacs, environment, "--eval", form)
    assert result.returncode == 0, result.stdout
    assert "is missing" not in result.stdout
    assert "loaded too much" not in result.stdout
