"""What a hostile method, file or client may cost: its own call, and nothing else.

Each row of the tables in `tests.attacks` once ended the daemon, or kept other methods from being
called, or is the proof that it does not.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.attacks import (
    CHANGES,
    ENDINGS,
    FILES,
    GOOD,
    HEAD,
    PROGRESS,
    RAISED,
    SPIN,
    bad,
    sparse,
)
from tests.process.test_methods import env_for
from tests.support import (
    SOURCE,
    TOP,
    Client,
    frame,
    notification,
    request,
    shortest,
    wait_for_file,
    wait_until,
)

LEAKY = TOP / "tests" / "leaky_methods.py"
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


# What a method changes for the whole process.


@BOTH
@pytest.mark.parametrize("change", CHANGES)
def test_what_a_method_changes_costs_its_own_call(
    change: str, kind: type[Wire], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with serve(tmp_path, bad(CHANGES[change]), kind) as wire:
        assert wire.result("good") == 7
        assert wire.result("bad") in (1, "failed")
        if "alarm" in change or "timer" in change:
            time.sleep(0.4)  # until it would go off: it does not
        if change == "another open":  # files can't be read any more
            assert wire.result("good") == 7
            assert wire.leave() < WINDOW
        else:
            check_others(wire)


@pytest.mark.parametrize("change", ["another threading module", "a trace function that raises"])
def test_after_a_method_took_the_threads_progress_is_sent(change: str, tmp_path: Path) -> None:
    with serve(tmp_path, {**bad(CHANGES[change]), "progress.py": PROGRESS}) as wire:
        wire.result("bad")
        assert wire.result("progress", _meta={"progressToken": "p"}) == 7
        assert wire.leave() < WINDOW


@BOTH
@pytest.mark.parametrize(
    "change", ["signals that are blocked", "signals that are ignored", "another signal module"]
)
def test_after_a_method_took_the_signals_they_work_again(
    change: str, kind: type[Wire], tmp_path: Path
) -> None:
    with serve(tmp_path, {**bad(CHANGES[change]), "spin.py": SPIN}, kind) as wire:
        assert wire.result("bad") == 1
        id = wire.start("spin", mark=str(tmp_path / "mark"))
        wait_for_file(tmp_path / "mark")
        wire.cancel(id)
        if wire.cancelled_is_answered:
            assert wire.reply(id)["error"]["code"] == -32800
        assert wire.result("good") == 7
        wire.client.signal(signal.SIGTERM)
        code, took = wire.client.wait()
        assert code == 0
        assert took < WINDOW


@BOTH
@pytest.mark.parametrize("rest", ["while True: pass", "time.sleep(60)"], ids=["loop", "sleep"])
def test_sigterm_reaches_the_daemon_while_a_method_blocks_all_signals(
    rest: str, kind: type[Wire], tmp_path: Path
) -> None:
    def attempt() -> float:
        mark = tmp_path / "mark"
        mark.unlink(missing_ok=True)
        with serve(tmp_path, blocking(rest, mark), kind) as wire:
            wire.start("bad")
            wait_for_file(mark)
            wire.client.signal(signal.SIGTERM)
            code, took = wire.client.wait()
            assert code == 0
            assert "SIGTERM received" in wire.text()
        return took

    assert shortest(attempt, WINDOW) < WINDOW


@BOTH
@pytest.mark.skipif(sys.version_info < (3, 10), reason="Python 3.9 has no way to do it")
def test_a_method_that_blocks_all_signals_is_cancelled(kind: type[Wire], tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with serve(tmp_path, blocking("while True: pass", mark), kind) as wire:
        id = wire.start("bad")
        wait_for_file(mark)
        wire.cancel(id)
        if wire.cancelled_is_answered:
            assert wire.reply(id)["error"]["code"] == -32800
        check_others(wire)


def blocking(rest: str, mark: Path) -> dict[str, str | bytes]:
    """Write a file whose method blocks all signals, makes a mark and goes on."""
    block = "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())"
    return bad(f"{block}\nopen({str(mark)!r}, 'w')\n{rest}")


@BOTH
def test_a_low_recursion_limit_affects_only_its_own_method(
    kind: type[Wire], tmp_path: Path
) -> None:
    deep = (
        f"{HEAD}\ndef down(n): return 0 if n == 0 else 1 + down(n - 1)\n"
        "@method\ndef deep() -> int: return down(700)\n"
    )
    with serve(tmp_path, {**bad("sys.setrecursionlimit(60)\nreturn 1"), "d.py": deep}, kind) as it:
        assert it.result("bad") == 1
        assert it.result("deep") == 700
        assert it.leave() < WINDOW


def test_a_recursion_limit_that_a_file_raises_is_kept(tmp_path: Path) -> None:
    text = (
        f"{HEAD}\nsys.setrecursionlimit(5000)\n"
        "@method\ndef limit() -> int: return sys.getrecursionlimit()\n"
    )
    with serve(tmp_path, {"bad.py": text}) as wire:
        assert wire.result("limit") == 5000
        assert wire.result("limit") == 5000


# What parameters do when they are checked.

RECORDS = f"""{HEAD}
from dataclasses import dataclass

@dataclass
class Missing:
    path: str
    def __post_init__(self): os.stat(self.path)

@dataclass
class Leaving:
    path: str
    def __post_init__(self): sys.exit(3)

@dataclass
class Endless:
    path: str
    def __post_init__(self):
        open(self.path, "w")
        while True: pass

@method
def missing(it: Missing) -> int: return 1
@method
def leaving(it: Leaving) -> int: return 1
@method
def endless(it: Endless) -> int: return 1
"""


@BOTH
@pytest.mark.parametrize("name", ["missing", "leaving"])
def test_a_record_that_fails_costs_its_call(name: str, kind: type[Wire], tmp_path: Path) -> None:
    with serve(tmp_path, {"records.py": RECORDS}, kind) as wire:
        assert wire.result(name, it={"path": "/nonesuch"}) == "failed"
        check_others(wire)


@BOTH
def test_a_record_that_never_ends_is_cancelled(kind: type[Wire], tmp_path: Path) -> None:
    with serve(tmp_path, {"records.py": RECORDS}, kind) as wire:
        id = wire.start("endless", it={"path": str(tmp_path / "mark")})
        wait_for_file(tmp_path / "mark")
        wire.cancel(id)
        if wire.cancelled_is_answered:
            assert wire.reply(id)["error"]["code"] == -32800
        check_others(wire)


@BOTH
def test_a_record_that_never_ends_is_left_within_the_window(
    kind: type[Wire], tmp_path: Path
) -> None:
    def attempt() -> float:
        mark = tmp_path / "mark"
        mark.unlink(missing_ok=True)
        with serve(tmp_path, {"records.py": RECORDS}, kind) as wire:
            wire.start("endless", it={"path": str(mark)})
            wait_for_file(mark)
            return wire.leave()

    assert shortest(attempt, WINDOW) < WINDOW


# What a method raises.


@DEBUG
@pytest.mark.parametrize("raised", RAISED)
def test_whatever_a_method_raises_is_one_error(
    raised: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    with serve(tmp_path, bad(RAISED[raised]), Wire, *flags) as wire:
        error = wire.ask("bad")["error"]
        if flags and error["code"] == -32603:
            assert set(error["data"]) == {"type", "text", "place", "traceback"}
            assert "bad.py" in error["data"]["place"]
        check_others(wire)


ENDLESS = "open(os.environ['HOME'] + '/mark', 'w')\n        while True: pass"
ENDLESS_PARTS = {
    "code": (
        f"class Odd(RpcError):\n    @property\n    def code(self):\n        {ENDLESS}\n"
        "    @code.setter\n    def code(self, code): pass\nraise Odd(5, 'x')"
    ),
    "data": (
        f"class Data(dict):\n    def items(self):\n        {ENDLESS}\n"
        "raise RpcError(5, 'x', Data(a=1))"
    ),
    "class": (
        f"class Odd(Exception):\n    @property\n    def __class__(self):\n        {ENDLESS}\n"
        "raise Odd"
    ),
}


@BOTH
@DEBUG
@pytest.mark.parametrize("part", ENDLESS_PARTS)
def test_an_error_that_never_says_what_it_is_is_cancelled(
    part: str, flags: tuple[str, ...], kind: type[Wire], tmp_path: Path
) -> None:
    with serve(tmp_path, bad(ENDLESS_PARTS[part]), kind, *flags) as wire:
        mark = tmp_path / "home/mark"
        id = wire.start("bad")
        wait_until(lambda: mark.exists() or not wire.client.silent_for(0), "it looks, or is done")
        if mark.exists():
            wire.cancel(id)
        if wire.cancelled_is_answered or not mark.exists():
            assert wire.reply(id).get("error", {}).get("code") in (-32800, -32603, None)
        check_others(wire)


@pytest.mark.parametrize("raised", ["__class__", "__traceback__", "__cause__"])
def test_an_unreadable_exception_is_a_tool_error_in_mcp(raised: str, tmp_path: Path) -> None:
    body = f"class Odd(Exception):\n    {raised} = property(lambda self: 1 / 0)\nraise Odd"
    with serve(tmp_path, bad(body), McpWire) as wire:
        assert wire.ask("bad")["result"]["isError"]
        assert "bad: Odd (bad.py:" in wire.text()
        check_others(wire)


def test_a_traceback_has_the_lines_that_were_loaded(tmp_path: Path) -> None:
    body = "open(__file__, 'w').write('# another\\n' * 50)\nraise ValueError('as it was')"
    with serve(tmp_path, bad(body), Wire, "--debug") as wire:
        trace = wire.ask("bad")["error"]["data"]["traceback"]
    assert "raise ValueError('as it was')" in trace


@BOTH
def test_failing_with_8_mb_of_parameters_is_answered_at_once(
    kind: type[Wire], tmp_path: Path
) -> None:
    text = f"{HEAD}\n@method\ndef fail(text: str) -> None: raise ValueError(text)\n"

    def attempt() -> float:
        with serve(tmp_path, {"fail.py": text}, kind) as wire:
            assert wire.result("good") == 7
            start = time.monotonic()
            reply = wire.ask("fail", text=SECRET * (8_000_000 // len(SECRET)))
            took = time.monotonic() - start
            assert len(json.dumps(reply)) < 1000
            assert len(wire.text()) < 10_000
            assert SECRET not in wire.text()
            check_others(wire)
        return took

    assert shortest(attempt, 3.0) < 3.0


# Files.


@DEBUG
@pytest.mark.parametrize("what", FILES)
def test_a_hostile_file_costs_its_own_methods(
    what: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    files, prepare = FILES[what]
    methods_folder(tmp_path).mkdir(parents=True)
    if prepare:
        prepare(methods_folder(tmp_path))
    with serve(tmp_path, files, Wire, *flags) as wire:
        check_others(wire)
        if not flags:
            assert "Traceback" not in wire.text()


def test_a_file_that_is_too_large_is_named(tmp_path: Path) -> None:
    methods_folder(tmp_path).mkdir(parents=True)
    sparse(methods_folder(tmp_path))
    with serve(tmp_path, {}) as wire:
        problems = wire.ask("reloadMethods")["result"]["problems"]
    assert problems == ["huge.py: can't be read: it is larger than 1024 KiB"]


def test_2_000_files_are_loaded_in_seconds(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        f"m{n}.py": f"from duet_rpc import method\n@method\ndef m{n}() -> int: return {n}\n"
        for n in range(1000)
    }
    files.update({f"x{n}.py": "x = (\n" for n in range(1000)})

    def attempt() -> float:
        with serve(tmp_path, files) as wire:
            start = time.monotonic()
            assert wire.result("m999") == 999
            took = time.monotonic() - start
            assert len(wire.names()) > 1000
            assert wire.leave() < WINDOW
        return took

    assert shortest(attempt, 10.0) < 10.0


def test_a_folder_that_vanishes_and_comes_back_is_followed(tmp_path: Path) -> None:
    folder = methods_folder(tmp_path)
    with serve(tmp_path, {}) as wire:
        assert wire.result("good") == 7
        shutil.move(folder, tmp_path / "kept")
        folder.write_text("in the way")
        assert "good" not in wire.names()
        assert wire.result("good") == "failed"
        folder.unlink()
        shutil.move(tmp_path / "kept", folder)
        check_others(wire)


ODD_PATHS = [
    "/", "/dev/zero", "/nonesuch/x.py", "/x\ud800.py", "/" + "a" * 5000 + ".py", "/tmp/\nx.py",
    "//etc/passwd", "/proc/self/mem", "/tmp", "/../../etc/hostname", "relative.py", "", "/\0.py",
]  # fmt: skip


def test_an_odd_path_loads_nothing(tmp_path: Path) -> None:
    with serve(tmp_path, {}, Wire, "--debug") as wire:
        for path in ODD_PATHS:
            reply = wire.ask("loadMethods", file=path)
            assert reply.get("error", {}).get("code", -32602) == -32602
            if "result" in reply:
                assert reply["result"]["methods"] == ["good"]
        check_others(wire)


def test_files_that_change_all_the_time_cost_no_call(tmp_path: Path) -> None:
    """Saved whole, in pieces, broken, renamed, deleted."""
    import threading

    folder = methods_folder(tmp_path)
    done = threading.Event()
    text = "from duet_rpc import method\nimport helper\n@method\ndef f() -> int: return helper.N\n"

    def save() -> None:
        number = 0
        while not done.is_set():
            number += 1
            (folder / "new").write_text(f"N = {number}\n" if number % 5 else "N = (\n")
            (folder / "new").rename(folder / "helper.py")
            (folder / "f.py").write_text(text)
            if number % 7 == 0:
                (folder / "f.py").unlink()
            if number % 11 == 0:
                (folder / "helper.py").rename(folder / "other.py")

    with serve(tmp_path, {"f.py": text, "helper.py": "N = 0\n"}) as wire:
        saver = threading.Thread(target=save)
        saver.start()
        try:
            for _ in range(100):
                reply = wire.ask("f")
                known = type(reply.get("result")) is int or reply["error"]["code"] == -32601
                assert known, reply
                assert wire.result("good") == 7
        finally:
            done.set()
            saver.join()
        check_others(wire)


def test_a_package_whose_import_was_cancelled_can_be_imported_again(tmp_path: Path) -> None:
    package, mark, gate = tmp_path / "lib/half", tmp_path / "mark", tmp_path / "gate"
    package.mkdir(parents=True)
    (package / "one.py").write_text("__all__ = ['x']\nx = 1\n")
    (package / "__init__.py").write_text(
        f"from .one import *\nimport os, time\nopen({str(mark)!r}, 'w')\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        "__all__ = one.__all__\n"
    )
    text = f"{HEAD}\nsys.path.append({str(package.parent)!r})\nimport half\n"
    text += "@method\ndef use() -> int: return half.x\n"
    with serve(tmp_path, {"use.py": text}) as wire:
        id = wire.start("use")
        wait_for_file(mark)
        wire.cancel(id)
        assert wire.reply(id)["error"]["code"] == -32800
        gate.touch()
        assert wire.result("use") == 1
        check_others(wire)


# What methods say.


def test_lines_of_threads_stay_whole(tmp_path: Path) -> None:
    body = (
        "def run(name):\n    for _ in range(2000): print(name * 20)\n"
        "threads = [threading.Thread(target=run, args=[each]) for each in 'abcd']\n"
        "for each in threads: each.start()\nfor each in threads: each.join()\nreturn 1"
    )
    with serve(tmp_path, bad(body)) as wire:
        assert wire.result("bad") == 1
        assert wire.leave() < WINDOW
    printed = [line.rpartition(" ")[2] for line in wire.text().splitlines() if "=bad" in line]
    assert sorted(printed) == sorted(each * 20 for each in "abcd" for _ in range(2000))


def test_a_log_line_with_a_bad_format_fails_no_method(tmp_path: Path) -> None:
    with serve(tmp_path, bad("logging.warning('%d', 'x')\nreturn 1")) as wire:
        assert wire.result("good") == 7
        assert wire.result("bad") == 1
        check_others(wire)
    assert "a line that can't be formatted (bad.py:" in wire.text()
    assert "Traceback" not in wire.text()


@BOTH
def test_a_flood_of_lines_after_the_reply_delays_nobody(kind: type[Wire], tmp_path: Path) -> None:
    body = (
        "def run():\n    while True: print('x' * 200)\n"
        "for _ in range(3): threading.Thread(target=run, daemon=True).start()\nreturn 1"
    )
    with serve(tmp_path, bad(body), kind) as wire:
        assert wire.result("bad") == 1
        for _ in range(20):
            assert wire.result("good") == 7
        assert wire.leave() < WINDOW


@BOTH
def test_sigterm_while_a_method_logs_ends_it_in_time(kind: type[Wire], tmp_path: Path) -> None:
    text = (
        f"{HEAD}\nfrom loguru import logger\n@method\ndef chat(mark: str) -> None:\n"
        "    open(mark, 'w')\n    while True: logger.info('still here')\n"
    )

    def attempt() -> float:
        mark = tmp_path / "mark"
        mark.unlink(missing_ok=True)
        with serve(tmp_path, {"chat.py": text}, kind) as wire:
            assert wire.result("good") == 7
            wire.start("chat", mark=str(mark))
            wait_for_file(mark)
            wait_until(lambda: "still here" in wire.text(), "it logs")
            wire.client.signal(signal.SIGTERM)
            code, took = wire.client.wait()
            assert code == 0
            assert "SIGTERM received" in wire.text()
        return took

    assert shortest(attempt, WINDOW) < WINDOW


def test_no_secret_reaches_the_log_of_mcp_at_its_loudest(tmp_path: Path) -> None:
    flags = ("--log-level", "debug", "--methods", str(LEAKY))
    with serve(tmp_path, {}, McpWire, *flags) as wire:
        for name in ("repeat", "number", "refuse", "open_it", "careful", SECRET):
            wire.ask(name, token=SECRET, _meta={"progressToken": SECRET})
            wire.ask(name, token=[SECRET])
            wire.ask(name, **{SECRET: SECRET})
        wire.ask("key", tokens={SECRET: [{"a": SECRET}]})
        for method in ("tools/call", "prompts/get", "nonsense"):
            wire.say({"id": method, "method": method, "params": {"name": [SECRET], "x": SECRET}})
            wire.reply(method)
        wire.cancel([SECRET])
        assert wire.leave() < WINDOW
    assert "repeat failed: ValueError" in wire.text().replace("repeat:", "repeat failed:")
    assert SECRET not in wire.text()


# Leaving.


@BOTH
@pytest.mark.parametrize("ending", ENDINGS)
def test_it_leaves_in_time_and_leaves_nobody_behind(
    ending: str, kind: type[Wire], tmp_path: Path
) -> None:
    def attempt() -> float:
        with serve(tmp_path, bad("return 1", ENDINGS[ending]), kind) as wire:
            assert wire.result("bad") == 1
            assert wire.result("good") == 7
            pid = wire.client.process.pid
            took = wire.leave()
            wait_until(lambda: not copies_of(tmp_path, pid), "no process is left")
        assert "Traceback" not in wire.text()
        return took

    assert shortest(attempt, WINDOW) < WINDOW


def copies_of(home: Path, pid: int) -> list[int]:
    """Return the processes that run for a user with this home folder."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit() and int(each.name) != pid:
            try:
                if f"HOME={home}/home".encode() in (each / "environ").read_bytes().split(b"\0"):
                    found.append(int(each.name))
            except OSError:
                continue
    return found


# A client that floods.


@BOTH
def test_a_cancel_behind_11_mb_of_requests_is_heeded(kind: type[Wire], tmp_path: Path) -> None:
    text = f"{SPIN}\n@method\ndef size(text: str) -> int: return len(text)\n"

    def attempt() -> float:
        mark = tmp_path / "mark"
        mark.unlink(missing_ok=True)
        with serve(tmp_path, {"spin.py": text}, kind) as wire:
            assert wire.result("good") == 7
            id = wire.start("spin", mark=str(mark))
            wait_for_file(mark)
            queued = [wire.start("size", text="x" * 1_000_000) for _ in range(11)]
            start = time.monotonic()
            wire.cancel(id)
            if wire.cancelled_is_answered:
                assert wire.reply(id)["error"]["code"] == -32800
            for each in queued:
                assert "result" in wire.reply(each)
            took = time.monotonic() - start
            assert wire.leave() < WINDOW
        return took

    assert shortest(attempt, 5.0) < 5.0


def test_20_000_cancels_of_unknown_requests_cost_seconds_over_mcp(tmp_path: Path) -> None:
    many, limit = 20_000, 8.0
    text = (
        f"{HEAD}\n@method\ndef until(gate: str, mark: str) -> int:\n    open(mark, 'w')\n"
        "    while not os.path.exists(gate): time.sleep(0.01)\n    return 1\n"
    )

    def attempt() -> float:
        gate, mark = tmp_path / "gate", tmp_path / "mark"
        for each in (gate, mark):
            each.unlink(missing_ok=True)
        with serve(tmp_path, {"until.py": text}, McpWire) as wire:
            id = wire.start("until", gate=str(gate), mark=str(mark))
            wait_for_file(mark)
            ping = {"jsonrpc": "2.0", "method": "ping"}
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
            lines: list[dict[str, object]] = [{**ping, "id": f"q{n}"} for n in range(many)]
            lines += [{**cancel, "params": {"requestId": f"u{n}"}} for n in range(many)]
            start = time.monotonic()
            wire.client.send(b"".join(json.dumps(each).encode() + b"\n" for each in lines))
            gate.touch()
            replies = [wire.client.receive() for _ in range(many + 1)]
            assert {each["id"] for each in replies} == {id, *(f"q{n}" for n in range(many))}
            assert all("result" in each for each in replies)
            return time.monotonic() - start

    assert shortest(attempt, limit) < limit


@pytest.mark.parametrize("token", ["1e400", "1e2", "1.5", "-0", "[1]", "true", "null"])
def test_an_invalid_progress_token_costs_only_the_progress(token: str, tmp_path: Path) -> None:
    text = (
        f"{HEAD}\n@method\ndef steps(ctx: Context) -> int:\n"
        "    ctx.progress(1, 2)\n    ctx.progress(2, 2)\n    return 1\n"
    )
    with serve(tmp_path, {"steps.py": text}, McpWire) as wire:
        params = f'{{"name":"steps","arguments":{{}},"_meta":{{"progressToken":{token}}}}}'
        body = f'{{"jsonrpc":"2.0","id":"t","method":"tools/call","params":{params}}}\n'
        wire.client.send(body.encode())
        message = wire.client.receive_raw()
        while b'"id":"t"' not in message:  # told of in the words of the client, or not at all
            assert f'"progressToken":{token}'.encode() in message
            message = wire.client.receive_raw()
        assert json.loads(message)["result"]["structuredContent"] == {"result": 1}
        assert wire.leave() < WINDOW


def test_messages_about_failing_files_are_whole_frames(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        f"f{n}.py": f"raise ValueError({'x' * 3000!r})\n" for n in range(50)
    }
    data = b"".join(request(n, "reloadMethods") for n in range(20))
    with serve(tmp_path, files, Wire, "--debug") as wire:
        wire.client.send(data + notification("reloadMethods"))
        for n in range(20):
            assert "result" in wire.reply(n)
        check_others(wire)
