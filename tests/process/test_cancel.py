"""Cancel, wherever a method is: one reply, and the next request is served."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cancel_methods import HARD
from tests.pyz.conftest import PYTHONS
from tests.support import (
    CANCELLED,
    PYZ,
    SOURCE,
    TOP,
    Client,
    cancel,
    daemon,
    load,
    request,
    shortest,
    wait_for_file,
    wait_until,
)
from tests.terminal import is_alive

METHODS = ["--methods", str(TOP / "tests" / "cancel_methods.py")]
SOON = 2.0
"""Seconds from a cancel to its reply that nobody calls prompt any more."""


class Caller:
    """Starts methods and cancels them."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self._folder = folder
        self._count = 0

    def start(self, method: str, **params: object) -> Path:
        """Have a method running, as request number one; return its mark."""
        self._count += 1
        mark = self._folder / f"{method}{self._count}"
        given: object = {"mark": str(mark)} if method == "in_post_init" else str(mark)
        meta = {"progressToken": "t"}
        self.client.send(request(1, method, {"mark": given, **params, "_meta": meta}))
        wait_for_file(mark)
        return mark

    def reply(self) -> dict[str, Any]:
        """Return the next reply; skip reports of progress."""
        while True:
            body = self.client.receive_raw()
            if "method" not in json.loads(body):
                return load(body)

    def cancel(self, again: bool = False) -> float:
        """Cancel the method, expect it to end; return how long that took.

        `again` is for an event loop, which swallows what is raised between two callbacks.
        """
        start = time.monotonic()
        self.client.send(cancel(1))
        while again and self.client.silent_for(3.0):
            self.client.send(cancel(1))
        assert self.reply() == {"jsonrpc": "2.0", "id": 1, "error": CANCELLED}
        return time.monotonic() - start

    def check_next(self) -> None:
        """Expect the next requests to be served, and the next method to be cancelled, too."""
        self.client.send(request("next"))
        assert self.reply()["id"] == "next"
        self.start("in_a_loop")
        self.cancel()


@contextmanager
def caller(folder: Path, command: Sequence[str | Path] = SOURCE) -> Iterator[Caller]:
    """Run a daemon with the methods; it must leave in a proper way."""
    # Not a pipe for the log: a method's lines would fill it.
    with (
        (folder / "log").open("wb") as log,
        daemon([*command, "rpc", *METHODS], stderr=log, start_new_session=True) as client,
    ):
        client.call("version")
        yield Caller(client, folder)
        code, replies, _ = client.finish()
    assert (code, replies) == (0, [])
    text = (folder / "log").read_text()
    # An event loop swallows what is raised between two callbacks, and says so in its own way.
    assert "Traceback" not in text or "Exception in callback" in text


# One cancel ends it.


@pytest.mark.parametrize("method", HARD)
def test_one_cancel_ends_a_method_wherever_it_is(method: str, tmp_path: Path) -> None:
    with caller(tmp_path) as calls:

        def attempt() -> float:
            calls.start(method)
            return calls.cancel()

        assert shortest(attempt, SOON) < SOON
        calls.check_next()


@pytest.mark.parametrize("python", PYTHONS.values(), ids=[f"py{version}" for version in PYTHONS])
def test_every_python_cancels_every_method(python: str, tmp_path: Path) -> None:
    # In a new order each time: what one leaves behind must not hurt the next.
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)  # noqa: S311
    with caller(tmp_path, [python, PYZ]) as calls:
        for method in chance.sample(HARD, len(HARD)):
            print(method)
            calls.start(method)
            calls.cancel(again="asyncio" in method)
        calls.check_next()


@pytest.mark.parametrize("method", ["in_a_loop", "in_sleep"])
def test_a_cancel_in_the_same_chunk_as_its_request_works(method: str, tmp_path: Path) -> None:
    with caller(tmp_path) as calls:
        for round in range(50):
            params = {"mark": str(tmp_path / f"mark{round}")}
            calls.client.send(request(1, method, params) + cancel(1) + request(2))
            assert calls.reply()["error"] == CANCELLED
            assert calls.reply()["id"] == 2


@pytest.mark.parametrize(
    "method", ["in_its_log", "in_loguru", "in_its_progress", "in_a_queue", "in_asyncio_at_work"]
)
def test_the_same_method_is_cancelled_again_and_again(method: str, tmp_path: Path) -> None:
    # At another point of the same code each time: no lock may stay taken.
    with caller(tmp_path) as calls:
        for _ in range(15 if "asyncio" in method else 40):
            calls.start(method)
            calls.cancel(again="asyncio" in method)
        calls.check_next()


def test_a_cancelled_subprocess_does_not_outlive_its_method(tmp_path: Path) -> None:
    with caller(tmp_path) as calls:
        mark = calls.start("in_a_subprocess")
        pid = int(Path(f"{mark}.pid").read_text())
        assert is_alive(pid)
        calls.cancel()
        wait_until(lambda: not is_alive(pid), "the subprocess has ended")


def test_c_code_that_ends_is_cancelled_at_its_end(tmp_path: Path) -> None:
    with caller(tmp_path) as calls:
        calls.start("in_system")
        calls.cancel()
        calls.check_next()


def test_a_method_that_shuts_other_threads_out_is_cancelled(tmp_path: Path) -> None:
    with caller(tmp_path) as calls:
        calls.start("with_a_long_switch_interval")
        calls.cancel()
        calls.check_next()


# What a method does with its cancel.


@pytest.mark.parametrize("round", range(3))
def test_a_finally_clause_runs_to_its_end(round: int, tmp_path: Path) -> None:
    with caller(tmp_path) as calls:
        mark = calls.start("cleans_up")
        time.sleep(round / 50)  # another point of the method in each round
        calls.cancel()
        assert Path(f"{mark}.clean").exists()
        calls.check_next()


def test_a_context_manager_is_closed(tmp_path: Path) -> None:
    with caller(tmp_path) as calls:
        mark = calls.start("in_a_context_manager")
        calls.cancel()
        assert Path(f"{mark}.closed").exists()


@pytest.mark.parametrize("method", ["catches_and_returns", "catches_and_fails", "in_del"])
def test_a_method_that_catches_its_cancel_is_answered_once(method: str, tmp_path: Path) -> None:
    # With its cancel or with what it came to: the caller has lost interest in either.
    with caller(tmp_path) as calls:
        calls.start(method)
        calls.client.send(cancel(1))
        reply = calls.reply()
        assert reply["id"] == 1
        assert reply.get("result") in ("caught", "out of it") or reply["error"]["code"] in (
            -32800,
            -32603,
        )
        calls.check_next()


@pytest.mark.parametrize(
    ("method", "sign"), [("catches_and_goes_on", "caught"), ("in_del_and_on", "out")]
)
def test_a_second_cancel_interrupts_again(method: str, sign: str, tmp_path: Path) -> None:
    with caller(tmp_path) as calls:
        mark = calls.start(method)
        calls.client.send(cancel(1))
        wait_for_file(Path(f"{mark}.{sign}"))
        calls.cancel()
        calls.check_next()


# Races.


def test_a_cancel_that_races_with_the_end_hits_nobody_else(tmp_path: Path) -> None:
    chance = random.Random(13)  # noqa: S311
    cancelled = 0
    with caller(tmp_path) as calls:
        client = calls.client
        for number in range(2000):
            client.send(request(number, "short", [number, chance.uniform(0, 0.0006)]))
            until = time.perf_counter() + chance.uniform(0, 0.0008)
            while time.perf_counter() < until:
                pass
            client.send(cancel(number) + request("next", "short", [number, 0.0002]))
            first, second = client.receive(), client.receive()
            assert first["id"] == number
            if "result" in first:
                assert first["result"] == number
            else:
                assert first["error"] == CANCELLED
                cancelled += 1
            assert second == {"jsonrpc": "2.0", "id": "next", "result": number}
    print(f"{cancelled} of 2000 were cancelled")


def test_cancels_in_the_stream_hit_only_their_own_requests(tmp_path: Path) -> None:
    data, wanted = b"", 0
    for number in range(3000):
        data += request(number, "short", [number, 0.00005])
        data += cancel(number - number % 3)  # of this one, or of one or two before
        wanted += 1
    with caller(tmp_path) as calls:
        replies = calls.client.exchange(data, wanted)
    assert [reply["id"] for reply in replies] == list(range(3000))
    for number, reply in enumerate(replies):
        if number % 3 == 0:
            assert reply.get("result") == number or reply["error"] == CANCELLED
        else:
            assert reply["result"] == number


@pytest.mark.parametrize("which", ["unknown", "queued", "queued, last first"])
def test_20_000_requests_and_cancels_behind_a_method_cost_seconds(
    which: str, tmp_path: Path
) -> None:
    many, limit = 20_000, 8.0
    ids = [f"q{number}" for number in range(many)]
    named = {"unknown": [f"u{number}" for number in range(many)], "queued": ids}.get(
        which, ids[::-1]
    )
    data = b"".join([request(id) for id in ids] + [cancel(id) for id in named])

    def attempt() -> float:
        with caller(tmp_path) as calls:
            gate = tmp_path / "gate"
            gate.unlink(missing_ok=True)
            calls.start("until", gate=str(gate))
            start = time.monotonic()
            calls.client.send(data)
            gate.touch()
            assert calls.reply()["result"] == "open"
            replies = [calls.client.receive() for _ in range(many)]
            took = time.monotonic() - start
        assert [reply["id"] for reply in replies] == ids
        if which == "unknown":
            assert all("result" in reply for reply in replies)
        else:  # a cancel that is read after the method has ended may come too late
            assert all("result" in reply or reply["error"] == CANCELLED for reply in replies)
        return took

    assert shortest(attempt, limit) < limit


def test_cancelling_is_as_quick_with_a_long_queue_behind_it(tmp_path: Path) -> None:
    many = 20_000
    with caller(tmp_path) as calls:
        calls.start("in_a_loop")
        calls.client.send(b"".join(request(id) for id in range(2, many)))

        start = time.monotonic()
        calls.client.send(cancel(1))
        assert calls.reply()["error"] == CANCELLED
        assert time.monotonic() - start < 5.0
        assert [calls.client.receive()["id"] for _ in range(2, many)] == list(range(2, many))


# Forks.


@pytest.mark.parametrize("way", ["returns", "exits", "sleeps"])
def test_a_method_that_forks_is_answered_once(way: str) -> None:
    with daemon([*SOURCE, "rpc", *METHODS], start_new_session=True) as client:
        for round in range(3):
            assert client.call("forks", [way], id=round) == "parent"
            # A child that is still there reads nothing and answers nothing.
            for id in range(20):
                assert client.call("short", [id, 0.0], id=id) == id
            assert client.silent_for(0.05)
        client.close_input()
        code, seconds = client.wait()
    assert code == 0
    assert seconds < 1.5


def test_a_cancel_reaches_a_method_that_has_a_child(tmp_path: Path) -> None:
    with caller(tmp_path) as calls:
        for _ in range(5):
            calls.start("behind_a_child_that_sleeps")
            calls.cancel()
        calls.check_next()


def test_a_package_whose_import_was_interrupted_can_be_imported_again(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    package = tmp_path / "site/half"
    package.mkdir(parents=True)
    (package / "part.py").write_text("VALUE = 7\n")
    (package / "__init__.py").write_text(
        "import os, time\nfrom .part import *\n"
        f"if not os.path.exists({str(mark)!r}):\n    open({str(mark)!r}, 'w').close()\n"
        "    time.sleep(60)\nVALUE = part.VALUE\n"
    )
    file = tmp_path / "lazy.py"
    file.write_text(
        "from duet_rpc import method\n@method\ndef f() -> int:\n    import half\n"
        "    return half.VALUE\n"
    )
    env = {"PYTHONPATH": f"{TOP}{os.pathsep}{tmp_path / 'site'}"}
    with daemon([*SOURCE, "rpc", "--methods", str(file)], env) as client:
        client.send(request(1, "f"))
        wait_for_file(mark)
        client.send(cancel(1))
        assert client.receive()["error"] == CANCELLED
        assert client.call("f") == 7
