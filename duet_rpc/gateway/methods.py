"""What the gateway replies to itself: the state of its backends, and the lists of all methods.

A tool of an MCP server stands in the lists as a method of its own, under the name that it
has here and with the parameters that its schema names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.jsontext import dumps, replace
from duet_rpc.jsonrpc.limits import RECEIVED_MAX
from duet_rpc.methods.builtin import STRING, array, record
from duet_rpc.methods.describe import describe, discover
from duet_rpc.methods.registry import Method, Mismatch, Param, json_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.tools import Tool
    from duet_rpc.methods.registry import Registry, Schema


def status_of(backend: Backend) -> dict[str, object]:
    """Return the status of a backend, for clients."""
    process = backend.process
    return {
        "name": backend.name,
        "state": backend.state.value,
        "reason": process.reason,
        "pid": process.pid,
        "pending": len(backend.pending),
        "restarts": process.restarts.count,
        "uptime": round(process.restarts.uptime, 3) if process.pid is not None else 0,
        "dialect": backend.settings.dialect,
        "framing": backend.settings.framing,
    }


def add_methods(
    registry: Registry, backends: dict[str, Backend], pending_count: Callable[[], int]
) -> None:
    """Register `gateway/…`."""
    names = list(backends)

    def check(value: object) -> Backend:
        if isinstance(value, str) and value in backends:
            return backends[value]
        received = value[:RECEIVED_MAX] if isinstance(value, str) else json_type(value)
        raise Mismatch("the name of a backend", received, names)

    def status() -> object:
        entries = [status_of(each) for each in backends.values()]
        return {"backends": entries, "pending": pending_count()}

    def restart(backend: Backend) -> object:
        backend.process.stop(backend.process.start)
        return {"name": backend.name, "state": backend.state.value}

    def stop(backend: Backend) -> object:
        backend.process.stop()
        return {"name": backend.name, "state": backend.state.value}

    def log(backend: Backend) -> object:
        return {"lines": list(backend.log.tail)}

    state = record(name=STRING, state=STRING)
    lines = record(lines=array(STRING))
    everything = record(backends=array({"type": "object"}), pending={"type": "integer"})
    which = {"backend": Param("string", {"type": "string", "enum": names}, check)}
    for name, text, function, params, returns in (
        ("status", "Return the state of all backends.", status, {}, everything),
        ("restart", "Stop a backend and start it again.", restart, which, state),
        ("stop", "Stop a backend; the next request starts it again.", stop, which, state),
        ("log", "Return the last lines of a backend's stderr.", log, which, lines),
    ):
        registry.add(
            Method(
                f"gateway/{name}", text, function, params=params, label="object", returns=returns
            )
        )


# The lists, as JSON text.


def list_tools(_registry: Registry, tools: list[Tool], missing: dict[str, str]) -> str:
    """Return the merged tools, and whose are missing."""
    text = '{"tools":[' + ",".join(tool.text for tool in tools) + "]"
    if missing:
        text += f',"_meta":{dumps({"duet-rpc/unavailable": missing})}'
    return text + "}"


def list_methods(registry: Registry, tools: list[Tool], _missing: dict[str, str]) -> str:
    """Return the result of listMethods."""
    own = [{"name": each.name, "description": each.summary} for each in registry]
    theirs = [{"name": each.name, "description": _summary(each)} for each in tools]
    return dumps(own + theirs)


def describe_methods(registry: Registry, tools: list[Tool], _missing: dict[str, str]) -> str:
    """Return the result of describeMethods."""
    described = [describe(each) for each in registry]
    for tool in tools:
        params = []
        for name, schema, required in _parameters(tool):
            label = schema.get("type")
            text = f"{name}: {label if isinstance(label, str) else 'any'}"
            params.append(text if required else text + " = ...")
        described.append({"name": tool.name, "params": params, "returns": "object"})
    return dumps(described)


def discover_methods(registry: Registry, tools: list[Tool], _missing: dict[str, str]) -> str:
    """Return the result of rpc.discover."""
    document = discover(registry)
    own = document["methods"]
    assert isinstance(own, list)  # noqa: S101 - for the type checker
    methods = [dumps(each) for each in own] + [_discover_tool(each) for each in tools]
    rest = dumps({**document, "methods": []})
    return replace(rest, ("methods",), f"[{','.join(methods)}]")


def _discover_tool(tool: Tool) -> str:
    entry = {
        "name": tool.name,
        "summary": _summary(tool),
        "description": tool.description,
        "paramStructure": "by-name",
        "params": [
            {"name": name, "required": required, "schema": schema}
            for name, schema, required in _parameters(tool)
        ],
        "result": {"name": "result", "schema": {"type": "object"}},
    }
    try:
        return dumps(entry)
    except RecursionError:  # the tool can be called all the same
        return dumps({**entry, "params": []})


LISTS = {
    "tools/list": list_tools,
    "listMethods": list_methods,
    "describeMethods": describe_methods,
    "rpc.discover": discover_methods,
}


def _summary(tool: Tool) -> str:
    return tool.description.strip().partition("\n")[0]


def _parameters(tool: Tool) -> Iterator[tuple[str, Schema, bool]]:
    """Yield name, schema and necessity of each parameter."""
    properties, required = tool.schema.get("properties"), tool.schema.get("required")
    for name, schema in properties.items() if isinstance(properties, dict) else ():
        is_required = isinstance(required, list) and name in required
        yield name, schema if isinstance(schema, dict) else {}, is_required
