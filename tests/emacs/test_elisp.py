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
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.gateway import backend, write_config
from tests.support import RESTORE_SIGNALS

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "elisp" / "duet-rpc.el"
PYZ = ROOT / "dist" / "duet-rpc.pyz"
TESTS = ROOT / "tests" / "emacs"
EMACSEN = os.environ.get("EMACSEN", "emacs").split()

SETTLED = "(or duet-rpc--asking (null (duet-rpc--running-calls)))"
"""True where nothing will happen unless the user types."""

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


def on_terminal(
    emacs: str,
    environment: dict[str, str],
    form: str,
    *,
    setup: str = "",
    keys: Sequence[str] = (),
    settled: str = SETTLED,
    timeout: float = 120,
) -> str:
    """Evaluate a form in an Emacs on a terminal, which has an echo area; return its value.

    With `keys`, evaluate the forms in `setup`, type each of the keys when Emacs is idle and the
    form `settled` is true, and evaluate the form when that is so after the last one.
    """
    home = Path(environment["HOME"])
    value, idle, last = home / "value", home / "idle", home / "last"
    evaluate = f"""(let ((value "no value: the form failed"))
      (unwind-protect (setq value (format "%s" {form}))
        (let ((coding-system-for-write 'utf-8-unix))
          (write-region value nil "{value}" nil 'quiet))
        (kill-emacs)))"""
    if keys:
        # An idle timer fires once, even where Emacs is idle because it waits for a reply.
        evaluate = f"""(progn
          (defvar test-idle-since 0)
          (run-with-timer 0.1 0.1 (lambda ()
            (let* ((idle (float-time (or (current-idle-time) 0)))
                   (since (- (float-time) idle)))
              (when (and (> idle 0.5) (> (- since test-idle-since) 0.3) {settled})
                (setq test-idle-since since)
                (if (file-exists-p "{last}")
                    {evaluate}
                  (write-region "" nil "{idle}" nil 'quiet)))))))"""
    ours, theirs = pty.openpty()
    # A session leader that opens a terminal gets it as its controlling terminal.
    shell = f'exec "$0" "$@" < {os.ttyname(theirs)} > {os.ttyname(theirs)} 2>&1'
    arguments = ["-Q", "-nw", "-l", str(LIBRARY), "--eval", f"(progn {setup})", "--eval", evaluate]
    process = subprocess.Popen(
        ["sh", "-c", shell, emacs, *arguments],
        env={**environment, "TERM": "xterm"},
        cwd=environment["HOME"],
        start_new_session=True,
        restore_signals=RESTORE_SIGNALS,
    )
    end = time.monotonic() + timeout
    waiting = list(keys)
    while process.poll() is None:
        if time.monotonic() > end:
            process.kill()
        if waiting and idle.exists():
            idle.unlink()
            if len(waiting) == 1:
                last.touch()
            os.write(ours, waiting.pop(0).encode())
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


def meta_x(command: str) -> str:
    """Return the keys that run a command."""
    return f"\x1bx{command}\r"


@pytest.fixture
def failing(tmp_path: Path) -> str:
    """Return forms that define the command `my-run`, a method that fails in line 3 of words.py."""
    file = tmp_path / "words.py"
    file.write_text("def word_count():\n    counts = {}\n    counts['x'] += 1\nword_count()\n")
    return f"""
      (setq duet-rpc-program '("python3" "{TESTS / "fake_server.py"}"))
      (duet-rpc-define-command my-run "run" :params (:file "{file}") :wait t)
      (duet-rpc-define-command my-say "say" :wait t
        :params (:level "error" :text "words.py:3: SyntaxError: invalid syntax"))"""


def test_a_failed_method_is_reported_in_the_echo_area(
    emacs: str, environment: dict[str, str], failing: str
) -> None:
    """Run a command; the echo area says why and where it failed, and nothing pops up."""
    form = '(list (current-message) (get-buffer-window "*duet-rpc traceback*"))'
    shown = on_terminal(emacs, environment, form, setup=failing, keys=[meta_x("my-run")])
    assert re.fullmatch(
        r"\(run: KeyError: 'x' \(words\.py:3\); M-g n visits the line, "
        r"M-x duet-rpc-show-traceback shows more nil\)",
        shown,
    ), shown


def test_what_a_command_shows_outlives_the_suggestion_of_a_key(
    emacs: str, environment: dict[str, str], failing: str
) -> None:
    """Type M-x and the name of a command with a key; wait until Emacs has suggested the key."""
    setup = f"""{failing}
      (duet-rpc-define-command my-later "run"
        :params (:file "{environment["HOME"]}/no.py") :key "C-c l")"""
    form = f"""(let ((shown nil) (suggested nil))
      (setq unread-command-events (listify-key-sequence (kbd "M-x my-later RET")))
      (run-at-time 0.05 0.05 (lambda ()
        (when (string-prefix-p "You can run" (or (current-message) "")) (setq suggested t))))
      (run-at-time 6 nil (lambda () (setq shown (current-message)) (exit-recursive-edit)))
      (progn {setup} (recursive-edit))
      (list suggested (and shown (substring shown 0 22))))"""
    shown = on_terminal(emacs, environment, form)
    assert shown == "(t run: FileNotFoundError)"


def test_next_error_visits_the_line_that_failed(
    emacs: str, environment: dict[str, str], failing: str
) -> None:
    """Type M-g n after a method has failed, in whatever buffer that was."""
    form = "(list (buffer-name) (line-number-at-pos) (thing-at-point 'line t))"
    keys = [meta_x("my-run"), "\x1bgn"]
    shown = on_terminal(emacs, environment, form, setup=failing, keys=keys)
    assert shown == "(words.py 3     counts['x'] += 1\n)"


def test_frames_of_a_traceback_can_be_followed(
    emacs: str, environment: dict[str, str], failing: str
) -> None:
    """Show the traceback, move to its last frame but one and type RET."""
    form = "(list (buffer-name) (line-number-at-pos))"
    keys = [meta_x("my-run"), meta_x("duet-rpc-show-traceback"), "\x13module\r\r"]
    assert on_terminal(emacs, environment, form, setup=failing, keys=keys) == "(words.py 4)"


def test_places_in_the_log_can_be_followed(
    emacs: str, environment: dict[str, str], failing: str
) -> None:
    """Show the log, move to a link with TAB and type RET."""
    form = "(list (buffer-name) (line-number-at-pos))"
    # What was said is in the log, and the file is being visited.
    keys = [
        *("\x18\x06", "../words.py\r"),
        *(meta_x("my-say"), meta_x("duet-rpc-show-log"), "\t", "\r"),
    ]
    assert on_terminal(emacs, environment, form, setup=failing, keys=keys) == "(words.py 3)"


def test_an_error_that_is_said_does_not_replace_the_result(
    emacs: str, environment: dict[str, str], failing: str
) -> None:
    """A broken file is reported while a command runs; the echo area has both in the end."""
    form = "(list (current-message) (get-text-property 16 'face (current-message)))"
    shown = on_terminal(emacs, environment, form, setup=failing, keys=[meta_x("my-say")])
    assert shown == "(after the text\nwords.py:3: SyntaxError: invalid syntax error)"


@pytest.fixture
def endless() -> str:
    """Return forms that define the command `my-never`, a method that never returns."""
    return f"""
      (setq duet-rpc-program '("python3" "{TESTS / "fake_server.py"}"))
      (duet-rpc-define-command my-never "never")"""


def test_typing_goes_on_while_a_command_runs(
    emacs: str, environment: dict[str, str], endless: str
) -> None:
    """Run a command and type; the text is inserted, and the mode line says what is running."""
    form = """(list (buffer-substring (line-beginning-position) (point))
                    (string-match-p "\\[my-never [0-9]+s\\]" (format-mode-line mode-line-format))
                    (length (duet-rpc--running-calls)))"""
    keys = [meta_x("my-never"), "typed"]
    shown = on_terminal(emacs, environment, form, setup=endless, keys=keys, settled="t")
    assert re.fullmatch(r"\(typed \d+ 1\)", shown), shown


def test_quit_right_after_calling_cancels(
    emacs: str, environment: dict[str, str], endless: str
) -> None:
    """Run a command and type C-g; it is cancelled, and nothing in the mode line is left."""
    form = """(list (current-message) (duet-rpc--running-calls) global-mode-string
                    (key-binding (kbd "C-g")))"""
    keys = [meta_x("my-never"), "\x07"]
    shown = on_terminal(emacs, environment, form, setup=endless, keys=keys, settled="t")
    assert re.fullmatch(r"\(my-never cancelled nil (nil|\(\)) keyboard-quit\)", shown), shown


def test_quit_after_another_key_only_quits(
    emacs: str, environment: dict[str, str], endless: str
) -> None:
    """Run a command, type something else, and then C-g; the command runs on."""
    form = "(list (current-message) (length (duet-rpc--running-calls)))"
    keys = [meta_x("my-never"), "x", "\x07"]
    assert (
        on_terminal(emacs, environment, form, setup=endless, keys=keys, settled="t") == "(Quit 1)"
    )


def test_the_mode_line_shows_progress(emacs: str, environment: dict[str, str]) -> None:
    """Run a command that reports how far it is; the mode line has that in per cent."""
    setup = f"""
      (setq duet-rpc-program '("python3" "{TESTS / "fake_server.py"}"))
      (duet-rpc-define-command my-slow "progress" :params (:steps 20 :pause 0.5))"""
    form = r"""(string-match-p "\\[my-slow [0-9]+% [0-9]+s\\]"
                               (format-mode-line mode-line-format))"""
    shown = on_terminal(
        emacs, environment, form, setup=setup, keys=[meta_x("my-slow"), *"abcdef"], settled="t"
    )
    assert shown.isdigit(), shown


def test_a_result_does_not_disturb_the_minibuffer(emacs: str, environment: dict[str, str]) -> None:
    """Run a command and begin M-x; the result is inserted meanwhile, and the prompt remains."""
    setup = f"""
      (setq duet-rpc-program '("python3" "{TESTS / "fake_server.py"}"))
      (duet-rpc-define-command my-slow "progress"
        :params (:steps 2 :pause 1.2) :result insert)"""
    form = """(list (minibuffer-depth) (minibuffer-contents)
                    (with-current-buffer "*scratch*"
                      (buffer-substring (line-beginning-position) (line-end-position))))"""
    keys = [meta_x("my-slow"), "\x1bx", "abc", "d", "e", "f"]
    shown = on_terminal(emacs, environment, form, setup=setup, keys=keys, settled="t")
    assert shown == "(1 abcdef done)"


@pytest.fixture
def compiled(emacs: str, environment: dict[str, str], tmp_path: Path) -> Path:
    """Return the library, compiled."""
    copy = tmp_path / LIBRARY.name
    shutil.copy(LIBRARY, copy)
    assert run(emacs, environment, "-f", "batch-byte-compile", copy).returncode == 0
    return copy.with_suffix(".elc")


SLOW = """
import time
from duet_rpc import Context, command

@command(result="insert")
def busy(ctx: Context) -> str:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        ctx.progress(1, 2, "half")
    return "done"
"""


def test_typing_is_not_slowed_down_by_a_running_method(
    emacs: str, environment: dict[str, str], compiled: Path
) -> None:
    """Type while a method of 10 s runs; each character is on the screen at once.

    The method computes and reports progress all the time, so the mode line changes as well.
    """
    home = Path(environment["HOME"])
    methods = home / ".config" / "duet-rpc" / "methods"
    methods.mkdir(parents=True)
    (methods / "busy.py").write_text(SLOW, "utf-8")
    started, over = home / "started", home / "over"
    # The files say when Emacs is ready for the first key, and when the result has come.
    setup = f"""(progn
      (setq duet-rpc-program (getenv "DUET_RPC_PYZ"))
      (switch-to-buffer "typed")
      (duet-rpc-mode 1)
      (duet-rpc--refresh-commands)
      (run-with-timer 0.1 0.1 (lambda ()
        (cond ((and (not (file-exists-p "{started}")) (commandp 'busy))
               (when (member (getenv "CALL") '("t")) (call-interactively 'busy))
               (write-region "" nil "{started}" nil 'quiet))
              ((and (file-exists-p "{started}") (not (duet-rpc--running-calls)))
               (write-region "" nil "{over}" nil 'quiet))))))"""

    def p95(call: str) -> float:
        """Return the time to echo a key, in milliseconds, that 95 % of the keys stay below."""
        for file in (started, over):
            file.unlink(missing_ok=True)
        times: list[float] = []
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(home)
            os.execvpe(  # noqa: S606  # the child of a terminal
                emacs,
                [emacs, "-Q", "-nw", "-l", str(compiled), "--eval", setup],
                {**environment, "TERM": "xterm", "CALL": call},
            )
        try:
            output_until(terminal, started.exists)
            output_until(terminal, lambda: False, seconds=1)
            while len(times) < 150 and (call == "nil" or not over.exists()):
                begin = time.perf_counter()
                os.write(terminal, b"#")
                output_until(terminal, text=b"#")
                times.append(1000 * (time.perf_counter() - begin))
                output_until(terminal, lambda: False, seconds=0.03)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(terminal)
        assert len(times) > 40
        return sorted(times)[int(0.95 * len(times))]

    # Where other processes take the time, compare with an Emacs in which nothing runs.
    measured = [p95("t")]
    if measured[0] >= 20:
        measured += [p95("nil"), p95("t")]
        assert min(measured[0], measured[2]) < max(20, 3 * measured[1]), measured


def output_until(
    terminal: int,
    condition: Callable[[], bool] = lambda: False,
    *,
    text: bytes | None = None,
    seconds: float = 30,
) -> None:
    """Read what is written to a terminal until a condition holds, a text comes or time is up."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not condition():
        if select.select([terminal], [], [], 0.01)[0]:
            output = os.read(terminal, 65536)
            if text is not None and text in output:
                return


@pytest.fixture
def display() -> Iterator[str]:
    """Return a display of X that nobody looks at."""
    if shutil.which("Xvfb") is None:
        pytest.skip("Xvfb is not installed")
    reading, writing = os.pipe()
    command = ["Xvfb", "-displayfd", str(writing), "-nolisten", "tcp", "-noreset"]
    server = subprocess.Popen(command, pass_fds=[writing], stderr=subprocess.DEVNULL)
    os.close(writing)
    with os.fdopen(reading) as number:
        yield f":{number.readline().strip()}"
    server.terminate()
    server.wait()


def test_a_picture_is_shown_in_a_window(
    emacs: str, environment: dict[str, str], display: str
) -> None:
    """Run a command that returns an SVG; the window has the picture, in its size."""
    features = run(emacs, environment, "--eval", "(princ (featurep 'x))").stdout
    if not features.endswith("t"):
        pytest.skip(f"{emacs} opens no windows; on Debian: emacs-gtk or emacs-lucid")
    home = Path(environment["HOME"])
    methods = home / ".config" / "duet-rpc" / "methods"
    methods.mkdir(parents=True)
    (methods / "dot.py").write_text(
        "from duet_rpc import Image, command\n@command\ndef dot() -> Image:\n"
        '    return Image(\'<svg xmlns="http://www.w3.org/2000/svg" width="90" height="60">\''
        '                 \'<circle cx="30" cy="30" r="20"/></svg>\')\n',
        "utf-8",
    )
    value = home / "value"
    form = f"""(progn
      (setq duet-rpc-program (getenv "DUET_RPC_PYZ"))
      (duet-rpc-mode 1)
      (duet-rpc--refresh-commands)
      (with-timeout (40)
        (while (not (commandp 'dot)) (accept-process-output nil 0.05))
        (call-interactively 'dot)
        (while (not (get-buffer-window "*duet-rpc image*")) (accept-process-output nil 0.05)))
      (with-current-buffer "*duet-rpc image*"
        (write-region (format "%s %s" major-mode (image-size (image-get-display-property) t))
                      nil "{value}" nil 'quiet))
      (kill-emacs))"""
    subprocess.run(
        [emacs, "-Q", "-l", str(LIBRARY), "--eval", form],
        env={**environment, "DISPLAY": display},
        cwd=home,
        timeout=60,
        check=True,
        restore_signals=RESTORE_SIGNALS,
    )
    assert value.read_text("utf-8") == "image-mode (90 . 60)"


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
      (dolist (feature '( bytecomp compile comint ert jsonrpc json transient tramp python
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


def test_commands_are_autoloaded(emacs: str, environment: dict[str, str], tmp_path: Path) -> None:
    """Generate autoloads as package.el does; they define every command and load nothing."""
    copy = tmp_path / "package" / LIBRARY.name
    copy.parent.mkdir()
    shutil.copy(LIBRARY, copy)
    page = (ROOT / "docs" / "emacs.md").read_text("utf-8")
    commands = re.findall(r"`M-x (duet-rpc-[a-z-]+)`", page)
    assert "duet-rpc-status" in commands
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


# Questions of methods, at a real minibuffer.


@pytest.fixture
def asking() -> str:
    """Return forms that define the commands of asking.py, and keys to call them from anywhere."""
    return f"""
      (setq duet-rpc-program "{PYZ}" got nil
            duet-rpc-arguments '("rpc" "--methods" "{TESTS / "asking.py"}"))
      (dolist (method '("ask" "choose" "secret"))
        (global-set-key (kbd (concat "C-c " (substring method 0 1))) (lambda () (interactive)
          (duet-rpc--run method nil (lambda (result) (push result got))))))
      (global-set-key (kbd "C-c y") (lambda () (interactive)
        (duet-rpc--run "confirm" nil (lambda (result) (push result got)))))
      (global-set-key (kbd "C-c m") (lambda () (interactive)
        (duet-rpc--run "choose" '(:several t) (lambda (result) (push result got)))))
      (global-set-key (kbd "C-c r") (lambda () (interactive) (recursive-edit)))
      (duet-rpc-request "version")"""


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        pytest.param(["\x03a", "Ada\r"], "((Ada) 0 0)", id="ask"),
        pytest.param(["\x03c", "pe\t\r"], "((pear) 0 0)", id="choose"),
        pytest.param(["\x03m", "pe\t,ap\t\r"], "(([pear apple]) 0 0)", id="choose several"),
        pytest.param(["\x03y", "y"], "((t) 0 0)", id="confirm"),
        pytest.param(["\x03s", "hunter22\r"], "((8) 0 0)", id="secret"),
        pytest.param(["\x03a", "\x07"], "(nil 0 0)", id="quit"),
        pytest.param(["\x1bx", "\x03a", "Ada\r"], "((Ada) 1 0)", id="in a minibuffer"),
        pytest.param(["\x1bx", "\x03a", "\x07"], "(nil 1 0)", id="quit in a minibuffer"),
        pytest.param(["\x03r", "\x03a", "Ada\r"], "((Ada) 0 1)", id="in a recursive edit"),
        # The second call is served inside the first one's wait, so it ends first.
        pytest.param(["\x03a", "\x03y", "Ada\r", "y"], "((Ada t) 0 0)", id="two questions"),
        pytest.param(["\x13abc", "\x03a", "Ada\r"], "((Ada) 0 0)", id="in a search"),
    ],
)
def test_questions_are_answered_in_the_minibuffer(
    emacs: str, environment: dict[str, str], asking: str, keys: list[str], expected: str
) -> None:
    """Type a key that calls a method, and then the answer to its question."""
    form = """(list got (minibuffer-depth) (- (recursion-depth) (minibuffer-depth)
                (if (duet-rpc--running-calls) 100 0)))"""
    assert on_terminal(emacs, environment, form, setup=asking, keys=keys) == expected


def test_a_secret_is_in_no_buffer_and_no_history(
    emacs: str, environment: dict[str, str], asking: str
) -> None:
    """Type a password; look for it everywhere."""
    form = """(let ((found nil))
      (dolist (buffer (buffer-list))
        (with-current-buffer buffer
          (when (string-search "hunter22" (buffer-string)) (push (buffer-name) found))))
      (mapatoms (lambda (symbol)
        (when (and (string-suffix-p "history" (symbol-name symbol)) (boundp symbol)
                   (string-search "hunter22" (format "%S" (symbol-value symbol))))
          (push symbol found))))
      (list got found))"""
    setup = f"(setq duet-rpc-events-size 100000) {asking}"
    keys = ["\x03s", "hunter22\r"]
    assert on_terminal(emacs, environment, form, setup=setup, keys=keys) == "((8) nil)"


def test_a_question_appears_in_the_frame_of_its_call(
    emacs: str, environment: dict[str, str], asking: str
) -> None:
    """Call a method, go to another frame, and answer the question in the first one."""
    setup = f"""{asking}
      (global-set-key (kbd "C-c f") (lambda () (interactive)
        (duet-rpc--run "ask" nil (lambda (result) (push result got)))
        (select-frame (make-frame))))
      (add-hook 'minibuffer-setup-hook
        (lambda () (setq where (frame-parameter nil 'name))))"""
    form = "(list got where (frame-parameter nil 'name))"
    keys = ["\x03f", "Ada\r"]
    assert on_terminal(emacs, environment, form, setup=setup, keys=keys) == "((Ada) F1 F2)"


def test_a_stream_is_seen_as_it_comes(emacs: str, environment: dict[str, str], asking: str) -> None:
    """Call a generator that never ends, look at the buffer, and type C-g."""
    setup = f"""{asking}
      (global-set-key (kbd "C-c g") (lambda () (interactive)
        (duet-rpc--run "py_forever" nil 'stream)))
      (switch-to-buffer "stream")
      (run-at-time 0.2 0.2 (lambda () (with-current-buffer "stream"
        (when (and (< 20 (buffer-size)) (duet-rpc--running-calls))
          (setq got (list (eobp) (= (window-point) (point-max))))))))"""
    form = "(list got (length (duet-rpc--running-calls)))"
    keys = ["\x03g", "\x07"]
    seen = "(or got (null (duet-rpc--running-calls)))"
    shown = on_terminal(emacs, environment, form, setup=setup, keys=keys, settled=seen)
    assert shown == "((t t) 0)"
