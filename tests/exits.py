"""The states that a daemon can be in when it is asked to leave.

`Held` starts a daemon on pipes of its own and brings it into a state. As a program this
file does the same and then waits: a parent to be killed.

python -m tests.exits STATE FOLDER
"""

from __future__ import annotations

import fcntl
import os
import selectors
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.machine import cpu_seconds
from tests.support import (
    PATIENCE,
    PYZ,
    SOURCE,
    TOP,
    request,
    take_content_length,
    wait_for_file,
    wait_until,
)
from tests.terminal import is_asleep

METHODS = TOP / "tests" / "hanging_methods.py"
WITH_METHODS = [*SOURCE, "rpc", "--methods", str(METHODS)]
FOREVER = 1000.0


def fill(writing: int) -> int:
    """Fill a pipe to the brim; return how many bytes that took."""
    os.set_blocking(writing, False)
    size = 0
    for piece in (4096, 1):
        try:
            while True:
                size += os.write(writing, b"." * piece)
        except BlockingIOError:
            pass
    os.set_blocking(writing, True)
    return size


def unread(pipe: int) -> int:
    """Return how many bytes a pipe holds, asked at either end."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4), sys.byteorder)


class Held:
    """A daemon in some state, and the other ends of its pipes."""

    def __init__(self, state: str, folder: Path, seconds: float = FOREVER) -> None:
        self.state = state
        self.folder = folder
        self.seconds = seconds  # that a running method takes
        self.filler = 0  # bytes in stdout that are not the daemon's
        self.config = -1  # our end of a configuration file that does not end
        self.complete = b""  # what completes the frame that has begun
        self.command: list[str] = WITH_METHODS
        self.mark = folder / "running"  # is made by the method when it begins
        self.env = {**os.environ, "PYTHONPATH": str(TOP), "TEST_MARK": str(self.mark)}
        theirs_in, self.stdin = os.pipe()
        self.stdout, theirs_out = os.pipe()
        self.stderr, theirs_err = os.pipe()
        if state == "stdout full":
            self.filler = fill(theirs_out)
        if state == "stderr full":
            fill(theirs_err)
        if state in STARTING:
            STARTING[state](self)
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            self.command,
            env=self.env,
            stdin=theirs_in,
            stdout=theirs_out,
            stderr=theirs_err,
            start_new_session=True,  # so that whoever is left can be found
        )
        for descriptor in (theirs_in, theirs_out, theirs_err):
            os.close(descriptor)
        self._received = bytearray()
        STATES[state](self)

    def send(self, data: bytes) -> None:
        """Write all of it; it fits into a pipe."""
        assert os.write(self.stdin, data) == len(data)

    def call(self) -> None:
        """Make one call, to know that the daemon is up."""
        self.send(request("up"))
        body = None
        while body is None:
            self._received += self._read()
            body = take_content_length(self._received)

    def _read(self) -> bytes:
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.stdout, selectors.EVENT_READ)
            assert waiting.select(PATIENCE), "no reply"
        return os.read(self.stdout, 65536)

    def run(self, method: str) -> None:
        """Have a method running."""
        self.call()
        self.send(request("running", method, None if method == "stuck" else [self.seconds]))
        wait_for_file(self.mark)
        # From the mark into the call that takes long.
        pid = self.process.pid
        enough = cpu_seconds(pid) + 0.05
        wait_until(lambda: is_asleep(pid) or cpu_seconds(pid) > enough, f"{method} is at work")

    def wait_until_read(self) -> None:
        """Wait until the daemon has read all that was sent, and has done what can be done."""
        wait_until(lambda: unread(self.stdin) == 0, "all input is read")
        self.wait_until_asleep()

    def wait_until_asleep(self) -> None:
        """Wait until the daemon waits, and so has done what it can do now."""
        wait_until(lambda: is_asleep(self.process.pid), "the daemon waits")

    def close(self, name: str) -> None:
        """Close one of our ends."""
        os.close(getattr(self, name))
        setattr(self, name, -1)

    def read_all(self) -> None:
        """Read stdout to its end."""
        while True:
            piece = self._read()
            self._received += piece
            if not piece:
                return

    def rest(self) -> tuple[bytes, str]:
        """Return what the daemon left in its pipes, after its end."""
        if self.stdout >= 0:
            self.read_all()
        os.set_blocking(self.stderr, False)
        log = b""
        while piece := os.read(self.stderr, 1 << 20):
            log += piece
        return bytes(self._received[self.filler :]), log.decode()

    def clean_up(self) -> None:
        """Leave nothing behind."""
        self.process.kill()
        self.process.wait()
        for name in ("stdin", "stdout", "stderr"):
            if getattr(self, name) >= 0:
                self.close(name)


# Before it starts.


def wait_at_the_configuration(held: Held) -> None:
    """Make the start stop at a configuration file that does not end."""
    held.env["DUET_RPC_CONFIG"] = str(held.folder / "config.toml")
    os.mkfifo(held.env["DUET_RPC_CONFIG"])


def unpack_again(held: Held) -> None:
    """Start the one file where it has never been."""
    for name in ("home", "tmp"):
        (held.folder / name).mkdir()
    held.env.update(
        HOME=str(held.folder / "home"), TMPDIR=str(held.folder / "tmp"), XDG_CACHE_HOME=""
    )
    held.env.update(PYTHONPATH="", XDG_CONFIG_HOME="")
    held.command = [sys.executable, str(PYZ), "rpc"]


STARTING = {
    "during start-up": wait_at_the_configuration,
    "during the first unpacking": unpack_again,
}

# After it has started.


def header_begun(held: Held) -> None:
    held.call()
    held.send(request("cut")[:9])
    held.complete = request("cut")[9:]
    held.wait_until_read()


def body_begun(held: Held) -> None:
    whole = request("cut")
    held.call()
    held.send(whole[:-9])
    held.complete = whole[-9:]
    held.wait_until_read()


def reply_stuck(held: Held) -> None:
    held.send(request("running"))
    held.wait_until_read()


def reply_half_written(held: Held) -> None:
    held.call()
    held.send(request("running", "big", [5_000_000]))
    wait_until(lambda: unread(held.stdout) >= 4096, "a part of the reply has come")
    held.wait_until_asleep()  # and the pipe is full


def configuration_open(held: Held) -> None:
    def is_opened() -> bool:
        with suppress(OSError):  # there is no reader before the daemon is there
            held.config = os.open(held.env["DUET_RPC_CONFIG"], os.O_WRONLY | os.O_NONBLOCK)
        return held.config >= 0

    wait_until(is_opened, "the daemon opens its configuration")
    # A signal in front of a read does not end it, in any Python: it has read an empty line,
    # and waits for the next one.
    os.write(held.config, b"\n")
    wait_until(lambda: unread(held.config) == 0, "the daemon reads its configuration")
    held.wait_until_asleep()


def unpacking_begun(held: Held) -> None:
    wait_until(lambda: any(held.folder.glob("home/.cache/duet-rpc/*.tmp")), "it is unpacked")


STATES: dict[str, Callable[[Held], None]] = {
    "idle": Held.call,
    "mid-header": header_begun,
    "mid-body": body_begun,
    "method in Python": lambda held: held.run("spin"),
    "method in time.sleep": lambda held: held.run("sleep"),
    "method in a regex": lambda held: held.run("regex"),
    "method in a C library": lambda held: held.run("libc"),
    "method stuck in C": lambda held: held.run("stuck"),
    "stdout full": reply_stuck,
    "reply half written": reply_half_written,
    "stderr full": Held.call,
    "during start-up": configuration_open,
    "during the first unpacking": unpacking_begun,
}


if __name__ == "__main__":
    daemon = Held(sys.argv[1], Path(sys.argv[2]))
    print(daemon.process.pid, flush=True)
    signal.pause()
