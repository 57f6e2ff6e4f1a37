"""How long a frame may take, and that a daemon with nothing to do does nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from duet_rpc import __version__
from tests.machine import stays_asleep, wait_for_loguru
from tests.support import WITH_METHODS, daemon, request

# Timeouts. The same code as with 30 seconds, with a shorter one.


def test_an_endless_frame_is_dropped_with_one_warning_each_time() -> None:
    with daemon([*WITH_METHODS, "0.3"]) as client:
        client.call("version")
        for number in range(3):
            client.send(b'Content-Length: 100\r\n\r\n{"jsonrpc"')
            assert client.silent_for(1.5)
            client.send(b': "2.0"}')  # its rest, too late
            assert client.call("version", id=number) == {"version": __version__}
        code, replies, log = client.finish()
    assert (code, replies) == (0, [])
    assert log.count("WARN") == 3
    assert log.count("a frame was not complete after 0.3 s") == 3


def test_a_header_that_never_ends_is_dropped_too() -> None:
    with daemon([*WITH_METHODS, "0.3"]) as client:
        client.call("version")
        client.send(b"Content-Length: 4")
        assert client.silent_for(1.5)
        assert client.call("version") == {"version": __version__}
        _, replies, log = client.finish()
    assert replies == []
    assert log.count("WARN") == 1


def test_bytes_that_trickle_in_do_not_extend_the_time() -> None:
    with daemon([*WITH_METHODS, "0.5"]) as client:
        client.call("version")
        start = time.monotonic()
        client.send(b"Content-Length: 1000\r\n\r\n")
        while time.monotonic() - start < 2.0:
            client.send(b" ")
            time.sleep(0.02)  # a slow client
        assert client.call("version") == {"version": __version__}
        _, replies, log = client.finish()
    assert replies == []
    assert log.count("a frame was not complete") == 1


def test_waiting_between_frames_is_no_timeout() -> None:
    with daemon([*WITH_METHODS, "0.2"]) as client:
        for number in range(3):
            assert client.call("version", id=number)
            assert client.silent_for(0.4)
        client.send(b"\r\n")
        assert client.silent_for(0.4)
        code, _, log = client.finish()
    assert code == 0
    assert "WARN" not in log


def test_each_frame_has_its_own_time() -> None:
    with daemon([*WITH_METHODS, "2"]) as client:
        data = request(1)
        for number in range(4):
            client.send(data[:20])
            assert client.silent_for(0.8)
            client.send(data[20:])
            assert client.receive()["id"] == 1, number
        _, _, log = client.finish()
    assert "WARN" not in log


def test_each_frame_has_its_own_read_timeout() -> None:
    with daemon([*WITH_METHODS, "2"]) as client:
        data = request(1)
        client.send(data[:20])
        for number in range(4):
            assert client.silent_for(0.8)
            client.send(data[20:] + data[:20])
            assert client.receive()["id"] == 1, number
        _, _, log = client.finish()
    assert "not complete" not in log


# Nothing to do.


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("method", ["version", "chatty"])
def test_an_idle_daemon_does_not_wake(method: str) -> None:
    with daemon(WITH_METHODS) as client:
        client.call(method)
        wait_for_loguru(client.process.pid)
        for _ in range(2):
            client.call(method)
        assert stays_asleep(client.process.pid), "it woke in each of five seconds"
