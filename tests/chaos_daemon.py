"""One daemon whose methods, files and client are hostile; `make chaos` has what must hold.

Its client calls good and hostile methods in any order, cancels what runs and what waits, writes
and reads in fits; meanwhile files change, break, go and come back, and signals arrive.
"""

from __future__ import annotations

import json
import os
import random
import selectors
import shutil
import signal
import subprocess
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.attacks import CHANGES, FILES, HEAD, RAISED
from tests.support import (
    SOURCE,
    TOP,
    frame,
    notification,
    request,
    split_frames,
    take_content_length,
)

ROUND = 4.0  # seconds of one daemon
PATIENCE = 20.0  # seconds without a reply
WINDOW = 2.0  # seconds from the end of input to the end of the process
AHEAD = 40  # requests that may wait for their replies

HARMLESS = [
    signal.SIGWINCH, signal.SIGCONT, signal.SIGURG, signal.SIGCHLD, signal.SIGPIPE,
]  # fmt: skip

BUILTIN = ["version", "listMethods", "describeMethods", "rpc.discover", "reloadMethods"]

CODES = {-32603, -32602, -32601, -32800, 5}
"""What a hostile method may be answered with."""

# After these the methods of the same process can open no more files, good or not.
BLINDING = {"another open", "no environment", "no descriptor that is free"}
# These print on, in more and more threads, whenever they are loaded again.
GROWING = {
    "threads that print without end",
    "300 files that fail",
    "a file that writes itself again",
}

GOOD = f"""{HEAD}
@method
def good(number: int) -> int:
    print("good", number)
    return number
"""

HANGING = f"""{HEAD}
from dataclasses import dataclass

@method
def spin() -> None:
    while True: pass

@method
def sleep() -> None:
    time.sleep(60)

@method
def stubborn() -> None:
    while True:
        try: threading.Event().wait(60)
        except Exception: pass

@method
def chatty(ctx: Context) -> None:
    number = 0
    while True:
        number += 1
        ctx.progress(number)
        ctx.log.info(number)

@dataclass
class Endless:
    x: int
    def __post_init__(self):
        while True: pass

@method
def endless(it: Endless) -> int: return 1
"""
HANGS: list[tuple[str, dict[str, object]]] = [
    ("spin", {}),
    ("sleep", {}),
    ("stubborn", {}),
    ("chatty", {"_meta": {"progressToken": "p"}}),
    ("endless", {"it": {"x": 1}}),
]

BUSY = f"""{HEAD}
@method
def threads() -> int:
    def run():
        for _ in range(10): print("x" * 50); sys.stdout.write("y")
    for _ in range(3): threading.Thread(target=run).start()
    return 1

@method
def forks() -> int:
    if not os.fork(): time.sleep(60)
    return 1

@method
def forks_in_thread() -> int:
    def run():
        if not os.fork(): time.sleep(60)
    threading.Thread(target=run).start()
    return 1

@method
def large() -> str:
    return "é" * 300_000

@atexit.register
def bye(): print("bye", flush=True)

@on_stop
def stop(): raise SystemExit(3)
"""
BUSY_NAMES = ["threads", "forks", "forks_in_thread", "large"]

CHANGING = "from duet_rpc import method\nimport helper\n@method\ndef f() -> int: return helper.N\n"
BROKEN = [b"x = (\n", b"x\0", b"\xff\xfe", b"raise 1\n"]
ODD_PATHS = ["/", "/dev/zero", "/nonesuch.py", "/x\ud800.py", "relative", "/tmp", "/\n.py"]


NOTIFICATIONS = (
    "$/progress", "client/say", "client/notify", "client/methodsChanged", "gateway/stateChanged",
)  # fmt: skip


class Chaos:
    """One daemon, its user's files, and a client that knows what must come back."""

    def __init__(self, chance: random.Random, folder: Path) -> None:
        self.chance = chance
        self.folder = folder
        self.methods = folder / "home/.config/duet-rpc/methods"
        self.methods.mkdir(parents=True)
        self.debug = chance.random() < 0.5
        self.sent = self.received = self.cancels = self.edits = 0
        self._pending: deque[tuple[int, str]] = deque()  # in the order of their replies
        self._cancelled: set[int] = set()
        self._hanging: dict[int, float] = {}  # when to cancel them
        self._out = bytearray()
        self._in = bytearray()
        self._pause = {"read": 0.0, "write": 0.0, "edit": 0.0, "signal": 0.0}
        self._hostile = self._write_files()
        self.process = self._start()

    # The files.

    def _write_files(self) -> dict[str, str]:
        """Write the user's files; return the hostile methods, and what each does."""
        bodies = {name: text for name, text in CHANGES.items() if name not in BLINDING} | RAISED
        chosen = self.chance.sample(sorted(bodies), 12)
        lines = [HEAD]
        for number, name in enumerate(chosen):
            body = "\n".join(f"    {line}" for line in bodies[name].split("\n"))
            lines.append(f"@method\ndef bad{number}():\n{body}\n")
        texts = {
            "good.py": GOOD,
            "hanging.py": HANGING,
            "busy.py": BUSY,
            "bad.py": "\n".join(lines),
        }
        for name, text in texts.items():
            (self.methods / name).write_text(text)
        self._edit()
        return {f"bad{number}": what for number, what in enumerate(chosen)}

    def _edit(self) -> None:
        """Change a file, or put one of another kind in its place."""
        self.edits += 1
        path = self.methods / self.chance.choice(["f.py", "f.py", "helper.py", "odd.py"])
        draw = self.chance.random()
        if draw < 0.2 or (os.path.lexists(path) and not path.is_file()):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if draw < 0.1:
            return
        if draw < 0.2:
            self._replace(path)
        elif path.name == "odd.py":
            self._write_odd(path)
        elif draw < 0.3:
            path.write_bytes(self.chance.choice(BROKEN))
        else:
            path.write_text(CHANGING if path.name == "f.py" else f"N = {self.edits}\n")

    def _replace(self, path: Path) -> None:
        """Put something there that is no file."""
        way = self.chance.randrange(4)
        if way == 0:
            os.mkfifo(path)
        elif way == 1:
            path.symlink_to(path)
        elif way == 2:
            path.symlink_to("/dev/zero")
        else:
            path.mkdir()

    def _write_odd(self, path: Path) -> None:
        texts, _ = FILES[self.chance.choice([name for name in FILES if name not in GROWING])]
        text = texts.get("a.py") or texts.get("bad.py") or ""
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    # The daemon.

    def _start(self) -> subprocess.Popen[bytes]:
        env = {**os.environ, "PYTHONPATH": str(TOP), "HOME": str(self.folder / "home")}
        env.update(XDG_CONFIG_HOME="", XDG_STATE_HOME="", DUET_RPC_CONFIG="", DUET_RPC_LOG="")
        flags = ["--debug"] if self.debug else []
        with (self.folder / "stderr").open("wb") as stderr:
            process = subprocess.Popen(
                [*SOURCE, "rpc", *flags], env=env, cwd=self.folder, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=stderr, bufsize=0, start_new_session=True,
            )  # fmt: skip
        for pipe in (process.stdin, process.stdout):
            os.set_blocking(pipe.fileno(), False)  # type: ignore[union-attr]
        return process

    # What is sent.

    def _add(self) -> None:
        draw = self.chance.random()
        if draw < 0.35:
            self._request("good", {"number": self.sent + 1})
        elif draw < 0.5:
            self._request(self.chance.choice(BUILTIN))
        elif draw < 0.52:
            self._request("loadMethods", {"file": self.chance.choice(ODD_PATHS)})
        elif draw < 0.7:
            self._request(self.chance.choice(["f", *BUSY_NAMES]))
        elif draw < 0.74:
            self._request(*self.chance.choice(HANGS))
            self._hanging[self.sent] = time.monotonic() + self.chance.uniform(0.0, 0.4)
        elif draw < 0.78:
            self._out += notification(self.chance.choice([*self._hostile, "nonsense"]), {})
        elif draw < 0.85:
            waiting = [id for id, _ in self._pending]
            self._cancel(self.chance.choice([*waiting, -1]))
        else:
            self._request(self.chance.choice([*self._hostile]))

    def _request(self, method: str, params: object = None) -> None:
        self.sent += 1
        self._pending.append((self.sent, method))
        self._out += request(self.sent, method, params)

    def _cancel(self, id: int) -> None:
        self.cancels += 1
        self._cancelled.add(id)
        self._out += notification("$/cancelRequest", {"id": id})

    def _cancel_what_hangs(self, now: float) -> None:
        for id, when in [*self._hanging.items()]:
            if now >= when:
                self._cancel(id)
                self._hanging[id] = now + 1.0

    # What comes back.

    def _check(self) -> None:
        while True:
            assert self._in[:16] == b"Content-Length: "[: len(self._in)], self._in[:200]
            body = take_content_length(self._in)
            if body is None:
                return
            message: dict[str, Any] = json.loads(body.decode())
            if "method" in message:
                assert message["method"] in NOTIFICATIONS, message
                assert "id" not in message
                continue
            assert self._pending, f"a reply that nobody waits for: {body[:200]!r}"
            id, method = self._take_pending(message["id"])
            assert message["id"] == id, f"{message['id']} instead of {id} ({method})"
            self._hanging.pop(id, None)
            self.received += 1
            self._check_reply(id, method, message)

    def _take_pending(self, _id: object) -> tuple[int, str]:
        """Return the request that a reply must be for, and its method."""
        return self._pending.popleft()

    def _check_reply(self, id: int, method: str, message: dict[str, Any]) -> None:
        code = message["error"]["code"] if "error" in message else None
        if code == -32800:
            assert id in self._cancelled or method in ("bad", *self._hostile), (id, method)
            return
        if method == "good":
            assert message.get("result") == id, f"{method}: {message}"
        elif method == "reloadMethods":
            assert "good" in message["result"]["methods"], message
        elif method in BUILTIN:
            assert "result" in message, f"{method}: {message}"
        elif code is not None:
            assert code in CODES, f"{method}: {message}"

    # The loop.

    def run(self, seconds: float) -> None:
        """Send and receive for so long, and then until all is answered."""
        last = time.monotonic()
        end = last + seconds
        stdout = self.process.stdout
        assert stdout is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(stdout, selectors.EVENT_READ)
            while time.monotonic() < end or self._pending or self._out:
                now = time.monotonic()
                if now < end and len(self._pending) < AHEAD:
                    self._add()
                if now < end:
                    self._trouble(now)
                self._cancel_what_hangs(now)
                self._write(now)
                if waiting.select(0.002) and now >= self._pause["read"]:
                    self._read(now)
                    last = now
                waits_for = self._pending[0] if self._pending else None
                assert now - last < PATIENCE or not waits_for, f"no reply to {waits_for}"

    def _trouble(self, now: float) -> None:
        if now >= self._pause["edit"]:
            self._pause["edit"] = now + self.chance.uniform(0.0, 0.2)
            self._edit()
        if now >= self._pause["signal"] and self.received:
            self._pause["signal"] = now + self.chance.uniform(0.0, 0.1)
            self.process.send_signal(self.chance.choice(HARMLESS))

    def _write(self, now: float) -> None:
        assert self.process.stdin is not None
        if self._out and now >= self._pause["write"]:
            size = self.chance.choice([65536] * 8 + [100, 7, 1])
            with suppress(BlockingIOError):
                del self._out[: os.write(self.process.stdin.fileno(), self._out[:size])]
            if self.chance.random() < 0.02:
                self._pause["write"] = now + self.chance.uniform(0.0, 0.1)

    def _read(self, now: float) -> None:
        assert self.process.stdout is not None
        chunk = os.read(self.process.stdout.fileno(), self.chance.choice([1 << 20] * 8 + [999, 7]))
        assert chunk, f"it closed its stdout; exit code {self.process.wait(5)}"
        self._in += chunk
        self._check()
        if self.chance.random() < 0.02:
            self._pause["read"] = now + self.chance.uniform(0.0, 0.1)

    # The end.

    def finish(self) -> None:
        """Ask it to leave, idle or in the middle of a method, and check what is left."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        for pipe in (stdin, stdout):
            os.set_blocking(pipe.fileno(), True)
        may_answer: set[object] = set()
        if self.chance.random() < 0.5:
            name, params = self.chance.choice(HANGS)
            stdin.write(request("last", name, params))
            may_answer.add("last")
            time.sleep(self.chance.uniform(0.0, 0.3))
        start = time.monotonic()
        way = self.chance.choice(["end of input", "SIGTERM", "SIGINT", "shutdown"])
        if way == "end of input":
            stdin.close()
        elif way == "shutdown" and not may_answer:
            stdin.write(frame({"jsonrpc": "2.0", "id": "bye", "method": "shutdown"}))
            may_answer.add("bye")
        else:
            self.process.send_signal(signal.SIGINT if way == "SIGINT" else signal.SIGTERM)
        rest = stdout.read()
        code = self.process.wait(PATIENCE)
        took = time.monotonic() - start
        assert (code, bytes(self._in)) == (0, b""), f"exit code {code} after {way}"
        assert took < WINDOW, f"it took {took:.2f} s to leave after {way}"
        for body in split_frames(rest):
            message = json.loads(body)
            assert "method" in message or message["id"] in may_answer, message
        self._check_what_is_left()

    def _check_what_is_left(self) -> None:
        until = time.monotonic() + PATIENCE
        while self._processes():
            assert time.monotonic() < until, f"left behind: {self._processes()}"
            time.sleep(0.01)
        log = (self.folder / "stderr").read_text("utf-8", "backslashreplace")
        assert "internal error:" not in log, log[-3000:]
        assert self.debug or "Traceback" not in log, log[log.index("Traceback") - 300 :][:3000]

    def __str__(self) -> str:
        hostile = "\n".join(f"{name}: {what}" for name, what in self._hostile.items())
        log = (self.folder / "stderr").read_text("utf-8", "backslashreplace")
        return f"hostile methods:\n{hostile}\nthe end of the log:\n{log[-3000:]}"

    def _processes(self) -> list[str]:
        """List the processes that run for this user."""
        home = f"HOME={self.folder / 'home'}".encode()
        found = []
        for each in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if home in (each / "environ").read_bytes().split(b"\0"):
                    found.append(each.name)
        return found
