"""A server to stand behind the gateway; it behaves as badly as it is told to.

python tests/backend.py FRAMING [HABIT[=VALUE]]...
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

FRAMING = sys.argv[1]
HABITS: dict[str, str] = dict((each + "=").split("=", 1) for each in sys.argv[2:])
HABITS = {name: value.rstrip("=") for name, value in HABITS.items()}
MCP = "mcp" in HABITS

held: list[Any] = []
seen: list[Any] = []  # notifications
shut_down = False
asked: dict[str, Any] = {}  # id of our request: the request that made us ask


def write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def frame(body: bytes) -> bytes:
    if FRAMING == "lines":
        return body + b"\n"
    if FRAMING == "length-prefixed":
        return len(body).to_bytes(4, "big") + body + b"\n"
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def send(message: object) -> None:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    write(frame(body))


def receive() -> bytes:
    source = sys.stdin.buffer
    if FRAMING == "lines":
        line = source.readline()
        return line[:-1] if line else leave()
    if FRAMING == "length-prefixed":
        head = source.read(4)
        body = source.read(int.from_bytes(head, "big")) if head else leave()
        source.read(1)
        return body
    line = source.readline()
    if not line:
        leave()
    source.readline()
    return source.read(int(line.split(b":")[1]))


def leave() -> bytes:
    if "stay" in HABITS:
        time.sleep(60)
    if "leave-slowly" in HABITS:
        time.sleep(float(HABITS["leave-slowly"]))
    os._exit(0)


def reply(request: Any, result: object) -> None:
    send({"jsonrpc": "2.0", "id": request["id"], "result": result})


def note(method: str, params: object) -> None:
    send({"jsonrpc": "2.0", "method": method, "params": params})


def progress(request: Any) -> None:
    params = request["params"]
    tokens = [params[key] for key in ("workDoneToken", "partialResultToken") if key in params]
    tokens += [params["_meta"]["progressToken"]] if "_meta" in params else []
    for token in tokens:
        if MCP:
            note("notifications/progress", {"progressToken": token, "progress": 1, "message": "m"})
        else:
            note("$/progress", {"token": token, "value": {"done": 1.0}})
    note("$/progress", {"token": "my own", "value": 2})
    reply(request, tokens)


def progress_too_late(request: Any) -> None:
    reply(request, None)
    note("$/progress", {"token": request["params"]["_meta"]["progressToken"], "value": 1})


def ask(request: Any) -> None:
    params = request["params"]
    asked[json.dumps(params["id"])] = request
    for message in params.get("before", []):
        send(message)
    send({"jsonrpc": "2.0", "id": params["id"], "method": params["method"],
          "params": params.get("params", {})})  # fmt: skip
    for message in params.get("after", []):
        send(message)


def die(request: Any) -> None:
    params = request.get("params") or {}
    os.write(2, b"last words\n")
    if "signal" in params:
        os.kill(os.getpid(), getattr(signal, params["signal"]))
        time.sleep(60)
    os._exit(params.get("code", 3))


def flood(request: Any) -> None:
    params = request["params"]
    for number in range(params["count"]):
        note("flood", {"number": number, "text": "x" * params.get("size", 10)})
    reply(request, "done")


def stream(request: Any) -> None:
    """Say one thing after the other for a while, in pieces that end in the middle of one."""
    number, data = 0, b""
    until = time.monotonic() + request["params"][0]
    while time.monotonic() < until:
        while len(data) < 7000:
            params = {"number": number, "text": "x" * 500}
            data += frame(json.dumps({"jsonrpc": "2.0", "method": "n", "params": params}).encode())
            number += 1
        write(data[:6500])
        data = data[6500:]
        time.sleep(0.01)
    write(data)
    reply(request, number)


def too_large(request: Any) -> None:
    send(request["params"][0].encode() + b"x" * 11 * 1024 * 1024 + b'"}')
    reply(request, "done")


def babble(request: Any) -> None:
    """Answer, without end, what nobody has asked: nothing of it goes further than the gateway."""
    reply(request, "it begins")
    answers = frame(b'{"result":1}') * 5000
    while True:
        write(answers)


def release(request: Any) -> None:
    for each in reversed(held):
        reply(each, each["id"])
    held.clear()
    reply(request, "released")


def grandchild(request: Any) -> None:
    """Start a process: in our session, in one of its own, or as a daemon that nobody waits for."""
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    kind = (request.get("params") or [""])[0]
    if kind == "daemon":
        start = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', sys.argv[1]]"
        start += ", stdout=subprocess.DEVNULL, start_new_session=True).pid)"
        reply(request, int(subprocess.check_output([sys.executable, "-c", start, code])))
        return
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=kind == "session")
    reply(request, process.pid)


def garbage(request: Any) -> None:
    """Write that much of one text without end, and die where that is wanted."""
    text, size, is_fatal = request["params"]
    body = (text * (size // len(text) + 1)).encode()
    write(b"Content-Length: %d\r\n\r\n" % min(len(body), 10 * 1024 * 1024))
    write(body)
    if is_fatal:
        os._exit(3)


def write_stderr(request: Any) -> None:
    data = request["params"][0].encode()
    while data:
        data = data[os.write(2, data) :]
    reply(request, None)


def twice(request: Any) -> None:
    reply({"id": 987654}, "for nobody")
    reply({"id": str(request["id"])}, "a string is another id")
    reply(request, 1)
    reply(request, 2)


def list_tools(request: Any) -> None:
    time.sleep(float(HABITS.get("slow-tools", "0")))
    if "ask-first" in HABITS:
        send({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {}})
        note("notifications/message", {"level": "info", "data": "hello"})
    if "deeper" in HABITS:  # a list after the other
        depth = HABITS["deeper"] = str(int(HABITS["deeper"]) + 1)
        deep = b"[" * int(depth) + b"]" * int(depth)
        tool = b'{"name":"t","inputSchema":{"properties":{"x":{"default":%b}}}}' % deep
        send(b'{"jsonrpc":"2.0","id":%d,"result":{"tools":[%b]}}' % (request["id"], tool))
        note("notifications/tools/list_changed", None)
        return
    if "tools-file" in HABITS:
        with open(HABITS["tools-file"]) as file:
            reply(request, {"tools": json.load(file)})
        return
    if "tools" in HABITS:
        reply(request, {"tools": json.loads(HABITS["tools"])})
        return
    if "restless" in HABITS:  # the list changes between its pages, so many times in all
        cursor = (request.get("params") or {}).get("cursor")
        version = HABITS.get("version", "0")
        result: dict[str, Any] = {"tools": [{"name": f"v{version}-{cursor or 'first'}"}]}
        reply(request, result if cursor else {**result, "nextCursor": "last"})
        if not cursor and int(version) < int(HABITS["restless"]):
            HABITS["version"] = str(int(version) + 1)
            note("notifications/tools/list_changed", None)
        return
    page = int((request.get("params") or {}).get("cursor", "0"))
    name = f"tool{page}"
    tool = b'{"inputSchema": {"type":"object","properties":{"x":{"default":1.0}}},"name" :"%b"}'
    cursor = b',"nextCursor":"%d"' % (page + 1) if page < int(HABITS.get("pages", "2")) - 1 else b""
    body = b'{"jsonrpc":"2.0","id":%d,"result":{"tools":[%b]%b}}'
    send(body % (request["id"], tool % name.encode(), cursor))


def initialize(request: Any) -> None:
    time.sleep(float(HABITS.get("slow-handshake", "0")))
    if "refuse-handshake" in HABITS:
        message = "no" * int(HABITS["refuse-handshake"] or "1")
        send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": 1, "message": message}})
        return
    if "broken-handshake" in HABITS:
        send(b'{"jsonrpc":"2.0","id":%d,"result":{"protocolVersion":NaN}}' % request["id"])
        return
    version = request["params"].get("protocolVersion")
    info = {"name": "hostile", "version": "1.0"}
    result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    reply(request, result)


def shutdown(request: Any) -> None:
    global shut_down
    shut_down = True
    reply(request, None)


METHODS = {
    "id": lambda request: reply(request, request["id"]),
    "pid": lambda request: reply(request, os.getpid()),
    "env": lambda request: reply(request, [os.environ.get("BACKEND_TEST"), os.getcwd()]),
    "hold": held.append,
    "held": lambda request: reply(request, [each["id"] for each in held]),
    "release": release,
    "seen": lambda request: reply(request, seen),
    "die": die,
    "twice": twice,
    "ask": ask,
    "progress": progress,
    "progress-too-late": progress_too_late,
    "flood": flood,
    "stream": stream,
    "too-large": too_large,
    "babble": babble,
    "grandchild": grandchild,
    "garbage": garbage,
    "big": lambda request: reply(request, "x" * request["params"][0]),
    "raw": lambda request: write(request["params"][0].replace("ID", str(request["id"])).encode()),
    "reply": lambda request: send(request["params"][0].replace("ID", str(request["id"])).encode()),
    "stderr": write_stderr,
    "close-stdout": lambda _: os.close(1),
    "deaf": lambda _: time.sleep(60),
    "initialize": initialize,
    "tools/list": list_tools,
    "shutdown": shutdown,
}


def echo(request: Any, body: bytes) -> None:
    tool = request["params"].get("name") if request["method"] == "tools/call" else None
    if tool == "seen":
        reply(request, {"seen": seen})
    elif tool == "grow":
        tools = json.loads(HABITS.get("tools", "[]"))
        HABITS["tools"] = json.dumps([*tools, {"name": f"new{len(tools)}"}])
        note("notifications/tools/list_changed", None)
        reply(request, {"content": []})
    elif tool == "big":
        reply(request, {"content": [], "text": "x" * request["params"]["arguments"]["size"]})
    elif tool == "hold":
        held.append(request)
    elif tool == "fail":
        reply(request, {"content": [], "isError": True})
    elif tool == "tool":
        error = {"code": -32602, "message": "Unknown tool"}
        send({"jsonrpc": "2.0", "id": request["id"], "error": error})
    else:
        params = body.split(b'"params":', 1)[1][:-1]
        send(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (request["id"], params))


def serve() -> None:
    while True:
        body = receive()
        message = json.loads(body)
        if "jsonrpc" not in message:
            os._exit(9)
        method = message.get("method")
        if method is None:
            request = asked.pop(json.dumps(message["id"]), None)
            if request is not None:
                reply(request, message)
            else:
                seen.append(message)
        elif "id" not in message:
            if method == "ask":
                send({"jsonrpc": "2.0", **message["params"]})
                continue
            seen.append(message)
            if method == "exit" and "lsp" in HABITS:
                with open(HABITS["lsp"], "a") as file:
                    file.write("".join(f"{each['method']}\n" for each in seen))
                os._exit(0 if shut_down else 1)  # as LSP has it
        elif method in ("echo", "tools/call"):
            echo(message, body)
        elif method in METHODS:
            METHODS[method](message)
        else:
            error = {"code": -32601, "message": "Method not found", "data": method, "more": 1}
            send({"jsonrpc": "2.0", "id": message["id"], "error": error})


if __name__ == "__main__":
    if "ignore-term" in HABITS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "pid-file" in HABITS:
        with open(HABITS["pid-file"], "a") as file:
            file.write(f"{os.getpid()}\n")
    if "banner" in HABITS:
        write(HABITS["banner"].encode().decode("unicode_escape").encode())
    if "die-at-once" in HABITS:
        os.write(2, b"not today\n")
        os._exit(int(HABITS["die-at-once"]))
    if "never-read" in HABITS:
        time.sleep(60)
    serve()
