"""An MCP server of one era and no other, for tests.

`mcp_server.py era=stateless [KEY=VALUE]...` It is as strict as the servers of the SDKs are: one of
the handshake era refuses client metadata, one of the stateless era a request without it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

OPTIONS: dict[str, str] = dict(each.split("=", 1) for each in sys.argv[1:])
PREFIX = "io.modelcontextprotocol/"
STATELESS = OPTIONS.get("era") == "stateless"
NAME = OPTIONS.get("name", "it")

seen: list[Any] = []
asked: dict[str, Any] = {}  # our requests, and the call that each is for
listening: list[tuple[Any, Any]] = []  # ids and filters of subscriptions
subscribed: list[str] = []
level = "debug"


def number_in(option: str) -> float:
    """Return the number in a file that an option names; without the file, 0."""
    try:
        with open(OPTIONS.get(option, "")) as file:
            return float(file.read())
    except OSError:
        return 0


grown = int(number_in("grown_file"))


def send(message: Any) -> None:
    os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def reply(request: Any, result: dict[str, Any], kind: str = "complete") -> None:
    if STATELESS:
        result = {"resultType": kind, **result}
        if request["method"].endswith(("/list", "/read", "/discover")):
            result.update(ttlMs=0, cacheScope="private")
    send({"id": request["id"], "result": result})


def fail(request: Any, code: int, message: str, **data: Any) -> None:
    send({"id": request["id"], "error": {"code": code, "message": message, **data}})


def notify(method: str, params: dict[str, Any], field: str) -> None:
    """Send news: to whoever has shaken hands, or to whoever listens."""
    if not STATELESS:
        send({"method": method, "params": params})
    for id, wanted in listening:
        chosen = wanted.get(field)
        if chosen is True or (isinstance(chosen, list) and params.get("uri") in chosen):
            meta = {PREFIX + "subscriptionId": id}
            send({"method": method, "params": {**params, "_meta": meta}})


def text(value: object) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": json.dumps(value)}]}


def tools() -> list[Any]:
    names = ["seen", "ask", "grow", "log", "touch", "hold", *(f"new{n}" for n in range(grown))]
    schema = {"type": "object"}
    return [{"name": name, "description": name, "inputSchema": schema} for name in names]


def resources() -> list[Any]:
    uris = [f"{NAME}://one", "same://uri", *(f"{NAME}://new{n}" for n in range(grown))]
    return [{"uri": uri, "name": uri} for uri in uris]


def capabilities() -> dict[str, Any]:
    changes = {"listChanged": True}
    found = {"tools": changes, "prompts": changes, "completions": {}, "logging": {}}
    return {**found, "resources": {**changes, "subscribe": True}}


def call(request: Any) -> None:
    global grown
    params = request["params"]
    tool, given = params["name"], params.get("arguments") or {}
    if tool == "seen":
        reply(request, text(seen))
    elif tool == "ask":
        ask(request, given)
    elif tool == "grow":
        grown += 1
        for kind in ("tools", "prompts", "resources"):
            notify(f"notifications/{kind}/list_changed", {}, f"{kind}ListChanged")
        reply(request, text(grown))
    elif tool == "log":
        wanted = params.get("_meta", {}).get(PREFIX + "logLevel") if STATELESS else level
        if wanted:
            note = {"level": "info", "data": given.get("data")}
            send({"method": "notifications/message", "params": note})
        reply(request, text(wanted))
    elif tool == "touch":
        params = {"uri": given["uri"]}
        if STATELESS or given["uri"] in subscribed:
            notify("notifications/resources/updated", params, "resourceSubscriptions")
        reply(request, text("touched"))
    elif tool != "hold":
        reply(request, text([tool, given]))


def ask(request: Any, given: Any) -> None:
    """Ask the client what the arguments say, and return its answers."""
    questions = given["questions"]
    params = request["params"]
    if not STATELESS:
        for number, (method, about) in enumerate(questions):
            id = f"q{request['id']}-{number}"
            asked[id] = (request, len(questions))
            send({"id": id, "method": method, "params": about})
        return
    if "requestState" in params:
        answers = params.get("inputResponses")
        reply(request, text([params["requestState"], answers]))
        return
    requests = {
        f"k{number}": {"method": method, "params": about}
        for number, (method, about) in enumerate(questions)
    }
    result = {"inputRequests": requests, "requestState": "the state"}
    reply(request, result, "input_required")


def handle_answer(message: Any) -> None:
    request, count = asked.pop(message["id"])
    answers = request.setdefault("answers", [])
    answers.append(message.get("result", message.get("error")))
    if len(answers) == count:
        reply(request, text(answers))


def read(request: Any) -> None:
    uri = request["params"]["uri"]
    if uri.endswith("none"):
        fail(request, -32602 if STATELESS else -32002, "Resource not found")
        return
    reply(request, {"contents": [{"uri": uri, "text": f"{uri} of {NAME}"}]})


def listen(request: Any) -> None:
    wanted = request["params"]["notifications"]
    listening.append((request["id"], wanted))
    meta = {PREFIX + "subscriptionId": request["id"]}
    params = {"_meta": meta, "notifications": wanted}
    send({"method": "notifications/subscriptions/acknowledged", "params": params})


def set_level(request: Any) -> None:
    global level
    level = request["params"]["level"]
    reply(request, {})


def subscribe(request: Any) -> None:
    uri = request["params"]["uri"]
    subscribed[:] = [each for each in subscribed if each != uri]
    subscribed.extend([uri] if request["method"] == "resources/subscribe" else [])
    reply(request, {})


def about() -> dict[str, Any]:
    found: dict[str, Any] = {"capabilities": capabilities()}
    if "instructions" in OPTIONS:
        found["instructions"] = OPTIONS["instructions"] * int(OPTIONS.get("times", "1"))
    return found


def initialize(request: Any) -> None:
    body = {"protocolVersion": request["params"]["protocolVersion"], **about()}
    reply(request, {**body, "serverInfo": {"name": NAME, "version": "1"}})


def list_prompts(request: Any) -> None:
    reply(request, {"prompts": [{"name": "greet"}, *({"name": f"p{n}"} for n in range(grown))]})


def get_prompt(request: Any) -> None:
    said = {"type": "text", "text": f"{NAME}: {request['params']['name']}"}
    reply(request, {"messages": [{"role": "user", "content": said}]})


def list_templates(request: Any) -> None:
    template = {"uriTemplate": f"{NAME}://item/{{id}}", "name": "item"}
    reply(request, {"resourceTemplates": [template]})


def discover(request: Any) -> None:
    reply(request, {"supportedVersions": ["2026-07-28"], **about()})


def complete(request: Any) -> None:
    reply(request, {"completion": {"values": [json.dumps(request["params"]["ref"])]}})


METHODS = {
    "tools/list": lambda request: reply(request, {"tools": tools()}),
    "tools/call": call,
    "resources/list": lambda request: reply(request, {"resources": resources()}),
    "resources/templates/list": list_templates,
    "resources/read": read,
    "prompts/list": list_prompts,
    "prompts/get": get_prompt,
    "completion/complete": complete,
}
HANDSHAKE_METHODS = {
    "initialize": initialize,
    "logging/setLevel": set_level,
    "resources/subscribe": subscribe,
    "resources/unsubscribe": subscribe,
    "ping": lambda request: reply(request, {}),
}
STATELESS_METHODS = {"server/discover": discover, "subscriptions/listen": listen}


def handle(request: Any) -> None:
    method = request["method"]
    meta = (request.get("params") or {}).get("_meta", {})
    has_client_meta = PREFIX + "protocolVersion" in meta
    own = STATELESS_METHODS if STATELESS else HANDSHAKE_METHODS
    handler = METHODS.get(method) or own.get(method)
    if OPTIONS.get("era") == "neither":
        fail(request, 1, "what?")
    elif STATELESS and method == "initialize":
        fail(request, -32022, "Unsupported protocol version", data={"supported": ["2026-07-28"]})
    elif STATELESS and not (has_client_meta and PREFIX + "clientCapabilities" in meta):
        fail(request, -32602, "a request needs client metadata")
    elif has_client_meta and not STATELESS:
        fail(request, -32600, "this connection serves the handshake protocol era")
    elif handler is None:
        fail(request, -32601, "Method not found")
    else:
        handler(request)


def serve() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        seen.append(message)
        if "method" not in message:
            handle_answer(message)
        elif "id" in message:
            handle(message)


if __name__ == "__main__":
    if "pids" in OPTIONS:
        with open(OPTIONS["pids"], "a") as file:
            file.write(f"{os.getpid()}\n")
    time.sleep(float(OPTIONS.get("slow", "0")) + number_in("slow_file"))
    serve()
