"""A JSON-RPC server that misbehaves on request, for the tests of the Emacs side.

It does what no healthy daemon does (stray output on stdout, half a frame, a late reply, an exit in
the middle of a call), and it can lack what other servers lack: `FAKE_DISCOVER` chooses how it
describes itself (`openrpc`, `describe` or `none`), `FAKE_PROTOCOL` what it says it speaks,
`FAKE_VERSION` its version. `FAKE_COMMANDS` names a file with descriptions of commands, as JSON,
which are added to those of its methods; a method whose name begins with `py.` returns what the file
`FAKE_RESULT` contains, after `FAKE_SECONDS`.

Run as a program, it also has the commands `new` and `doctor --json`.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Callable

METHODS: list[dict[str, Any]] = [
    {
        "name": "echo",
        "summary": "Return the parameters.",
        "params": [{"name": "text", "required": True, "schema": {"type": "string"}}],
        "result": {"name": "result", "schema": {"type": "object"}},
    },
    {
        "name": "upcase",
        "summary": "Return the text in capitals.",
        "params": [{"name": "text", "required": True, "schema": {"type": "string"}}],
        "result": {"name": "result", "schema": {"type": "string"}},
        "x-source": {"file": str(Path(__file__).resolve()), "line": 3},
    },
    {
        "name": "every.kindOf",
        "summary": "Take a parameter of every kind.",
        "description": "Its answer is what it was given.",
        "params": [
            {
                "name": "level",
                "required": True,
                "schema": {"type": "string", "enum": ["low", "high"]},
            },
            {"name": "sure", "required": True, "schema": {"type": "boolean"}},
            {"name": "count", "required": True, "schema": {"type": "integer", "minimum": 1}},
            {"name": "text", "required": True, "schema": {"type": "string"}},
            {"name": "items", "required": True, "schema": {"type": "array"}},
            {
                "name": "ratio",
                "schema": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": 0.5},
            },
            {"name": "loud", "schema": {"type": "boolean", "default": False}},
        ],
        "result": {"name": "result", "schema": {"type": "object"}},
    },
    {
        "name": "odd.kinds",
        "summary": "Take parameters of rare kinds.",
        "params": [
            {"name": name, "required": True, "schema": schema}
            for name, schema in {
                "object": {"type": "object"},
                "nullNumber": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "nullChoice": {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]},
                "nullFlag": {"type": ["boolean", "null"]},
                "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                "either2": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                "anything": {},
                "choice": {"enum": [1, 2]},
                "names": {"type": "array", "items": {"type": "string"}},
                "day": {"type": "string", "format": "date"},
            }.items()
        ]
        + [
            {"name": "fill_column", "schema": {"type": "integer", "default": 70}},
            {"name": "aB", "schema": {"type": "integer"}},
            {
                "name": "a_b",
                "schema": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            },
        ],
        "result": {"name": "result", "schema": {"type": "object"}},
    },
    {"name": "nothing", "summary": "Return null.", "params": [], "result": {"name": "result"}},
]

seen: list[dict[str, Any]] = []
held: dict[object, str] = {}


def write(raw: bytes) -> None:
    """Write bytes to stdout and flush."""
    sys.stdout.buffer.write(raw)
    sys.stdout.buffer.flush()


def frame(**message: object) -> bytes:
    """Return a message as a frame."""
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def send(**message: object) -> None:
    """Send a message."""
    write(frame(**message))


def read() -> dict[str, Any]:
    """Read a message; exit at the end of input."""
    length = 0
    while True:
        line = sys.stdin.buffer.readline()
        if not line:
            sys.exit(0)
        if line == b"\r\n":
            break
        length = int(line.split(b":")[1])
    message: dict[str, Any] = json.loads(sys.stdin.buffer.read(length))
    return message


def commands() -> list[dict[str, Any]]:
    """Return the descriptions of commands in the file FAKE_COMMANDS."""
    file = os.environ.get("FAKE_COMMANDS")
    found: list[dict[str, Any]] = json.loads(Path(file).read_text("utf-8")) if file else []
    return found


def command(_: Any, ident: object) -> object:
    """Reply with the JSON in the file FAKE_RESULT, after FAKE_SECONDS."""
    time.sleep(float(os.environ.get("FAKE_SECONDS", "0")))
    return raw({"json": Path(os.environ["FAKE_RESULT"]).read_text("utf-8")}, ident)


def announce(_: Any, __: object) -> object:
    """Send the notification that the methods have changed."""
    send(method="client/methodsChanged")
    return "announced"


def initialize(_: Any, __: object) -> object:
    """Return name, version and protocol."""
    return {
        "serverInfo": {
            "name": os.environ.get("FAKE_NAME", "duet-rpc"),
            "version": os.environ.get("FAKE_VERSION", "0.1.0"),
        },
        "protocolVersion": os.environ.get("FAKE_PROTOCOL", "2.0"),
    }


def echo(params: Any, _: object) -> object:
    """Return the parameters without `_meta`."""
    return {name: value for name, value in params.items() if name != "_meta"}


def hold(method: str) -> Callable[[Any, object], object]:
    """Return a method that replies only when it is cancelled."""

    def wait(_: Any, ident: object) -> object:
        held[ident] = method
        return ...

    return wait


def progress(params: Any, _: object) -> object:
    """Report progress, one step after the other."""
    token = params["_meta"]["progressToken"]
    for done in range(1, params["steps"] + 1):
        value = {"done": done, "total": params["steps"], "message": f"step {done}"}
        send(method="$/progress", params={"token": token, "value": value})
        time.sleep(params.get("pause", 0))
    return "done"


def junk(params: Any, _: object) -> object:
    """Write bytes that are not a message, then reply."""
    write(b"J" * params["bytes"])
    return "after the junk"


def half(_: Any, __: object) -> object:
    """Write part of a frame, and no more."""
    write(b'Content-Length: 1000\r\n\r\n{"half": ')
    return ...


def odd(_: Any, ident: object) -> object:
    """Write two messages that jsonrpc.el cannot process, and the reply, in one write."""
    error = frame(id=None, error={"code": -32700, "message": "Parse error"})
    extra = frame(method="hello", extra="member")
    write(error + extra + frame(id=ident, result="after all"))
    return ...


def raw(params: Any, ident: object) -> object:
    """Reply with the given JSON text, which some parsers refuse."""
    body = f'{{"jsonrpc": "2.0", "id": {ident}, "result": {params["json"]}}}'.encode()
    write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    return ...


def complain(_: Any, __: object) -> object:
    """Send an error with id null, and no reply."""
    send(id=None, error={"code": -32700, "message": "Parse error: no JSON"})
    return ...


def leave(params: Any, _: object) -> object:
    """Exit in the middle of a call."""
    print("end of stderr: \u00e4\u00f6\u00fc", file=sys.stderr, flush=True)
    os._exit(params["code"])


def log(params: Any, _: object) -> object:
    """Write a text to stderr, then reply."""
    print(params["text"], file=sys.stderr, flush=True)
    return "logged"


def run(params: Any, ident: object) -> object:
    """Run a Python file; reply as the daemon does with --debug if it raises an exception."""
    file = params["file"]
    try:
        exec(compile(Path(file).read_text("utf-8"), file, "exec"), {})  # noqa: S102 - its purpose
    except Exception as error:  # noqa: BLE001 - whatever the file raises
        frames = traceback.extract_tb(error.__traceback__)
        line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno
        data = {
            "type": type(error).__name__,
            "text": str(error),
            "place": f"{file}:{line}",
            "traceback": traceback.format_exc(),
        }
        send(id=ident, error={"code": -32603, "message": "Internal error", "data": data})
        return ...
    return "no exception"


def say(params: Any, _: object) -> object:
    """Send a notification with a text for the user, then reply."""
    send(method="client/say", params=echo(params, _))
    return "after the text"


def fail(_: Any, ident: object) -> object:
    """Reply as the daemon does without --debug."""
    send(id=ident, error={"code": -32603, "message": "Internal error"})
    return ...


def load(params: Any, _: object) -> object:
    """Return what a reload is to return, FAKE_LOADED, which may name the file to load."""
    loaded = os.environ.get("FAKE_LOADED", '{"methods": ["upcase", "echo"], "problems": []}')
    return json.loads(loaded.replace("FILE", params.get("file", "")))


# A method returns its result, or `...` for no reply.
ANSWERS: dict[str, Callable[[Any, object], object]] = {
    "initialize": initialize,
    "announce": announce,
    "echo": echo,
    "every.kindOf": echo,
    "odd.kinds": echo,
    "nothing": lambda _, __: None,
    "version": lambda _, __: {"version": os.environ.get("FAKE_VERSION", "0.1.0")},
    "upcase": lambda params, _: str(params["text"]).upper(),
    "size": lambda params, _: len(params["text"]),
    "big": lambda params, _: "\u00e9" * (params["bytes"] // 2),
    "seen": lambda _, __: seen,
    "never": hold("never"),
    "late": hold("late"),
    "progress": progress,
    "junk": junk,
    "half": half,
    "odd": odd,
    "raw": raw,
    "complain": complain,
    "exit": leave,
    "log": log,
    "arguments": lambda _, __: sys.argv[1:],
    "run": run,
    "say": say,
    "fail": fail,
    "reloadMethods": load,
    "loadMethods": load,
}


def discover(method: str) -> object:
    """Describe the methods in the way that FAKE_DISCOVER selects."""
    how = os.environ.get("FAKE_DISCOVER", "openrpc")
    if method == "rpc.discover" and how == "openrpc":
        return {"openrpc": "1.3.2", "methods": METHODS + commands()}
    if method == "describeMethods" and how == "describe":
        return [
            {
                "name": each["name"],
                "params": [
                    f"{param['name']}: {param['schema'].get('type', 'any')}"
                    for param in each["params"]
                ],
                "returns": "any",
            }
            for each in METHODS
        ]
    if method == "listMethods" and how != "none":
        return [{"name": each["name"], "description": each["summary"]} for each in METHODS]
    return NotImplemented


def answer(method: str, params: Any, ident: object) -> object:
    """Return the result of a method, `...` for no reply, or NotImplemented."""
    result = discover(method)
    if result is not NotImplemented:
        return result
    if method.startswith("py."):
        return command(params, ident)
    return ANSWERS[method](params, ident) if method in ANSWERS else NotImplemented


def new(name: str) -> None:
    """Create a file for a method and print its name, unless it exists."""
    file = Path(os.environ["HOME"], ".config/duet-rpc/methods", f"{name}.py")
    if file.exists():
        sys.exit(f"duet-rpc: {file} exists already")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("from duet_rpc import method\n", "utf-8")
    print("a warning, for example", file=sys.stderr)
    print(file)


def doctor() -> None:
    """Print a report with a check of each kind."""
    report = [
        ("Python", "ok", "3.9.0, /usr/bin/env", None),
        ("methods", "fail", f"{__file__}:3: SyntaxError", "fix that line"),
        ("log", "warn", "odd", None),
    ]
    checks = [dict(zip(("name", "status", "detail", "fix"), each)) for each in report]
    print("2026-01-01 WARN  a line of the log", file=sys.stderr, flush=True)
    print(json.dumps({"ok": False, "checks": checks}, indent=2))


def main() -> None:
    """Serve requests until the end of input or shutdown."""
    while True:
        message = read()
        method, ident = message["method"], message.get("id")
        params = message.get("params") or {}
        seen.append(
            {
                "method": method,
                "hasParams": "params" in message,
                "id": ident,
                "raw": json.dumps(params)[:1000],
            }
        )
        if method == "$/cancelRequest":
            if held.pop(params["id"], None) == "late":
                send(id=params["id"], result="too late")
            else:
                send(id=params["id"], error={"code": -32800, "message": "Request cancelled"})
            continue
        if ident is None:
            continue
        result = answer(method, params, ident)
        if result is NotImplemented:
            error: dict[str, Any] = {"code": -32601, "message": f"Method not found: {method}"}
            if "FAKE_PROBLEMS" in os.environ:
                error["data"] = {"problems": [os.environ["FAKE_PROBLEMS"]]}
            send(id=ident, error=error)
        elif result is not ...:
            send(id=ident, result=result)
        if method == "shutdown":
            sys.exit(0)


if sys.argv[1:2] == ["new"]:
    new(sys.argv[2])
elif sys.argv[1:3] == ["doctor", "--json"]:
    doctor()
else:
    main()
