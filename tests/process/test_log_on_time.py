"""A log line is on its sink at once, whatever becomes of the daemon."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.logs import EARLY_AND_LATE
from tests.machine import wait_for_loguru
from tests.support import SOURCE, Client, daemon, request


@contextmanager
def logged(tmp_path: Path, sink: str, *flags: str) -> Iterator[tuple[Client, Callable[[], str]]]:
    """Run a daemon, with what reads all that is on its sink by now."""
    path = tmp_path / "duet.log"
    env = {"DUET_RPC_LOG": str(path) if sink == "file" else ""}
    with daemon([*SOURCE, "rpc", *flags], env) as client:
        assert client.process.stderr is not None
        stderr = client.process.stderr.fileno()
        os.set_blocking(stderr, False)

        def read() -> str:
            if sink == "file":
                return path.read_text()
            try:
                return os.read(stderr, 1 << 20).decode()
            except BlockingIOError:
                return ""

        yield client, read


SINKS = pytest.mark.parametrize("sink", ["stderr", "file"])


@SINKS
@pytest.mark.parametrize("gap", [0.0, 0.01], ids=["in a burst", "one by one"])
@EARLY_AND_LATE
def test_what_was_logged_survives_kill_9(tmp_path: Path, sink: str, gap: float, late: bool) -> None:
    with logged(tmp_path, sink) as (client, read):
        client.call("version")
        if late:
            wait_for_loguru(client.process.pid)
        for number in range(87):
            client.send(request(number, "nonsense"))
            assert client.receive()["id"] == number
            time.sleep(gap)  # a client that takes its time
        client.process.kill()
        client.process.wait()
        text = read()
    assert text.count(" started: pid ") == 1
    assert re.findall(r"method=nonsense id=(\d+) Method", text) == [str(n) for n in range(87)]


@SINKS
@EARLY_AND_LATE
def test_a_line_is_on_its_sink_before_the_reply(tmp_path: Path, sink: str, late: bool) -> None:
    with logged(tmp_path, sink) as (client, read):
        client.call("version")
        assert "started: pid" in read()
        if late:
            wait_for_loguru(client.process.pid)
        for number in range(20):
            client.send(request(number, "nonsense"))
            client.receive()
            assert f"method=nonsense id={number} Method not found" in read()


CRASHES = """
import ctypes, os
from duet_rpc import method, Context

@method
def abort(ctx: Context) -> None:
    ctx.log.info("about to crash")
    os.abort()

@method
def segfault(ctx: Context) -> None:
    ctx.log.info("about to crash")
    ctypes.string_at(0)
"""


@SINKS
@pytest.mark.parametrize("method", ["abort", "segfault"])
def test_a_crash_in_the_first_call_leaves_a_log(tmp_path: Path, sink: str, method: str) -> None:
    path = tmp_path / "crash.py"
    path.write_text(CRASHES)
    with logged(tmp_path, sink, "--methods", str(path)) as (client, read):
        client.send(request(1, method))
        assert client.wait()[0] < 0
        text = read()
    assert "started: pid" in text
    assert f"INFO  method={method} id=1 about to crash" in text
