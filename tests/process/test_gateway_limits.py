"""What no client and no backend can make the gateway do: hang, grow, or wait for one of them."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from itertools import permutations
from pathlib import Path

import pytest

from tests.gateway import GatewayClient, backend, gateway, mcp, write_config
from tests.machine import Stopwatch, stays_asleep, wait_until_idle
from tests.support import SOURCE, daemon, frame, request, shortest, wait_until
from tests.terminal import is_alive, is_gone

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
MANY = 300


def push(client: GatewayClient, data: bytes, seconds: float = 5.0) -> int:
    """Write as long as the gateway reads; return how much it took."""
    assert client.process.stdin is not None
    descriptor = client.process.stdin.fileno()
    os.set_blocking(descriptor, False)
    view, until = memoryview(data), time.monotonic() + seconds
    room = select.poll()
    room.register(descriptor, select.POLLOUT)
    while view and time.monotonic() < until and room.poll(1000):
        try:
            view = view[os.write(descriptor, view[:65536]) :]
        except BlockingIOError:
            break
    os.set_blocking(descriptor, True)
    return len(data) - len(view)


def peak(client: GatewayClient) -> int:
    """Return the most memory that the gateway has had, in kB."""
    status = Path(f"/proc/{client.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


# A client that does not read.


@pytest.mark.parametrize("method", ["version", "rpc.discover", "a/echo", "nowhere/x"])
def test_a_client_that_leaves_unread_replies_is_not_waited_for(tmp_path: Path, method: str) -> None:
    def attempt() -> float:
        with gateway(tmp_path, {"a": backend()}) as client:
            pid = client.ask("a/pid")["result"]
            one = request(1, method, {}) + request("x", method, {})
            push(client, one * (8_000_000 // len(one)))
            start = time.monotonic()
            client.close_input()
            client.process.wait(30)
            took = time.monotonic() - start
            assert client.process.returncode == 0
            assert not is_alive(pid)
        return took

    assert shortest(attempt, 2.0) < 2.0


@pytest.mark.parametrize("how", ["EOF", "SIGTERM"])
def test_a_client_that_reads_nothing_is_not_waited_for(tmp_path: Path, how: str) -> None:
    def attempt() -> float:
        one = {"s": backend("ignore-term", "stay")}
        with gateway(tmp_path, one, log="") as client:
            pid = client.ask("s/pid")["result"]
            data = request("x", "nowhere/x")
            push(client, data * (8_000_000 // len(data)))
            start = time.monotonic()
            if how == "EOF":
                client.close_input()
            else:
                client.signal(signal.SIGTERM)
            client.process.wait(30)
            took = time.monotonic() - start
            assert is_gone(pid)
        return took

    assert shortest(attempt, 2.0) < 2.0


@LINUX
def test_a_client_that_reads_nothing_wakes_nobody(tmp_path: Path) -> None:
    with gateway(tmp_path, {}) as client:
        data = request("x", "nowhere/x")
        push(client, data * (8_000_000 // len(data)))
        assert stays_asleep(client.process.pid)


def test_requests_before_the_end_of_input_are_answered(tmp_path: Path) -> None:
    with gateway(tmp_path, {}) as client:
        count = 0
        data = b"".join(request(number, "rpc.discover") for number in range(20_000))
        sent = push(client, data)
        assert sent < len(data), "the gateway has stopped to read"
        client.close_input()
        assert client.process.stdout is not None
        rest = b""
        while True:
            chunk = os.read(client.process.stdout.fileno(), 1 << 20)
            if not chunk:
                break
            rest += chunk
            count += chunk.count(b"Content-Length:")
        assert client.process.wait(10) == 0
        assert count > 1000


@LINUX
@pytest.mark.parametrize("known", [True, False])
def test_large_lists_that_nobody_reads_cost_little_memory(tmp_path: Path, known: bool) -> None:
    tools = [{"name": f"t{number}", "description": "x" * 1000} for number in range(1000)]
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(tools))
    with gateway(tmp_path, {"m": mcp(f"tools-file={path}")}) as client:
        if known:
            assert len(client.ask("tools/list")["result"]["tools"]) == 1000
        push(client, b"".join(request(number, "tools/list") for number in range(300)))
        wait_until_idle(client.process.pid)
        assert peak(client) < 120_000, "kB, with 300 MB to come"
        replies = client.replies(300)
        assert all(len(each["result"]["tools"]) == 1000 for each in replies.values())


@LINUX
def test_thousands_of_failures_with_a_long_stderr_cost_little_memory(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        client.ask("a/stderr", [("\x01" * 1900 + "\n") * 20])
        client.send(b"".join(request(number, "a/hold") for number in range(9000)))
        client.ask("a/held", id="h")
        client.send(request("d", "a/die"))
        wait_until_idle(client.process.pid)
        assert peak(client) < 150_000
        replies = client.replies(9001)
        assert len(replies) == 9001
        assert replies[8999]["error"]["data"]["stderr"].endswith("last words")


@LINUX
@pytest.mark.parametrize("kind", ["string", "number"])
def test_ids_without_measure_in_flight_cost_little_memory(tmp_path: Path, kind: str) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        client.ask("a/pid")
        refused = 0
        for number in range(12):
            digits = f"{number + 10}" + "1" * 4_000_000
            id = digits if kind == "number" else f'"{digits}"'
            client.send(frame(f'{{"jsonrpc":"2.0","id":{id},"method":"a/hold"}}'))
            if number > 1:
                assert b"queue-full" in client.receive_raw()
                refused += 1
        assert refused == 10
        assert peak(client) < 80_000, "kB; with all that was refused it would be 100,000"
        client.send(request("r", "a/release"))
        assert sum(len(client.receive_raw()) > 4_000_000 for _ in range(3)) == 2
        client.send(frame(f'{{"jsonrpc":"2.0","id":"{"x" * 9_000_000}","method":"a/id"}}'))
        assert b'"result"' in client.receive_raw()


def test_a_handshake_refused_at_length_is_reported_briefly(tmp_path: Path) -> None:
    times = {"restart": ""}
    with gateway(tmp_path, {"m": mcp("refuse-handshake=5000000")}, times=times) as client:
        client.ask("m/x")
        client.state("m", "failed")
        assert 50 < len(client.status("m")["reason"]) < 500


def test_more_lists_than_can_wait_are_refused(tmp_path: Path) -> None:
    with gateway(tmp_path, {"m": mcp("slow-handshake=8")}, times={"list": 9}) as client:
        count = 12_000
        client.send(b"".join(request(number, "tools/list") for number in range(count)))
        replies = client.replies(count)
        refused = [each["error"] for each in replies.values() if "error" in each]
        assert len(refused) == 2000
        assert refused[0]["code"] == -32803
        assert refused[0]["data"]["reason"] == "queue-full"
        client.ask("version")


# One server delays no other.


def delays(client: GatewayClient, name: str, seconds: float) -> float:
    """Call a backend again and again for a while; return the longest wait."""
    longest, until, number = 0.0, time.monotonic() + seconds, 0
    while time.monotonic() < until:
        number += 1
        watch = Stopwatch(client.process.pid)
        client.send(request(number, f"{name}/id"))
        while client.receive()["id"] != number:
            pass
        longest = max(longest, watch.seconds())
    return longest


def test_thousands_of_tools_of_one_name_delay_nobody(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([{"name": "same"}] * 8000 + [{"name": "other"}]))
    with gateway(tmp_path, {"m": mcp(f"tools-file={path}"), "b": backend()}) as client:
        names = [each["name"] for each in client.ask("tools/list")["result"]["tools"]]
        assert names == ["m__same", "m__other"], "they could not be told apart in a call"
    assert "left out 7999 tools" in (tmp_path / "log").read_text()


def test_a_tool_with_thousands_of_required_parameters_delays_nobody(tmp_path: Path) -> None:
    names = [f"parameter{number}" for number in range(20_000)]
    schema = {"type": "object", "properties": {name: {} for name in names}, "required": names}
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([{"name": "wide", "inputSchema": schema}]))

    def attempt() -> float:
        with gateway(tmp_path, {"m": mcp(f"tools-file={path}")}) as client:
            client.ask("tools/list")
            start = time.monotonic()
            described = client.ask("describeMethods")["result"]
            took = time.monotonic() - start
            assert len(described[-1]["params"]) == 20_000
        return took

    assert shortest(attempt, 1.0) < 1.0


@pytest.mark.parametrize("how", ["die", "killed"])
@pytest.mark.parametrize(
    "broken",
    [
        "Content-Length: x\r\n\r\n",
        "Content-Length: 3\r\n\r\n[[[",
        "garbage\n",
        "Content-Length: 1\r\n",
    ],
)
def test_a_backend_that_dies_after_much_garbage_delays_nobody(
    tmp_path: Path, broken: str, how: str
) -> None:
    def attempt() -> float:
        with gateway(tmp_path, {"a": backend(), "b": backend()}) as client:
            client.ask("b/pid")
            pid = client.ask("a/pid")["result"]
            client.send(request("g", "a/garbage", [broken, 10_000_000, how == "die"]))
            if how == "killed":
                wait_until_idle(pid)  # it has written all, or waits for the gateway
                os.kill(pid, signal.SIGKILL)
            return delays(client, "b", 1.5)

    assert shortest(attempt, 0.6) < 0.6  # it was 3 s


def test_what_a_backend_wrote_last_counts_behind_garbage(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        client.ask("a/pid")
        reply = '{"jsonrpc":"2.0","id":ID,"result":"whole"}'
        text = "nonsense\n" * 20 + f"Content-Length: {len(reply) - 1}\r\n\r\n{reply}"
        client.send(request("r", "a/raw", [text]) + request("d", "a/die"))
        replies = client.replies(2)
        assert replies["r"]["result"] == "whole"
        assert replies["d"]["error"]["data"]["exitCode"] == 3


@LINUX
def test_a_watchdog_that_is_stopped_holds_up_nothing(tmp_path: Path) -> None:
    many = {f"b{number}": {"command": ["sleep", "100"]} for number in range(30)}
    with gateway(tmp_path, {"a": backend(), **many}) as client:
        known = client.ask("a/pid")["result"]
        pid = client.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        (watchdog,) = {int(each) for each in children} - {known}
        os.kill(watchdog, signal.SIGSTOP)
        try:
            for number in range(1500):  # each writes a line to it
                client.send(request(number, "gateway/restart", [f"b{number % 30}"]))
            client.replies(1500)
            assert client.ask("a/pid", id="end")["result"] == known
        finally:
            os.kill(watchdog, signal.SIGCONT)


def test_a_client_that_reads_little_by_little_gets_everything(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        client.send(b"".join(request(number, "a/big", [300_000]) for number in range(40)))
        assert client.process.stdout is not None
        got, until = b"", time.monotonic() + 0.5
        while time.monotonic() < until:
            got += os.read(client.process.stdout.fileno(), 1000)
            time.sleep(0.005)  # a slow client
        while got.count(b"x") < 40 * 300_000:
            piece = os.read(client.process.stdout.fileno(), 1 << 20)
            assert piece, "the gateway closed its stdout"
            got += piece


# Many backends.


def test_replies_do_not_wait_for_hundreds_of_starts(tmp_path: Path) -> None:
    many = {f"b{number}": backend(start="eager") for number in range(MANY)}

    def attempt() -> float:
        with gateway(tmp_path, many) as client:
            start = time.monotonic()
            client.ask("version")
            took = time.monotonic() - start
            start = time.monotonic()
            client.close_input()
            client.process.wait(30)
            assert client.process.returncode == 0
            return max(took / 0.5, (time.monotonic() - start) / 2.0)

    assert shortest(attempt, 1.0) < 1.0


def test_hundreds_of_running_backends_end_in_time(tmp_path: Path) -> None:
    sleeper = {"command": ["sleep", "1000"], "start": "eager"}
    many = {f"b{number}": sleeper for number in range(MANY)}

    def attempt() -> float:
        with gateway(tmp_path, many) as client:
            wait_until(lambda: all(each["pid"] for each in client.status()["backends"]), "all run")
            pids = [each["pid"] for each in client.status()["backends"]]
            client.notes.clear()
            start = time.monotonic()
            client.close_input()
            client.process.wait(30)
            took = time.monotonic() - start
            assert client.process.returncode == 0
            assert [pid for pid in pids if not is_gone(pid)] == []
        return took

    assert shortest(attempt, 2.0) < 2.0


def test_a_list_that_starts_hundreds_of_servers_delays_no_reply(tmp_path: Path) -> None:
    many = {f"m{number}": mcp("pages=1") for number in range(100)}

    def attempt() -> float:
        with gateway(tmp_path, many) as client:
            client.ask("version")
            start = time.monotonic()
            client.send(request("list", "tools/list") + request("v", "version"))
            assert client.receive()["id"] == "v"
            took = time.monotonic() - start
            client.send(request("w", "version"))
            assert client.receive()["id"] == "w"
            assert client.receive()["id"] == "list"
        return took

    assert shortest(attempt, 0.5) < 0.5


# Orphans.


def alive(path: Path) -> list[int]:
    """Return the processes that have written their ids to a file and are still running."""
    pids = [int(line) for line in path.read_text().split()] if path.exists() else []
    return [pid for pid in pids if is_alive(pid)]


@LINUX
def test_no_backend_survives_a_gateway_killed_while_it_starts_them(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    one = {"command": [sys.executable, "-S", "-c", SLEEPER, str(file)], "start": "eager"}
    many = {f"b{number}": one for number in range(8)}
    for trial in range(14):
        with gateway(tmp_path, many) as client:
            pid = client.process.pid
            children = Path(f"/proc/{pid}/task/{pid}/children")
            wanted = 2 + trial % 7  # with what watches over it
            while len(children.read_text().split()) < wanted:
                assert client.process.poll() is None
            client.process.kill()  # just after a fork
    wait_until(lambda: not alive(file), "none of them is left")
    time.sleep(1.0)  # one that was just starting would be there by now
    # SIGTERM may have come before it was a program of its own; then it is killed a second later.
    wait_until(lambda: not alive(file), "one that was just starting is gone as well")


SLEEPER = """
import os, sys, time
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()}\\n")
time.sleep(30)
"""


@LINUX
@pytest.mark.parametrize("how", ["EOF", "SIGTERM", "SIGKILL", "stop", "die"])
@pytest.mark.parametrize("kind", ["session", "daemon"])
def test_what_leaves_its_session_is_ended_with_the_backend(
    tmp_path: Path, how: str, kind: str
) -> None:
    with gateway(tmp_path, {"a": backend(), "b": backend()}) as client:
        pid = client.ask("a/grandchild", [kind])["result"]
        other = client.ask("b/grandchild", [kind])["result"]
        assert is_alive(pid)
        start = time.monotonic()
        if how == "EOF":
            client.close_input()
        elif how == "stop":
            client.ask("gateway/stop", ["a"])
        elif how == "die":
            client.ask("a/die")
        else:
            client.signal(signal.Signals[how])
        if how in ("EOF", "SIGTERM"):
            client.process.wait(10)
            assert time.monotonic() - start < 3.0
            assert not is_alive(pid)
        assert is_gone(pid)
        if how in ("stop", "die"):
            assert is_alive(other), "it belongs to a backend that goes on"
    assert is_gone(other)


@LINUX
@pytest.mark.parametrize("how", ["EOF", "SIGKILL"])
def test_a_gateway_behind_a_gateway_leaves_nothing_either(tmp_path: Path, how: str) -> None:
    inside = write_config(tmp_path / "inside.toml", {"a": backend("ignore-term", "stay")})
    command = [*SOURCE, "gateway"]
    outer = {"g": {"command": command, "env": {"DUET_RPC_CONFIG": str(inside)}}}
    with gateway(tmp_path, outer) as client:
        pids = [client.ask("g/a/pid")["result"], client.status("g")["pid"]]
        pids.append(client.ask("g/a/grandchild", ["session"])["result"])
        if how == "EOF":
            client.close_input()
        else:
            client.process.kill()
        assert [pid for pid in pids if not is_gone(pid)] == []


# Ids.

DIGITS = "7" * 5000
ORDERS = list(permutations(['"jsonrpc":"2.0"', f'"id":{DIGITS}', '"method":"METHOD"']))


@pytest.mark.parametrize("method", ["version", "nothing", "a/echo", "a/nothing"])
def test_a_very_long_id_comes_back_in_every_order(tmp_path: Path, method: str) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        for members in ORDERS:
            for params in ((), ('"params":[]',)):
                text = ",".join((*params, *members)).replace("METHOD", method)
                client.send(frame("{" + text + "}"))
                body = client.receive_raw()
                while b'"method"' in body:
                    body = client.receive_raw()
                assert b'"id":%b,' % DIGITS.encode() in body
                known = method in ("version", "a/echo")
                assert (b'"result"' in body) is known or method == "a/echo"


def test_the_daemon_has_the_same_rule_for_such_an_id() -> None:
    with daemon() as client:
        for members in ORDERS:
            for method in ("version", "nothing"):
                client.send(frame("{" + ",".join(members).replace("METHOD", method) + "}"))
                body = client.receive_raw()
                assert b'"id":%b,' % DIGITS.encode() in body
                assert (b'"result"' in body) is (method == "version")


def test_thousands_of_huge_ids_in_flight_are_told_apart_quickly(tmp_path: Path) -> None:
    with gateway(tmp_path, {"a": backend()}) as client:
        client.ask("a/pid")
        count = 1500
        for number in range(count):
            text = f'{{"jsonrpc":"2.0","id":{"9" * 4990}{number:05},"method":"a/hold"}}'
            client.send(frame(text))
        start = time.monotonic()
        assert len(client.ask("a/held")["result"]) == count
        assert time.monotonic() - start < 5
        client.send(request("r", "a/release"))
        bodies = {client.receive_raw() for _ in range(count + 1)}
        assert len(bodies) == count + 1
