"""Emacs for tests: in batch mode, and on a terminal with keys."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support import RESTORE_SIGNALS

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "elisp" / "duet-rpc.el"
PYZ = ROOT / "dist" / "duet-rpc.pyz"
TESTS = ROOT / "tests" / "emacs"
EMACSEN = [
    os.path.abspath(each) if "/" in each else each  # a test may run it in another folder
    for each in os.environ.get("EMACSEN", "emacs").split()
]

SETTLED = "(or duet-rpc--asking (null (duet-rpc--running-calls)))"
"""True where nothing will happen unless the user types."""

ON_TERMINAL = ("-Q", "-nw", "--eval", "(setq native-comp-deferred-compilation nil)")
"""How Emacs is started on a terminal: without compiling to native code all that it loads.

In a home directory that is new it would do so again each time, and take a CPU for minutes, also
after it was killed. For Emacs 29 and later the environment says that, too: `NO_NATIVE`.
"""
NO_NATIVE = {"EMACS_INHIBIT_AUTOMATIC_NATIVE_COMPILATION": "1"}

FORWARDED = ("PATH", "LANG", "LC_ALL", "TMPDIR")


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
    arguments = ["-l", str(LIBRARY), "--eval", f"(progn {setup})", "--eval", evaluate]
    process = subprocess.Popen(
        ["sh", "-c", shell, emacs, *ON_TERMINAL, *arguments],
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


def meta_x(command: str) -> str:
    """Return the keys that run a command."""
    return f"\x1bx{command}\r"


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
