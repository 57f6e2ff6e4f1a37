"""duet-rpc.el in real Emacsen: every ERT test, the byte compiler, checkdoc and package-lint.

Each file of ERT tests runs in an Emacs of its own, with a home directory of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import string
import subprocess
from pathlib import Path

import pytest

from tests.emacs.support import (
    LIBRARY,
    ROOT,
    TESTS,
    gone,
    run,
)
from tests.gateway import backend, write_config
from tests.support import RESTORE_SIGNALS


@pytest.mark.parametrize("file", sorted(path.name for path in TESTS.glob("*-tests.el")))
def test_ert(emacs: str, environment: dict[str, str], file: str) -> None:
    """Run a file of ERT tests."""
    run_ert(emacs, environment, file)


def test_a_worker_asks_as_the_daemon_does(emacs: str, environment: dict[str, str]) -> None:
    """Run the tests of questions, Lisp, streams and messages with a worker behind the router."""
    run_ert(emacs, {**environment, "DUET_RPC_TEST_WORKER": "yes"}, "asking-tests.el")


def run_ert(emacs: str, environment: dict[str, str], file: str) -> None:
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
                     (duet-rpc-request "b/pid")
                     (duet-rpc-request "b/grandchild")
                     (process-id (duet-rpc--server-process (duet-rpc--server)))))
      (duet-rpc-async-request "b/hold" nil)
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


def test_loading_the_library_loads_little(
    emacs: str, environment: dict[str, str], compiled: Path
) -> None:
    """What only a process or some commands need is loaded by them, as is the byte compiler."""
    file = Path(environment["HOME"], ".emacs.d", "duet-rpc-commands.eld")
    file.parent.mkdir()
    file.write_text(
        '(duet-rpc-commands 2 (("C-c w" . "\\3w"))'
        ' (:name "m" :x-command (:name "my-m" :key "C-c w")))',
        "utf-8",
    )
    form = """(progn
      (duet-rpc-mode 1)
      (unless (eq 'my-m (lookup-key global-map "\\3w")) (princ "no key"))
      (dolist (feature '( bytecomp compile comint ert jsonrpc json transient tramp python eglot url
                          edmacro kmacro cl-seq cl-extra))
        (when (featurep feature) (princ (format "%s is loaded\n" feature)))))"""
    result = run(emacs, environment, "-l", compiled, "--eval", form)
    assert result.returncode == 0, result.stdout
    assert result.stdout == ""


LETTERS = string.ascii_letters[:50]


def test_the_library_is_loaded_quickly(
    emacs: str, environment: dict[str, str], compiled: Path
) -> None:
    """Load the compiled library, and turn the mode on with 50 commands of the last session."""
    commands = " ".join(
        f'(:name "m{n}" :params [(:name "t" :required t :schema (:type "string"))]'
        f' :x-command (:name "my-m{n}" :key "C-c m {key}" :sources (:t "region")))'
        for n, key in enumerate(LETTERS)
    )
    file = Path(environment["HOME"], ".emacs.d", "duet-rpc-commands.eld")
    file.parent.mkdir()
    keys = " ".join(f'("C-c m {key}" . "\3m{key}")' for key in LETTERS)
    file.write_text(f"(duet-rpc-commands 2 ({keys}) {commands})", "utf-8")
    form = f"""(let ((begin (float-time)) loaded)
      (load "{compiled}" nil t)
      (setq loaded (float-time))
      (duet-rpc-mode 1)
      (princ (format "%s %.1f %.1f" (and (eq 'my-m49 (key-binding (kbd "C-c m X")))
                                         (null (process-list)))
                     (* 1000 (- loaded begin)) (* 1000 (- (float-time) loaded)))))"""
    best = [1000.0, 1000.0]
    for _ in range(3):
        ready, *times = run(emacs, environment, "--eval", form).stdout.split()
        assert ready == "t"
        best = [min(pair) for pair in zip(best, map(float, times))]
    # On an idle machine: 15 ms and 2 ms.
    assert best[0] < 500, best
    assert best[1] < 250, best


def test_doctor_in_a_plain_emacs(emacs: str, environment: dict[str, str]) -> None:
    """Run the doctor with no other library loaded; ERT would load some."""
    form = """(progn
      (setq duet-rpc-program (getenv "DUET_RPC_PYZ"))
      (duet-rpc-doctor)
      (with-timeout (20)
        (while (string-match-p "^…" (buffer-string))
          (accept-process-output nil 0.1)))
      (princ (buffer-string)))"""
    result = run(emacs, environment, "-l", LIBRARY, "--eval", form)
    assert result.returncode == 0, result.stdout
    assert re.search(r"^✓ jsonrpc.el +\d+\.\d+\.\d+, /", result.stdout, re.M), result.stdout
    assert re.search(r"^✓ daemon +ready, .* after [\d.]+ ms", result.stdout, re.M), result.stdout


def test_unloading_leaves_nothing(emacs: str, environment: dict[str, str]) -> None:
    """Unload the library; its daemon exits, and its commands and hooks are removed."""
    form = """(progn
      (setq duet-rpc-program (getenv "DUET_RPC_PYZ"))
      (duet-rpc-mode 1)
      (duet-rpc-request "version")
      (unload-feature 'duet-rpc t)
      (accept-process-output nil 0.1)
      (princ (format "%s %s" (process-list)
                     (string-search "duet" (format "%s %s" after-save-hook
                                                   help-fns-describe-function-functions)))))"""
    result = run(emacs, environment, "-l", LIBRARY, "--eval", form)
    assert result.returncode == 0, result.stdout
    assert result.stdout.splitlines()[-1] == "nil nil", result.stdout


def test_every_command_is_in_the_manual(emacs: str, environment: dict[str, str]) -> None:
    """List what M-x offers; what only works in a buffer of duet-rpc says so by its modes."""
    form = """(mapatoms (lambda (symbol)
      (when (and (string-prefix-p "duet-rpc-" (symbol-name symbol)) (commandp symbol)
                 (not (command-modes symbol)))
        (princ (format "%s\n" symbol)))))"""
    result = run(emacs, environment, "-l", LIBRARY, "--eval", form)
    page = (ROOT / "docs" / "emacs.md").read_text("utf-8")
    table = page.split("\n## Interactively\n")[1].split("\n## ")[0]
    assert set(result.stdout.split()) == set(re.findall(r"`M-x (duet-rpc-[a-z-]+)`", table))


def test_commands_are_autoloaded(emacs: str, environment: dict[str, str], tmp_path: Path) -> None:
    """Generate autoloads as package.el does; they define every command and load nothing."""
    copy = tmp_path / "package" / LIBRARY.name
    copy.parent.mkdir()
    shutil.copy(LIBRARY, copy)
    page = (ROOT / "docs" / "emacs.md").read_text("utf-8")
    commands = re.findall(r"`M-x (duet-rpc-[a-z-]+)`", page)
    assert "duet-rpc-doctor" in commands
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
