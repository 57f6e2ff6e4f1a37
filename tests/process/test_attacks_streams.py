"""What a method prints and a client sends without end: log and frames stay whole and in time."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.attacked import BOTH, SECRET, WINDOW, McpWire, Wire, check_others, serve
from tests.attacks import HEAD, SPIN, bad
from tests.support import TOP, notification, request, shortest, wait_for_file, wait_until

LEAKY = TOP / "tests" / "leaky_methods.py"


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
