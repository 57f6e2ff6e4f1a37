"""One router whose workers are killed, stopped, flooding, stuck and out of memory, all at once.

Calls go on meanwhile. What is asked of a worker may fail, and its caller loses patience with it
after a while; what is asked of `main` and of the router itself never fails.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from duet_rpc.jsonrpc.errors import INTERNAL_ERROR, REQUEST_CANCELLED, REQUEST_FAILED
from duet_rpc.program import WORKER
from duet_rpc.workers.order import MAIN
from tests.attacks import HEAD
from tests.chaos_daemon import GOOD, HANGING, PATIENCE, Chaos

WORKERS = ["w0", "w1"]
BLOCKS = ["# /// script\n# ///\n", '# /// script\n# requires-python = ">=3.9"\n# ///\n']

TEXT = f"""{HEAD}
import ctypes, duet_rpc

@method
def NAME_echo(number: int) -> int: return number

@method
def NAME_die() -> None: os.kill(os.getpid(), signal.SIGKILL)

@method
def NAME_leave() -> None: os._exit(3)

@method
def NAME_stop() -> None: os.kill(os.getpid(), signal.SIGSTOP)

@method
def NAME_stuck() -> None: ctypes.PyDLL(None).sleep(60)

@method
def NAME_flood(ctx: Context) -> int:
    for number in range(500):
        duet_rpc.notify("topic", "x" * 100)
        ctx.log.warn("x" * 100)
        ctx.progress(number)
        print("x" * 100)
        os.write(2, b"x" * 1000)
    return 1

@method
def NAME_fork() -> int:
    if not os.fork(): time.sleep(60)
    return 1
"""
WAYS = ["echo"] * 20 + ["die", "leave", "stop", "stuck", "flood", "flood", "fork"]

TIGHT = f"{HEAD}\n@method\ndef large() -> int: return len(b'x' * 400_000_000)\n"
"""Of a worker that may have 200 MB."""

CODES = {INTERNAL_ERROR, REQUEST_FAILED}


class WorkerChaos(Chaos):
    """One router, its workers, and a client that knows what must come back."""

    _recovered: set[str]  # methods that had a result

    def _write_files(self) -> dict[str, str]:
        (self.methods / "good.py").write_text(GOOD)
        (self.methods / "hanging.py").write_text(BLOCKS[0] + HANGING)
        tight = self.methods.parent / "tight.py"
        tight.write_text(TIGHT)
        table = f'[workers.tight]\nmethods = ["{tight}"]\nmemory = "200M"\n'
        (self.methods.parent / "config.toml").write_text(table)
        for name in WORKERS:
            self._write_worker(name)
        return {}

    def _write_worker(self, name: str) -> None:
        text = self.chance.choice(BLOCKS) + TEXT.replace("NAME", name)
        new = self.folder / "new"
        new.write_text(text)
        new.replace(self.methods / f"{name}.py")

    def _add(self) -> None:
        draw = self.chance.random()
        if draw < 0.3:
            self._request("good", {"number": self.sent + 1})
        elif draw < 0.4:
            self._request(self.chance.choice(["version", "gateway/status"]))
        elif draw < 0.42:
            name = f"{self.chance.choice(WORKERS)}.py"
            self._request("gateway/restart", {"backend": name})
        elif draw < 0.45:
            self._request("listMethods")
        elif draw < 0.5:
            self._request_of_worker("large")
        elif draw < 0.55:
            self._request_of_worker("sleep")
        else:
            name = f"{self.chance.choice(WORKERS)}_{self.chance.choice(WAYS)}"
            params = {"number": self.sent + 1} if name.endswith("echo") else {}
            self._request_of_worker(name, {**params, "_meta": {"progressToken": self.sent}})

    def run(self, seconds: float) -> None:
        """Send and receive for so long; then every worker must serve calls again."""
        self._recovered = set()
        super().run(seconds)
        for pid in self._workers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._request(f"{self.chance.choice(WORKERS)}_stuck")
        self._hanging[self.sent] = time.monotonic() + 1.0
        super().run(0.0)
        self._recovered = set()
        for restart in (False, True):  # one that has crashed too often wants to be asked
            for name in [each for each in WORKERS if f"{each}_echo" not in self._recovered]:
                if restart:
                    self._request("gateway/restart", {"backend": f"{name}.py"})
                self._request(f"{name}_echo", {"number": self.sent + 1})
            super().run(0.0)
        missing = {f"{each}_echo" for each in WORKERS} - self._recovered
        assert not missing, f"{missing} failed after the trouble was over"

    def _request_of_worker(self, method: str, params: object = None) -> None:
        self._request(method, params)
        self._hanging[self.sent] = time.monotonic() + self.chance.uniform(0.1, 3.0)

    def _take_pending(self, id: object) -> tuple[int, str]:
        """Return what a reply is for: workers answer in any order, and each request once."""
        found = [each for each in self._pending if each[0] == id]
        assert found, f"a second reply to {id}, or one that nobody waits for"
        self._pending.remove(found[0])
        return found[0]

    def _check_reply(self, id: int, method: str, message: dict[str, Any]) -> None:
        code = message["error"]["code"] if "error" in message else None
        assert code != REQUEST_FAILED or not message["error"]["message"].endswith(": "), message
        if code is None and (method == "good" or method.endswith("_echo")):
            assert message["result"] == id, f"{method}: {message}"
            self._recovered.add(method)
        if code == REQUEST_CANCELLED:
            assert id in self._cancelled, f"{method}: {message}"
        elif code is not None:
            is_of_worker = method in ("large", "sleep") or method.startswith(tuple(WORKERS))
            assert is_of_worker, f"{method}: {message}"
            assert code in CODES, f"{method}: {message}"

    def _trouble(self, now: float) -> None:
        if now >= self._pause["edit"]:
            self._pause["edit"] = now + self.chance.uniform(0.0, 1.0)
            self.edits += 1
            self._write_worker(self.chance.choice(WORKERS))
        if now >= self._pause["signal"] and self.received:
            # Seldom: what is stuck or stopped must be ended by the router.
            self._pause["signal"] = now + self.chance.uniform(0.0, 3.0)
            signals = [signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT, signal.SIGTERM]
            for pid in self._workers():
                if self.chance.random() < 0.3:
                    with suppress(ProcessLookupError):
                        os.kill(pid, self.chance.choice(signals))

    def _workers(self) -> Iterator[int]:
        """Iterate over the processes of all workers but `main`."""
        for pid in self._processes():
            with suppress(OSError):
                variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                orders = [each for each in variables if each.startswith(f"{WORKER}=".encode())]
                if orders and json.loads(orders[0].partition(b"=")[2])["name"] != MAIN:
                    yield int(pid)

    def finish(self) -> None:
        """Ask it to leave, or kill it, and check what is left."""
        if self.chance.random() < 0.7:
            super().finish()
            return
        self.process.kill()
        self.process.wait(PATIENCE)
        self._check_what_is_left()
