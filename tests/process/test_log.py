"""Log lines: what they say, how they look, and what they never say."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from duet_rpc import __version__
from tests.hostile import typed
from tests.logs import LINE
from tests.machine import wait_for_loguru
from tests.support import SOURCE, TOP, WITH_METHODS, daemon, frame, request, run

SECRET = "sk-0123456789-secret"  # noqa: S105


def test_every_line_has_time_severity_and_message() -> None:
    _, _, log = run(
        request(1, "setLogLevel", ["debug"]) + request(2) + request(None, "no") + frame("{")
    )
    lines = log.splitlines()
    assert len(lines) == 9
    for line in lines:
        assert LINE.fullmatch(line), line
    assert f"duet-rpc {__version__} started: pid " in lines[0]
    assert "level info, log to stderr" in lines[0]
    assert lines[2].endswith("DEBUG method=version id=2 received")
    assert re.search(r"DEBUG method=version id=2 answered in \d+\.\d ms$", lines[3])
    assert "DEBUG method=no id=null received" in lines[4]
    assert "WARN  method=no id=null Method not found" in lines[5]
    assert "WARN  Parse error" in log
    assert "INFO  stdin closed, shutting down gracefully" in log


def test_an_invalid_request_is_logged_with_what_could_be_read() -> None:
    invalid = [
        ('{"jsonrpc":"1.0","id":7,"method":"old"}', "WARN  method=old id=7 Invalid Request"),
        ('{"jsonrpc":"2.0","id":null,"method":5}', "WARN  id=null Invalid Request"),
        ('{"jsonrpc":"2.0","id":[],"method":"listed"}', "WARN  method=listed Invalid Request"),
        ('{"jsonrpc":"2.0","method":"cut","id":8', "WARN  method=cut Parse error"),
        ("garbage", "WARN  Parse error"),
    ]
    _, _, log = run(b"".join(frame(text) for text, _ in invalid))
    lines = [line for line in log.splitlines() if "WARN" in line]
    assert len(lines) == len(invalid)
    for line, (_, expected) in zip(lines, invalid):
        assert expected in line


def test_log_lines_of_methods_name_file_and_line_only() -> None:
    _, _, log = run(request(1, "boom"), WITH_METHODS)
    assert re.search(r"RuntimeError \(daemon_with_methods\.py:\d+ in boom\)", log)
    assert str(TOP) not in log


def test_a_failure_inside_a_library_names_the_method_line() -> None:
    _, _, log = run(request(1, "read_folder"), WITH_METHODS)
    assert re.search(r"FileNotFoundError \(daemon_with_methods\.py:\d+ in read_folder\)", log)
    assert "private" not in log
    assert "notes" not in log


# What the client sends is harmless.

NASTY = [
    "a\nFAKE 2026 INFO line",
    "\x1b[31mred\x1b[0m",
    "<red>markup</red>",
    "{braces} {0} {extra}",
    "%s %d",
    "\u202eright-to-left",
    "\x00\x07\r",
    "a id=5 forged",
    'quote"d',
    "\ud800",
]


@pytest.mark.parametrize("method", NASTY)
@pytest.mark.parametrize("late", [False, True], ids=["plain", "loguru"])
def test_what_the_client_sends_takes_no_effect(method: str, late: bool) -> None:
    with daemon() as client:
        client.send(request(method, method))
        client.receive()
        if late:
            wait_for_loguru(client.process.pid)
        _, _, log = client.finish()
    lines = log.splitlines()
    assert len(lines) == 3
    assert all(LINE.fullmatch(line) for line in lines)
    assert all(line.isprintable() for line in lines)
    if method.isprintable() and '"' not in method:
        assert f'method="{method}" id="{method}"' in lines[1]


def test_long_values_are_cut() -> None:
    _, _, log = run(request("i" * 5000, "m" * 5000))
    line = log.splitlines()[1]
    assert "method=" + "m" * 199 + "… " in line
    assert len(line) < 700


def test_no_payload_and_no_secret_after_a_fault() -> None:
    hostile = [
        frame(f'{{"id":1,"params":"{SECRET}"'),
        frame(f'{{"jsonrpc":"1.0","id":1,"params":"{SECRET}"}}'),
        frame(f'["{SECRET}"]'),
        frame(f'"{SECRET}"'),
        f"Content-Length: {SECRET}\r\n\r\n".encode(),
        f"{SECRET}\r\n".encode(),
        f"X-Token: {SECRET}\r\n\r\n".encode(),
        frame("{}", f"Content-Length: {{}}\r\nContent-Type: {SECRET}\r\n\r\n"),
        typed(f"application/vscode-jsonrpc; charset={SECRET}"),
        request(1, "setLogLevel", {"level": "debug"}),
        request(1, "version", {SECRET: SECRET}),
        f"Content-Length: 99999999\r\n\r\n{SECRET}".encode(),
        request(1),
    ]  # fmt: skip
    code, _, log = run(b"".join(hostile), env={"SOME_TOKEN": SECRET})
    assert code == 0
    assert SECRET not in log


def test_a_wrong_value_of_a_method_is_not_logged() -> None:
    _, _, log = run(request(1, "setLogLevel", {"level": SECRET}))
    assert "Invalid params" in log
    assert SECRET not in log


# Colour.


def terminal_output(command: list[str], env: dict[str, str] | None = None) -> str:
    """Run a daemon with a terminal for its stderr."""
    main, side = os.openpty()
    with daemon(command, env=env, stderr=side) as client:
        os.close(side)
        client.call("version")
        wait_for_loguru(client.process.pid)
        client.close_input()
        client.wait()
        try:
            return os.read(main, 10_000).decode()
        except OSError:
            return ""
        finally:
            os.close(main)


def test_a_terminal_gets_colour_and_nothing_else_does() -> None:
    plain = {"NO_COLOR": "", "TERM": "xterm"}
    assert "\x1b[" in terminal_output([*SOURCE, "rpc"], plain)
    assert "\x1b[" not in terminal_output([*SOURCE, "rpc", "--no-color"], plain)
    assert "\x1b[" not in terminal_output([*SOURCE, "--no-color", "rpc"], plain)
    assert "\x1b[" not in terminal_output([*SOURCE, "rpc"], {"NO_COLOR": "1"})
    with daemon([*SOURCE, "rpc"], env=plain) as client:
        wait_for_loguru(client.process.pid)
        assert "\x1b[" not in client.finish()[2]


def test_a_file_is_plain_on_a_terminal_too(tmp_path: Path) -> None:
    path = tmp_path / "duet.log"
    shown = terminal_output([*SOURCE, "rpc"], {"NO_COLOR": "", "DUET_RPC_LOG": str(path)})
    assert shown == ""
    assert "\x1b[" not in path.read_text()
