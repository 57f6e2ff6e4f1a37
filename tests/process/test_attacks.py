"""What a hostile method may cost: its own call, and nothing else.

Each row of the tables in `tests.attacks` once ended the daemon, or kept other methods from being
called, or is the proof that it does not.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.attacked import BOTH, DEBUG, SECRET, WINDOW, McpWire, Wire, check_others, serve
from tests.attacks import CHANGES, ENDINGS, HEAD, PROGRESS, RAISED, SPIN, bad
from tests.support import shortest, wait_for_file, wait_until

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
