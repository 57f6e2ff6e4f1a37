"""One program under test: start it, talk to it, look at it, end it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from select import POLLIN, POLLOUT, poll
from typing import TYPE_CHECKING, Any

from bench.install import BUILD
from bench.programs import Program, environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from bench.traffic import Call

PATIENCE = 120
"""Seconds that one server may take for all that is asked of it."""


def _give_up(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"no reply within {PATIENCE} s")


class Server:
    """A running program at the other end of two pipes."""

    def __init__(self, program: Program, *arguments: str) -> None:
        signal.signal(signal.SIGALRM, _give_up)
        signal.alarm(PATIENCE)  # a server that hangs does not hang the bench
        self.program = program
        self.process = subprocess.Popen(
            [*program.command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=BUILD,
            env={**environment(), **program.environ},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input = self.process.stdin.fileno()
        self._output = self.process.stdout.fileno()
        self._received, self._at = b"", 0

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

    # Talking.

    def call(self, call: Call) -> float:
        """Make one call; return the seconds that it took."""
        data = self.encode(call.body)
        before = time.perf_counter()
        self.send(data)
        body = self.receive()
        took = time.perf_counter() - before
        self._check([call], [body])
        return took

    def ask(self, method: str, params: dict[str, object]) -> Any:
        """Make a call whose result is not known; return it."""
        members = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
        self.send(self.encode(json.dumps(members).encode()))
        return json.loads(self.receive())["result"]

    def burst(self, calls: Sequence[Call]) -> float:
        """Send many calls at once; return the seconds until all are answered."""
        rest = memoryview(b"".join(self.encode(call.body) for call in calls))
        bodies: list[bytes] = []
        # Write and read at the same time: the pipe in either direction may be full.
        os.set_blocking(self._input, False)
        both = poll()
        both.register(self._input, POLLOUT)
        both.register(self._output, POLLIN)
        before = time.perf_counter()
        while len(bodies) < len(calls):
            for descriptor, _ in both.poll():
                if descriptor == self._output:
                    self._read()
                    while (body := self._take()) is not None:
                        bodies.append(body)
                else:
                    rest = rest[os.write(self._input, rest) :]
                    if not rest:
                        both.unregister(self._input)
        took = time.perf_counter() - before
        os.set_blocking(self._input, True)
        self._check(calls, bodies)
        return took

    def encode(self, body: bytes) -> bytes:
        """Put a message into a frame."""
        if self.program.framing == "lines":
            return body + b"\n"
        return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)

    def send(self, data: bytes) -> None:
        """Write all of it."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._input, view) :]

    def receive(self) -> bytes:
        """Return the body of the next reply; notifications are skipped."""
        while (body := self._take()) is None or b'"method"' in body[:60]:
            if body is None:
                self._read()
        return body

    def _read(self) -> None:
        chunk = os.read(self._output, 1 << 16)
        assert chunk, f"{self.program.name} closed its output"
        self._received = self._received[self._at :] + chunk
        self._at = 0

    def _take(self) -> bytes | None:
        """Take the next whole message off what has been received."""
        data, at = self._received, self._at
        if self.program.framing == "lines":
            start, end = at, data.find(b"\n", at)
            after = end + 1
        else:
            start = data.find(b"\r\n\r\n", at) + 4
            if start < 4:
                return None
            # Content-Length comes first; some add a Content-Type.
            end = after = start + int(data[at + 16 : start].split(None, 1)[0])
        if end < 0 or end > len(data):
            return None
        self._at = after
        return data[start:end]

    def _check(self, calls: Sequence[Call], bodies: Sequence[bytes]) -> None:
        """Make sure that every call got its own right answer."""
        if not self.program.checks:
            return
        replies = {reply["id"]: reply for reply in map(json.loads, bodies)}
        for call in calls:
            reply = replies[call.id]
            assert "result" in reply, (self.program.name, reply)
            result = reply["result"]
            if call.method == "tools/call":
                result = result["structuredContent"]["result"]
            assert call.result in (None, result), (self.program.name, call, result)

    # Looking.

    def end_input(self) -> float:
        """End the input; return the seconds until the process is gone."""
        assert self.process.stdin is not None
        before = time.perf_counter()
        self.process.stdin.close()
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        took = time.perf_counter() - before
        self.process.wait()
        return took

    @contextmanager
    def one_core(self) -> Iterator[None]:
        """Run this process and the server on one core, so that no time depends on a second one."""
        if not hasattr(os, "sched_setaffinity"):
            yield
            return
        cores = os.sched_getaffinity(0)
        tasks = [0, *map(int, os.listdir(f"/proc/{self.process.pid}/task"))]
        for task in tasks:
            os.sched_setaffinity(task, {max(cores)})
        try:
            yield
        finally:
            for task in tasks:
                os.sched_setaffinity(task, cores)


def memory_of(pid: int) -> float | None:
    """Return the resident memory of a process in MB, or None if the system does not tell."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def wakeups_of(pid: int) -> int | None:
    """Return how often the threads of a process have gone to sleep, or None, likewise."""
    total = 0
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            text = (task / "status").read_text()
            total += int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    except OSError:
        return None
    return total
