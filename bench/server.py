"""One program under test: started, talked to, looked at, ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from select import POLLIN, POLLOUT, poll

from bench.install import BUILD
from bench.programs import Program, environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

PATIENCE = 120


def _give_up(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"no answer after {PATIENCE} s")


class Server:
    """A running program at the other end of two pipes."""

    def __init__(self, program: Program, *flags: str) -> None:
        signal.signal(signal.SIGALRM, _give_up)
        signal.alarm(PATIENCE)  # a server that hangs does not hang the bench
        self.process = subprocess.Popen(
            [*program.command, *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=BUILD,
            env={**environment(), **program.environ},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.pid = self.process.pid
        self.size = 0  # of the last reply
        self._into = self.process.stdin.fileno()
        self._out = self.process.stdout.fileno()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            if not pipe.closed:
                pipe.close()
        signal.alarm(0)

    def trip(self, data: bytes) -> None:
        """Send a small request and read its reply, which is of the size of the last one."""
        os.write(self._into, data)
        self._read_reply()

    def _read_reply(self) -> None:
        left = self.size
        while left > 0:  # some write a header and a body
            left -= len(os.read(self._out, 65536))

    def call(self, data: bytes) -> bytes:
        """Send one request of any size, read the whole reply; return its body."""
        reply = bytearray()

        def whole() -> bool:
            head, blank, body = reply.partition(b"\r\n\r\n")
            return bool(blank) and len(body) >= int(head[16:].split()[0])

        self._exchange(data, reply, whole)
        self.size = len(reply)
        body = bytes(reply.partition(b"\r\n\r\n")[2])
        assert b'"result"' in body, body[:300]
        return body

    def burst(self, data: bytes, count: int) -> None:
        """Send many requests at once and read all their replies."""
        reply = bytearray()
        expected = count * self.size
        self._exchange(data, reply, lambda: len(reply) >= expected)

    def _exchange(self, data: bytes, reply: bytearray, whole: Callable[[], bool]) -> None:
        """Write and read at the same time, as neither side may wait for the other."""
        os.set_blocking(self._into, False)
        both = poll()
        both.register(self._into, POLLOUT)
        both.register(self._out, POLLIN)
        rest = memoryview(data)
        while not whole():
            for descriptor, event in both.poll():
                if descriptor == self._out:
                    piece = os.read(self._out, 1 << 20)
                    assert piece, "the program went away"
                    reply += piece
                elif event & POLLOUT and rest:
                    rest = rest[os.write(self._into, rest) :]
                    if not rest:
                        both.unregister(self._into)
        os.set_blocking(self._into, True)

    def feed(self, data: bytes, piece: int) -> None:
        """Send one request in pieces of this size, read the reply."""
        view = memoryview(data)
        for at in range(0, len(data), piece):
            os.write(self._into, view[at : at + piece])
        self._read_reply()

    def end_input(self) -> float:
        """End the input; return the seconds until the process is gone."""
        assert self.process.stdin is not None
        before = time.perf_counter()
        self.process.stdin.close()
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        took = time.perf_counter() - before
        self.process.wait()
        return took

    def memory(self) -> float | None:
        """Return the resident memory in MB, where the system tells."""
        try:
            text = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return None
        return int(text.partition("VmRSS:")[2].split()[0]) / 1024

    def wakeups(self) -> int | None:
        """Return how often any of its threads has gone to sleep and come back."""
        total = 0
        try:
            for task in Path(f"/proc/{self.pid}/task").iterdir():
                text = (task / "status").read_text()
                total += int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
        except OSError:
            return None
        return total

    @contextmanager
    def one_core(self) -> Iterator[None]:
        """Put this process and the server on one core: no time is lost or won by a second."""
        if not hasattr(os, "sched_setaffinity"):
            yield
            return
        mine = os.sched_getaffinity(0)
        core = {max(mine)}
        tasks = [int(name) for name in os.listdir(f"/proc/{self.pid}/task")]
        for task in (0, *tasks):
            os.sched_setaffinity(task, core)
        try:
            yield
        finally:
            for task in (0, *tasks):
                os.sched_setaffinity(task, mine)
