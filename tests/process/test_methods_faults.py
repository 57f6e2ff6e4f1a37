"""What methods do wrong costs one request, and the daemon goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.machine import wait_until_computing, wait_until_idle
from tests.method_files import ask, env_for, write
from tests.support import (
    CANCELLED,
    SOURCE,
    WITH_METHODS,
    cancel,
    daemon,
    notification,
    request,
    run,
)


def call(method: str, params: object = None) -> tuple[dict[str, Any], str]:
    _, replies, log = run(request(1, method, params) + request(2), WITH_METHODS)
    assert [reply["id"] for reply in replies] == [1, 2]
    return replies[0], log


@pytest.mark.parametrize(
    ("method", "where"), [("recurse", "RecursionError"), ("hoard", "MemoryError")]
)
def test_a_method_that_takes_too_much_is_an_internal_error(method: str, where: str) -> None:
    reply, log = call(method)
    assert reply["error"] == {"code": -32603, "message": "Internal error"}
    assert f"method={method} id=1 Internal error: {where}" in log


@pytest.mark.parametrize("body", ["raise ValueError", "return 5", "import sys; sys.exit(3)"])
def test_an_error_with_an_unreadable_message_is_internal(tmp_path: Path, body: str) -> None:
    text = (
        "from duet_rpc import method\n"
        f"class Bad(Exception):\n    def __str__(self): {body}\n"
        "@method\ndef bad() -> None: raise Bad\n"
    )
    flags = ["--methods", str(write(tmp_path, text))]
    results, log = ask(tmp_path, request(1, "bad") + request(2), *flags)
    assert results[0] == {"code": -32603, "message": "Internal error"}
    assert "version" in results[1]
    assert "Internal error: Bad (words.py:5 in bad)" in log


def test_a_fault_of_our_own_costs_one_request() -> None:
    code, replies, log = run(request(1, "odd") + notification("odd") + request(2), WITH_METHODS)
    assert code == 0
    assert replies[0]["error"] == {"code": -32603, "message": "Internal error"}
    assert replies[1]["id"] == 2
    assert log.count("ERROR method=odd") == 2
    assert "Internal error: KeyError (daemon_with_methods.py" in log


STRAYS = """
import threading, time
from duet_rpc import method

class Odd:
    def __del__(self): raise ValueError("of an object")

@method
def strays(secret: str) -> str:
    Odd()
    def work(): raise ValueError("of a thread: " + secret)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return "done"
"""


def test_unraisable_exceptions_are_logged(tmp_path: Path) -> None:
    flags = ["--methods", str(write(tmp_path, STRAYS))]
    results, log = ask(tmp_path, request(1, "strays", ["of no use"]), *flags)
    assert results == ["done"]
    assert "ERROR ValueError (words.py:6 in __del__), ignored" in log
    assert "ERROR ValueError (words.py:11 in work), ignored" in log


def test_a_method_that_takes_the_signals_does_not_keep_them() -> None:
    import signal

    with daemon(WITH_METHODS) as client:
        client.call("version", id="up")
        assert client.call("signals") == "taken"
        client.send(request(2, "give_up"))
        wait_until_computing(client.process.pid)
        client.send(cancel(2))
        assert client.receive()["error"] == CANCELLED
        client.signal(signal.SIGTERM)
        assert client.wait()[0] == 0


def test_a_method_with_asyncio_does_not_keep_the_signals(
    tmp_path: Path,
) -> None:
    import signal

    text = (
        "import asyncio, signal\nfrom duet_rpc import method\n@method\ndef loop() -> str:\n"
        "    async def work():\n"
        "        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, print)\n"
        "        await asyncio.sleep(0.01)\n"
        "        return 'done'\n"
        "    return asyncio.run(work())\n"
    )
    path = write(tmp_path, text)
    with daemon([*SOURCE, "rpc", "--methods", path], env_for(tmp_path)) as client:
        assert client.call("loop") == "done"
        wait_until_idle(client.process.pid)
        client.signal(signal.SIGTERM)
        code, seconds = client.wait()
    assert code == 0
    assert seconds < 1.5


def test_a_method_that_forks_answers_once() -> None:
    reply, _ = call("forks")
    assert reply["result"] == "parent"
