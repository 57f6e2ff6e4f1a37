"""A server that is attacked, over each wire, and what it owes everybody else meanwhile."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.attacks import GOOD
from tests.method_files import env_for
from tests.support import SOURCE, Client, frame

SECRET = "hunter2-hunter2-hunter2"  # noqa: S105
WINDOW = 2.0


class Wire:
    """A client of `rpc`."""

    command: tuple[str, ...] = ("rpc",)
    framing = "content-length"
    cancelled_is_answered = True

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self._last = 0
        self.log = folder / "stderr"
        with self.log.open("wb") as log:
            self.client = Client(
                [*SOURCE, *self.command, *flags], env_for(folder), self.framing,
                stderr=log, start_new_session=True,
            )  # fmt: skip
        self.begin()

    def begin(self) -> None:
        """Do what comes before the first call."""

    def say(self, message: dict[str, object]) -> None:
        """Send any message."""
        self.client.send(frame({"jsonrpc": "2.0", **message}))

    def start(self, name: str, /, **params: object) -> int:
        """Call a method; return the id."""
        self._last += 1
        self.say({"id": self._last, "method": name, "params": params})
        return self._last

    def cancel(self, id: object) -> None:
        """Take a call back."""
        self.say({"method": "$/cancelRequest", "params": {"id": id}})

    def reply(self, id: object) -> dict[str, Any]:
        """Return the reply to a request, past notifications; no other request is answered."""
        while True:
            message: dict[str, Any] = json.loads(self.client.receive_raw())
            if "method" not in message:
                assert message["id"] == id, message
                return message

    def ask(self, name: str, /, **params: object) -> dict[str, Any]:
        """Call a method; return the whole reply."""
        return self.reply(self.start(name, **params))

    def result(self, name: str, /, **params: object) -> Any:
        """Call a method; return its result, `failed` where it has none."""
        reply = self.ask(name, **params)
        return reply.get("result", "failed")

    def names(self) -> list[str]:
        """List the methods."""
        return [each["name"] for each in self.ask("listMethods")["result"]]

    def leave(self) -> float:
        """End the input; return how long it took to leave with 0 and with whole frames."""
        start = time.monotonic()
        code, _, _ = self.client.finish()
        took = time.monotonic() - start
        assert code == 0, self.text()
        return took

    def text(self) -> str:
        """Return the log."""
        return self.log.read_text("utf-8", "backslashreplace")


class McpWire(Wire):
    """A client of `mcp`."""

    command = ("mcp",)
    framing = "lines"
    cancelled_is_answered = False

    def begin(self) -> None:
        """Shake hands."""
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
        self.say({"id": 0, "method": "initialize", "params": hello})
        self.reply(0)
        self.say({"method": "notifications/initialized"})

    def say(self, message: dict[str, object]) -> None:
        """Send any message."""
        self.client.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def start(self, name: str, /, **params: object) -> int:
        """Call a tool; return the id."""
        self._last += 1
        call: dict[str, object] = {"name": name}
        if "_meta" in params:
            call["_meta"] = params.pop("_meta")
        call["arguments"] = params
        self.say({"id": self._last, "method": "tools/call", "params": call})
        return self._last

    def cancel(self, id: object) -> None:
        """Take a call back."""
        self.say({"method": "notifications/cancelled", "params": {"requestId": id}})

    def result(self, name: str, /, **params: object) -> Any:
        """Call a tool; return its result, `failed` where it has none."""
        result = self.ask(name, **params)["result"]
        return "failed" if result["isError"] else result["structuredContent"]["result"]

    def names(self) -> list[str]:
        """List the tools."""
        self._last += 1
        self.say({"id": self._last, "method": "tools/list"})
        return [each["name"] for each in self.reply(self._last)["result"]["tools"]]


def methods_folder(folder: Path) -> Path:
    """Return where the user's methods are."""
    return folder / "home/.config/duet-rpc/methods"


@contextmanager
def serve(
    folder: Path, files: dict[str, str | bytes], kind: type[Wire] = Wire, *flags: str
) -> Iterator[Wire]:
    """Run a server for a user with these files and one that is good."""
    methods = methods_folder(folder)
    for name, text in {"good.py": GOOD, **files}.items():
        path = methods / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    wire = kind(folder, *flags)
    try:
        yield wire
    finally:
        wire.client.process.kill()
        with suppress(ProcessLookupError):
            os.killpg(wire.client.process.pid, signal.SIGKILL)
        wire.client.process.communicate()


def check_others(wire: Wire) -> None:
    """Check that everybody else is served, then that it leaves in time."""
    assert wire.result("good") == 7
    assert "good" in wire.names()
    if type(wire) is Wire:
        for name in ("version", "describeMethods", "rpc.discover", "reloadMethods"):
            assert "result" in wire.ask(name), wire.text()
        assert wire.result("good") == 7
    assert wire.text().count("good was here") >= 1
    assert wire.leave() < WINDOW
    assert "internal error:" not in wire.text()  # which is how a fault of ours is reported


BOTH = pytest.mark.parametrize("kind", [Wire, McpWire], ids=["rpc", "mcp"])
DEBUG = pytest.mark.parametrize("flags", [(), ("--debug",)], ids=["plain", "debug"])
