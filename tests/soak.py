"""Soak and chaos: one daemon, mixed requests, a tenth of them hostile, and trouble round it.

python -m tests.soak [--minutes M] [--seed N] [--trouble NAME]

Signals that must not end it, pauses with SIGSTOP, a client that writes and reads in fits, a
log that can't be written, descriptors nearly gone, a clock that is set back. At the end
every request has been answered exactly once and in order, neither memory nor descriptors
have grown, and it leaves with 0. The seed is printed; with it a run sends the same bytes.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.hostile import ROWS, Answer, Error
from tests.support import SOURCE, TOP, frame, load, request, take_content_length

HOSTILE = [row for row in ROWS if len(row.data) < 20_000]
HARMLESS = [
    signal.SIGWINCH, signal.SIGCONT, signal.SIGURG, signal.SIGCHLD, signal.SIGPIPE,
]  # fmt: skip
READ_SIZES = [1 << 20] * 8 + [999, 7]
WRITE_SIZES = [65536] * 16 + [4096, 100, 7, 1]
AHEAD = 300_000  # bytes that may be on their way
PATIENCE = 30.0  # seconds without a reply
WARM = 2500  # replies until all that it loads is loaded
GROWTH = 8_000_000  # bytes of memory that are no growth

FAKETIME = [*Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")]


def plain(id: object, method: str) -> bytes:
    """Frame a request as most clients write it, in the shortest form."""
    return frame(f'{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}')


class Soak:
    """A client that misbehaves in every way but one: it knows what must come back."""

    def __init__(self, seed: int, trouble: str, folder: Path) -> None:
        self.chance = random.Random(seed)  # noqa: S311
        self.folder = folder
        self.trouble = trouble
        self.sent = self.hostile = self.received = self.signals = 0
        self.expected: deque[tuple[str, Error | Answer]] = deque()
        self._out = bytearray()
        self._in = bytearray()
        self._read_at = self._write_at = 0.0
        self._stopped_until = self._trouble_at = 0.0
        self._in_step = 0  # requests still to be sent one at a time
        self._memory: list[int] = []
        self._descriptors: list[int] = []
        self.process = self._start()
        self._let_it_settle()
        for pipe in (self.process.stdin, self.process.stdout):
            os.set_blocking(pipe.fileno(), False)  # type: ignore[union-attr]
        self.sent += 1
        self._add_much(self.sent)  # what memory that takes is no growth later

    def _let_it_settle(self) -> None:
        """Wait for the first reply, and for what is imported when idle: that is no growth."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(request("first"))
        os.read(self.process.stdout.fileno(), 4096)
        time.sleep(0.5)

    def _start(self) -> subprocess.Popen[bytes]:
        env = {**os.environ, "PYTHONPATH": str(TOP), "DUET_RPC_LOG": "", "DUET_RPC_CONFIG": ""}
        env["XDG_CONFIG_HOME"] = str(self.folder)  # nobody's own methods
        log = self.folder / "logs" / "duet.log"
        log.parent.mkdir()
        limit: Callable[[], None] | None = None
        stderr: Any = (self.folder / "stderr").open("wb")
        if self.trouble == "log in trouble":
            env["DUET_RPC_LOG"] = str(log)
        elif self.trouble == "disk full":
            env["DUET_RPC_LOG"] = "/dev/full"
        elif self.trouble == "stderr never read":
            stderr = subprocess.PIPE
        elif self.trouble == "few descriptors":
            env["DUET_RPC_LOG"] = str(log)

            def limit() -> None:
                # It keeps twelve open; what is left is for one import, or one log file, at a time.
                resource.setrlimit(resource.RLIMIT_NOFILE, (14, 14))

        elif self.trouble == "clock set back":
            self._set_clock(0)
            env.update(
                LD_PRELOAD=str(FAKETIME[0]),
                FAKETIME_TIMESTAMP_FILE=str(self.folder / "clock"),
                FAKETIME_NO_CACHE="1",
                DONT_FAKE_MONOTONIC="1",
            )
        return subprocess.Popen(
            [*SOURCE, "rpc", "--log-level", "debug", "--methods", "system",
             "--methods", str(TOP / "tests" / "hanging_methods.py")],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, bufsize=0,
            preexec_fn=limit,
        )  # fmt: skip

    # What is sent, and what must come back.

    def _add_some(self) -> None:
        if self._in_step:
            if not self._out and not self.expected:
                self._in_step -= 1
                self._add()
            return
        while len(self._out) < AHEAD // 3 and len(self.expected) < 2000:
            self._add()
        if self.chance.random() < 0.002:
            self._in_step = self.chance.randrange(200)

    def _add(self) -> None:
        self.sent += 1
        id = self.sent
        draw = self.chance.random()
        if draw < 0.2:  # with what `_add_much` adds, a tenth of all
            self.hostile += 1
            row = self.chance.choice(HOSTILE)
            self._out += row.data
            self.expected += [(row.name, each) for each in row.expected]
            self._expect(Answer(id), request(id))
        elif draw < 0.23:
            self._expect(Error(-32601, id), request(id, "nonsense", [id]))
        elif draw < 0.26:
            self._expect(Error(-32602, id), request(id, "setLogLevel", {"level": "loud"}))
        elif draw < 0.27:
            level = self.chance.choice(["debug", "info"])
            self._expect(Answer(id), request(id, "setLogLevel", {"level": level}))
        elif draw < 0.3:
            self._out += frame({"jsonrpc": "2.0", "method": "nonsense"})  # no reply
        elif draw < 0.305:
            # libfaketime makes sleeping fail at times.
            slow = "spin" if self.trouble == "clock set back" else "sleep"
            slow = self.chance.choice([slow, "deep"])
            self._expect(Answer(id), request(id, slow, [self.chance.uniform(0.0, 0.12)]))
        elif draw < 0.306:
            self._add_much(id)
        elif draw < 0.35:
            size = int(self.chance.paretovariate(0.5)) % 200_000
            self._expect(Answer(id), request(id, "system.echo", {"message": "é" * size}))
        else:
            name = self.chance.choice(["version", "listMethods", "describeMethods", "system.ping"])
            self._expect(Answer(id), plain(id, name) if id % 2 else request(id, name))

    def _add_much(self, id: int) -> None:
        """Add one large request, and the same small one many times in a row."""
        text = "to be\n" * self.chance.randrange(100_000, 200_000)
        self._expect(Answer(id), request(id, "version", {"_meta": {"text": text}}))
        for _ in range(self.chance.randrange(1500)):
            self.sent += 1
            self._expect(Answer(self.sent), plain(self.sent, "version"))

    def _expect(self, answer: Error | Answer, data: bytes) -> None:
        self.expected.append((f"request {self.sent}", answer))
        self._out += data

    def _check(self) -> None:
        while True:
            body = take_content_length(self._in)
            if body is None:
                return
            reply = load(body)
            assert self.expected, f"a reply that nobody waits for: {body[:200]!r}"
            name, wanted = self.expected.popleft()
            error = reply.get("error")
            given: Error | Answer = Answer(reply["id"])
            if error is not None:
                given = Error(error["code"], reply["id"], (error.get("data") or {}).get("reason"))
            assert given == wanted, f"{name}: {given} instead of {wanted}"
            self.received += 1

    # Trouble.

    def _make_trouble(self, now: float) -> None:
        pid = self.process.pid
        if self._stopped_until:
            if now >= self._stopped_until:
                os.kill(pid, signal.SIGCONT)
                self._stopped_until = 0.0
            return
        if now < self._trouble_at or not self.received:
            return
        self._trouble_at = now + self.chance.uniform(0.0, 0.05)
        draw = self.chance.random()
        if draw < 0.05:
            os.kill(pid, signal.SIGSTOP)
            self._stopped_until = now + self.chance.uniform(0.0, 0.2)
        elif draw < 0.5:
            self.signals += 1
            os.kill(pid, self.chance.choice(HARMLESS))
        elif draw < 0.7 and self.trouble == "log in trouble":
            self._trouble_log()
        elif draw < 0.7 and self.trouble == "clock set back":
            self._set_clock(self.chance.randrange(-100_000, 100_000))

    def _trouble_log(self) -> None:
        folder = self.folder / "logs"
        way = self.chance.randrange(4)
        if way == 0 and folder.is_dir():
            (folder / "duet.log").unlink(missing_ok=True)
        elif way == 1 and folder.is_dir():
            folder.chmod(0o500)
        elif way == 2 and folder.is_dir():
            shutil.rmtree(self.folder / "gone", ignore_errors=True)
            folder.rename(self.folder / "gone")
            with suppress(IsADirectoryError):  # the daemon was quicker and made it again
                folder.write_text("in the way")
        else:
            if folder.is_file():
                folder.unlink()
            folder.mkdir(exist_ok=True)
            folder.chmod(0o700)

    def _set_clock(self, seconds: int) -> None:
        (self.folder / "clock").write_text(f"{seconds:+d}\n")

    # The loop.

    def run(self, seconds: float) -> None:
        """Send and receive for so long, and then to the end."""
        start = last = time.monotonic()
        end, measured = start + seconds, start + seconds / 4
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        waiting = selectors.DefaultSelector()
        waiting.register(stdout, selectors.EVENT_READ)
        while True:
            now = time.monotonic()
            if now < end:
                self._add_some()
                self._make_trouble(now)
            elif self._stopped_until:
                self._make_trouble(now + 1)
            if now >= self._write_at and self._out:
                self._write(stdin.fileno(), now)
            ready = waiting.select(0.002)
            if ready and now >= self._read_at:
                piece = os.read(stdout.fileno(), self.chance.choice(READ_SIZES))
                assert piece, f"it closed its stdout; exit code {self.process.wait(5)}"
                self._in += piece
                self._check()
                last = now
                if self.chance.random() < 0.002:
                    self._read_at = now + self.chance.uniform(0.0, 0.2)
            assert now - last < PATIENCE, (
                f"no reply to {self.expected[0] if self.expected else None}"
            )
            if now >= measured and self.received > WARM:
                self._measure()
                measured = now + max(seconds / 20, 0.5)
            if now >= end and not self._out and not self.expected:
                self._measure()
                return

    def _write(self, descriptor: int, now: float) -> None:
        size = self.chance.choice(WRITE_SIZES)
        try:
            del self._out[: os.write(descriptor, self._out[:size])]
        except BlockingIOError:
            return
        if self.chance.random() < 0.01:
            self._write_at = now + self.chance.uniform(0.0, 0.1)

    def _measure(self) -> None:
        if not Path("/proc/self/statm").exists():
            return
        process = Path("/proc", str(self.process.pid))
        pages = int((process / "statm").read_text().split()[1])
        self._memory.append(pages * resource.getpagesize())
        self._descriptors.append(len(list((process / "fd").iterdir())))

    def finish(self) -> None:
        """End the input and check what is left."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.stdin = None
        assert self.process.wait(10) == 0
        assert self.process.stdout is not None
        assert self.process.stdout.read() == b""
        assert (bytes(self._in), list(self.expected)) == (b"", [])
        log = (self.folder / "stderr").read_text()
        assert "Traceback" not in log
        if self._memory:
            first, last = self._memory[0], min(self._memory[-3:])
            assert last - first < GROWTH, f"memory grew from {first} to {last} bytes"
            # One file more while a line is written.
            assert self._descriptors[-1] <= self._descriptors[0] + 1, "descriptors grew"

    def __str__(self) -> str:
        memory = [f"{each / 1e6:.1f}" for each in (self._memory or [0])]
        return (
            f"{self.trouble}: {self.sent} requests, {self.hostile} of them hostile, "
            f"{self.received} replies in order, {self.signals} signals, "
            f"{memory[0]} MB early and {memory[-1]} MB at the end, "
            f"{self._descriptors[-1:] or '?'} descriptors"
        )


TROUBLES = ["log in trouble", "disk full", "stderr never read", "few descriptors"]
if FAKETIME:
    TROUBLES.append("clock set back")


def soak(seconds: float, seed: int, trouble: str) -> str:
    """Run one daemon for so long; return what was done."""
    with tempfile.TemporaryDirectory() as folder:
        run = Soak(seed, trouble, Path(folder))
        try:
            run.run(seconds)
            run.finish()
        finally:
            run.process.kill()
            run.process.communicate()
            if (run.folder / "logs").is_dir():
                (run.folder / "logs").chmod(0o700)
        return str(run)


def main() -> None:
    """Run every trouble in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--trouble", choices=TROUBLES)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    if not FAKETIME:
        print("no clock will be set back: libfaketime is missing (apt-get install faketime)")
    troubles = [options.trouble] if options.trouble else TROUBLES
    for trouble in troubles:
        print(soak(options.minutes * 60 / len(troubles), options.seed, trouble), flush=True)


if __name__ == "__main__":
    main()
