"""A daemon that misbehaves in ways that the real one does not.

python tests/fake_daemon.py BEHAVIOUR [FLAGS OF RPC]...
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

BEHAVIOUR = sys.argv[1]


def write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def send(message: object) -> None:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    write(b"Content-Length: %d\r\n\r\n" % len(body) + body)


def receive() -> Any:
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(0)
    sys.stdin.buffer.readline()
    return json.loads(sys.stdin.buffer.read(int(line.split(b":")[1])))


def params_of(request: Any) -> Any:
    """Return the params that a person gave, without what the terminal says of itself."""
    params = request.get("params")
    if isinstance(params, dict) and "client" in params.get("_meta", {}):
        client = params["_meta"].pop("client")
        assert client["name"] == "terminal"
        assert params["_meta"].pop("partialResultToken") == "stream"
        if not params["_meta"]:
            del params["_meta"]
    return params or None if isinstance(params, dict) else params


def progress(request: Any) -> None:
    token = request["params"]["_meta"]["progressToken"]
    for value in json.loads(os.environ["FAKE_PROGRESS"]):
        send({"jsonrpc": "2.0", "method": "$/progress", "params": {"token": token, "value": value}})
        time.sleep(0.1)
    reply(request, "done")


def wait_for_cancel(request: Any) -> None:
    os.write(2, b"running\n")
    while True:
        message = receive()
        if message["method"] == "$/cancelRequest" and message["params"] == {"id": request["id"]}:
            error = {"code": -32800, "message": "Request cancelled"}
            send({"jsonrpc": "2.0", "id": request["id"], "error": error})
            return


def be_deaf() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.write(2, b"pid %d\n" % os.getpid())
    time.sleep(60)


def reply(request: Any, result: object) -> None:
    send({"jsonrpc": "2.0", "id": request.get("id"), "result": result})


def leave_junk_behind(request: Any) -> None:
    version = {"version": os.environ["FAKE_VERSION"]}
    reply(request, version if request["method"] == "version" else [])
    if request["method"] == "listMethods":
        write(os.environ["FAKE_JUNK"].encode())


def stop_in_the_middle(_request: Any) -> None:
    write(b"Content-Length: 100\r\n\r\n{")
    sys.exit(0)


def close_stdout(_request: Any) -> None:
    os.close(1)
    time.sleep(60)


def say(request: Any) -> None:
    params = {"text": "words.py:1: \x1b[2JSyntaxError", "level": "error"}
    for each in ({"text": "a\nb", "level": "info"}, params, {"text": 3}, None):
        send({"jsonrpc": "2.0", "method": "client/say", "params": each})
    if request["method"] == "version":
        reply(request, "done")
        return
    problems = {"problems": [params["text"], "other.py:2: KeyError"]}
    error = {"code": -32601, "message": "Method not found", "data": problems}
    send({"jsonrpc": "2.0", "id": request["id"], "error": error})


ANSWERS: dict[str, Callable[[Any], object]] = {
    "echo": lambda request: reply(request, [sys.argv[2:], params_of(request)]),
    "raw": lambda _: send(os.environ["FAKE_REPLY"].encode()),
    "exit": lambda _: sys.exit(3),
    "crash": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "huge": lambda _: write(b"Content-Length: 10485761\r\n\r\n"),
    "half": stop_in_the_middle,
    "closed": close_stdout,
    "progress": progress,
    "cancel": wait_for_cancel,
    "late-junk": leave_junk_behind,
    "say": say,
    "grow": lambda request: reply(request, []),
}


if __name__ == "__main__":
    if BEHAVIOUR == "junk":
        write(b"Welcome to \x1b[1mPython\x1b[0m!\n")
    if BEHAVIOUR in ("deaf", "junk"):
        be_deaf()
    calls = 0
    while True:
        request = receive()
        if request["method"] == "rpc.discover":
            names = [f"after_{number}" for number in range(1, calls + 1)]
            reply(request, {"methods": [{"name": name} for name in names]})
        else:
            calls += BEHAVIOUR == "grow"
            ANSWERS[BEHAVIOUR](request)
