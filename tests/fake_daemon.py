"""A daemon that misbehaves in ways that the real one does not.

python tests/fake_daemon.py BEHAVIOUR [FLAGS OF RPC]...
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
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


ANSWERS = {
    "echo": lambda request: reply(request, [sys.argv[2:], request.get("params")]),
    "raw": lambda _: send(os.environ["FAKE_REPLY"].encode()),
    "exit": lambda _: sys.exit(3),
    "crash": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "huge": lambda _: write(b"Content-Length: 10485761\r\n\r\n"),
    "half": stop_in_the_middle,
    "closed": close_stdout,
    "progress": progress,
    "cancel": wait_for_cancel,
    "late-junk": leave_junk_behind,
}


if __name__ == "__main__":
    if BEHAVIOUR == "junk":
        write(b"Welcome to \x1b[1mPython\x1b[0m!\n")
    if BEHAVIOUR in ("deaf", "junk"):
        be_deaf()
    while True:
        request = receive()
        if request["method"] == "rpc.discover":
            reply(request, {"methods": []})
        else:
            ANSWERS[BEHAVIOUR](request)
