"""A real daemon at the end of real pipes, and the few words that tests say to it."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parent.parent
PYZ = TOP / "dist" / "duet-rpc.pyz"
SOURCE = [sys.executable, "-m", "duet_rpc"]
WITH_METHODS = [sys.executable, str(TOP / "tests" / "daemon_with_methods.py")]

RESTORE_SIGNALS = False
"""How Emacs is started: with SIGPIPE ignored, as an Emacs with a screen has it. In batch mode
writing to a process that has just died would otherwise end Emacs itself."""

PATIENCE = 20.0
"""Seconds after which a test says that nothing came. No test waits this long to pass."""


TRIES = 3
"""How often a time is measured: a busy machine makes one try slow, not each of them."""


def shortest(attempt: Callable[[], float], limit: float, tries: int = TRIES) -> float:
    """Return the shortest of some measured times; the first one below the limit is enough.

    For a promise of the form "within 2 s". What else an attempt promises it asserts itself,
    each time.
    """
    best = attempt()
    while best >= limit and tries > 1:
        tries -= 1
        best = min(best, attempt())
    return best


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait until something is true; it is an error where that takes too long."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, f"not within {PATIENCE:g} s: {what}"
        time.sleep(0.005)


def wait_for_file(path: Path) -> None:
    """Wait until a method has made a file."""
    wait_until(path.exists, f"{path.name} exists")


def wait_for_exit(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a process; return its exit code.

    `Popen.wait` with a timeout looks every 50 ms, which is too coarse for a stopwatch.
    """
    late = threading.Timer(PATIENCE, process.kill)
    late.start()
    try:
        code = process.wait()
    finally:
        late.cancel()
    assert code != -signal.SIGKILL, f"still running after {PATIENCE:g} s"
    return code


def frame(body: bytes | str | object, header: str = "Content-Length: {}\r\n\r\n") -> bytes:
    """One frame round some JSON text, or round a value that is turned into it."""
    if isinstance(body, str):
        body = body.encode()
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return header.format(len(body)).encode() + body


def request(id: object, method: str = "version", params: object = None) -> bytes:
    """One framed request."""
    message: dict[str, object] = {"jsonrpc": "2.0", "id": id, "method": method}
    if params is not None:
        message["params"] = params
    return frame(message)


def notification(method: str, params: object = None) -> bytes:
    """One framed notification."""
    return frame({"jsonrpc": "2.0", "method": method, "params": params})


def cancel(id: object) -> bytes:
    """One framed request to cancel another one."""
    return notification("$/cancelRequest", {"id": id})


CANCELLED = {"code": -32800, "message": "Request cancelled"}
"""What a request that was cancelled is answered with."""


def split_frames(data: bytes) -> list[bytes]:
    """Take replies apart as strictly as the strictest client would."""
    bodies = []
    at = 0
    while at < len(data):
        start = data.find(b"\r\n\r\n", at) + 4
        assert start > 4, f"no header ends here: {data[at : at + 200]!r}"
        name, space, digits = data[at : start - 4].partition(b" ")
        assert (name, space) == (b"Content-Length:", b" "), data[at : at + 200]
        assert digits.isdigit(), digits
        assert str(int(digits)).encode() == digits
        at = start + int(digits)
        assert at <= len(data), f"a reply was cut off: {data[start : start + 200]!r}"
        bodies.append(data[start:at])
    return bodies


def take_content_length(data: bytearray) -> bytes | None:
    """Take one reply off the beginning of what has come; return its body, None before its end."""
    end = data.find(b"\r\n\r\n")
    return None if end < 0 else _take(data, end + 4, int(data[len(b"Content-Length: ") : end]))


def take_length_prefixed(data: bytearray) -> bytes | None:
    """Do the same for four bytes of length."""
    length = int.from_bytes(data[:4], "big")
    body = _take(data, 4, length + 1) if len(data) > 4 else None
    assert body is None or body.endswith(b"\n")
    return None if body is None else body[:-1]


def take_line(data: bytearray) -> bytes | None:
    """Do the same for lines."""
    end = data.find(b"\n")
    body = None if end < 0 else _take(data, 0, end + 1)
    return None if body is None else body[:-1]


def _take(data: bytearray, start: int, length: int) -> bytes | None:
    """Take bytes and what is before them, once they are there: large ones are copied once."""
    if len(data) < start + length:
        return None
    body = bytes(data[start : start + length])
    del data[: start + length]
    return body


TAKE = {
    "content-length": take_content_length,
    "length-prefixed": take_length_prefixed,
    "lines": take_line,
}


def load(body: bytes) -> dict[str, Any]:
    """Read one reply and check what holds for all of them."""
    reply: dict[str, Any] = json.loads(body, parse_constant=_refuse)
    body.decode("utf-8")
    assert reply["jsonrpc"] == "2.0"
    assert set(reply) in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"}), reply
    if "error" in reply:
        assert {"code", "message"} <= set(reply["error"]) <= {"code", "message", "data"}
        title = {
            -32700: "Parse error",
            -32600: ("Invalid Request", "Batch requests not supported"),
            -32601: "Method not found",
            -32602: "Invalid params",
            -32603: "Internal error",
        }.get(reply["error"]["code"], "")
        assert reply["error"]["message"].startswith(title)
        assert "Traceback" not in reply["error"]["message"]
    return reply


def _refuse(name: str) -> object:
    raise AssertionError(f"a reply holds {name}")


class Client:
    """The parent process of one daemon."""

    def __init__(
        self,
        command: Sequence[str | Path] = (*SOURCE, "rpc"),
        env: Mapping[str, str] | None = None,
        framing: str = "content-length",
        **options: Any,
    ) -> None:
        environ = {**os.environ, "PYTHONPATH": str(TOP), **(env or {})}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(
            [str(word) for word in command], env=environ, bufsize=0, **{**pipes, **options}
        )
        self._buffer = bytearray()
        self._take_from = TAKE[framing]

    def send(self, data: bytes) -> None:
        """Write all of it."""
        assert self.process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) :]

    def exchange(self, data: bytes, replies: int) -> list[dict[str, Any]]:
        """Write while reading, so that neither side waits for the other."""
        assert self.process.stdin is not None
        os.set_blocking(self.process.stdin.fileno(), False)
        view, found = memoryview(data), list[dict[str, Any]]()
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.process.stdin, selectors.EVENT_WRITE)
            while len(found) < replies:
                if view and waiting.select(0):
                    view = view[os.write(self.process.stdin.fileno(), view[:65536]) :]
                body = self._take() or self._read(0.0 if view else PATIENCE)
                if body:
                    found.append(load(body))
        os.set_blocking(self.process.stdin.fileno(), True)
        return found

    def _take(self) -> bytes | None:
        return self._take_from(self._buffer)

    def _read(self, seconds: float) -> bytes | None:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.process.stdout, selectors.EVENT_READ)
            if not waiting.select(seconds):
                assert seconds == 0.0, f"no reply within {seconds} s"
                return None
        piece = os.read(self.process.stdout.fileno(), 1 << 20)
        assert piece, "the daemon closed its stdout"
        self._buffer += piece
        return self._take()

    def receive_raw(self) -> bytes:
        """Read the body of one reply."""
        until = time.monotonic() + PATIENCE
        body = self._take()
        while body is None:
            body = self._read(max(0.001, until - time.monotonic()))
        return body

    def receive(self) -> dict[str, Any]:
        """Read one reply."""
        return load(self.receive_raw())

    def call(self, method: str, params: object = None, id: object = 1) -> Any:
        """Make one call and return its result."""
        self.send(request(id, method, params))
        reply = self.receive()
        assert reply.get("id") == id
        return reply["result"]

    def silent_for(self, seconds: float) -> bool:
        """Return True where no byte of a reply comes for a while."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.process.stdout, selectors.EVENT_READ)
            return not self._buffer and not waiting.select(seconds)

    def close_input(self) -> None:
        """Let the daemon see the end of its input."""
        if self.process.stdin is not None:
            self.process.stdin.close()
            self.process.stdin = None  # or communicate() would try to flush it

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def finish(self) -> tuple[int, list[dict[str, Any]], str]:
        """End the input; return exit code, the replies still unread, and the log."""
        self.close_input()
        out, err = self.process.communicate(timeout=PATIENCE)
        bodies = split_frames(bytes(self._buffer) + (out or b""))
        return self.process.returncode, [load(body) for body in bodies], (err or b"").decode()

    def wait(self) -> tuple[int, float]:
        """Wait for the end; return exit code and how long it took."""
        start = time.monotonic()
        code = wait_for_exit(self.process)
        return code, time.monotonic() - start


@contextmanager
def daemon(
    command: Sequence[str | Path] = (*SOURCE, "rpc"),
    env: Mapping[str, str] | None = None,
    framing: str = "content-length",
    **options: Any,
) -> Iterator[Client]:
    """Run a daemon, and leave none behind; in a session of its own, no child of it either."""
    client = Client(command, env, framing, **options)
    try:
        yield client
    finally:
        if "COVERAGE_PROCESS_CONFIG" in os.environ:  # what is killed leaves no measurements
            with suppress(subprocess.TimeoutExpired):
                client.close_input()
                client.process.wait(3)
        client.process.kill()
        if options.get("start_new_session"):  # what its methods have started holds the pipes
            with suppress(ProcessLookupError):
                os.killpg(client.process.pid, signal.SIGKILL)
        client.process.communicate()


def run(
    data: bytes,
    command: Sequence[str | Path] = (*SOURCE, "rpc"),
    env: Mapping[str, str] | None = None,
) -> tuple[int, list[dict[str, Any]], str]:
    """Send some bytes and the end of input; return exit code, replies and log."""
    environ = {**os.environ, "PYTHONPATH": str(TOP), **(env or {})}
    done = subprocess.run(
        [str(word) for word in command],
        input=data,
        capture_output=True,
        env=environ,
        timeout=PATIENCE,
        check=False,
    )
    bodies = split_frames(done.stdout)
    return done.returncode, [load(body) for body in bodies], done.stderr.decode()
