"""Run the program: at a pseudo-terminal, as a person does, or without one."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support import PATIENCE, SOURCE, TOP

WITH_DAEMON = [sys.executable, str(TOP / "tests" / "with_daemon.py")]

# Makes the pseudo-terminal the controlling terminal of a new session, then runs the program.
LOGIN = (
    "import fcntl, os, sys, termios;"
    "fcntl.ioctl(int(sys.argv[1]), termios.TIOCSCTTY, 0);"
    "os.execv(sys.argv[2], sys.argv[2:])"
)

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\r")


def environment(home: Path, **env: str) -> dict[str, str]:
    """Return an environment with this home directory and no settings of duet-rpc."""
    ours = ("DUET_RPC_", "XDG_", "NO_COLOR", "PYTHON", "COLUMNS", "LINES", "LC_", "LANG")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    fresh = {"HOME": str(home), "TERM": "xterm", "LANG": "C.UTF-8", "PYTHONPATH": str(TOP)}
    return {**kept, **fresh, **env}


def invoke(
    words: Sequence[str | Path],
    env: Mapping[str, str],
    stdin: bytes | None = None,
    command: Sequence[str | Path] = SOURCE,
    cwd: Path | None = None,
    encoding: str = "utf-8",
    tracebacks: bool = False,
) -> tuple[int, str, str]:
    """Run the program without a terminal; return exit code, stdout and stderr.

    A traceback in its stderr is an error, unless it was asked for.
    """
    done = subprocess.run(
        [str(word) for word in (*command, *words)],
        input=b"" if stdin is None else stdin,
        capture_output=True,
        env=dict(env),
        cwd=cwd,
        timeout=PATIENCE,
        check=False,
    )
    assert tracebacks or b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode, done.stdout.decode(encoding), done.stderr.decode(encoding)


class Person:
    """A person at a pseudo-terminal; `redirect` gives some streams another descriptor."""

    def __init__(
        self,
        words: Sequence[str | Path],
        env: Mapping[str, str],
        command: Sequence[str | Path] = SOURCE,
        redirect: Mapping[str, int] | None = None,
        columns: int = 80,
        tracebacks: bool = False,
    ) -> None:
        self._terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        streams: dict[str, Any] = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-c", LOGIN, str(theirs), *(str(each) for each in (*command, *words))],
            env=dict(env),
            start_new_session=True,
            pass_fds=[theirs],
            **{**streams, **(redirect or {})},
        )
        os.close(theirs)
        self.raw = ""  # all output so far
        self._seen = 0
        self._tracebacks = tracebacks

    def __enter__(self) -> Person:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._terminal)

    @property
    def screen(self) -> str:
        """All output so far, without escape sequences."""
        return ESCAPES.sub("", self.raw)

    def type(self, text: str) -> None:
        """Type a text."""
        os.write(self._terminal, text.encode())

    def see(self, text: str) -> None:
        """Wait until a text appears after the one that was seen last."""
        until = time.monotonic() + PATIENCE
        while text not in self.screen[self._seen :]:
            more = self._read(until - time.monotonic())
            assert more, f"{text!r} did not appear: {self.raw!r}"
        self._seen = self.screen.index(text, self._seen) + len(text)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._terminal], [], [], max(0.0, seconds))[0]:
            return False
        try:
            chunk = os.read(self._terminal, 65536)
        except OSError:  # EIO: on Linux, the other side is closed
            chunk = b""
        self.raw += chunk.decode()
        assert self._tracebacks or "Traceback" not in self.raw, self.raw
        return bool(chunk)

    def leave(self) -> int:
        """Wait for the exit; return the exit code."""
        until = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < until, self.raw
            self._read(0.02)
        while self._read(0.05):
            pass
        return self.process.returncode


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def is_asleep(pid: int) -> bool:
    """Return whether a process waits for something, and does not compute."""
    stat = Path(f"/proc/{pid}/stat")
    if stat.exists():
        return stat.read_text().rpartition(")")[2].split()[0] == "S"
    shown = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return shown.stdout[:1] in ("S", "I")


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    found = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    rows = [line.split() for line in found.stdout.splitlines()]
    return [int(child) for child, parent in rows if int(parent) == pid]


def is_gone(pid: int, seconds: float = 5.0) -> bool:
    """Return whether a process exits in time; kill one that does not."""
    until = time.monotonic() + seconds
    while is_alive(pid):
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            return False
        time.sleep(0.02)
    return True
