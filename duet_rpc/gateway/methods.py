"""What the gateway replies to itself: the state of its backends, and the lists of all methods.

A tool of an MCP server stands in the lists as a method of its own, under the name that it
has here and with the parameters that its schema names.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from duet_rpc.gateway.worker import Worker
from duet_rpc.jsonrpc.jsontext import dumps, replace
from duet_rpc.jsonrpc.limits import RECEIVED_MAX
from duet_rpc.methods.builtin import STRING, array, record
from duet_rpc.methods.definitions import Definitions
from duet_rpc.methods.describe import COMPONENTS, describe, discover
from duet_rpc.methods.method import Method, Mismatch, Param, json_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.entries import Entry, Kind
    from duet_rpc.gateway.lists import Merged
    from duet_rpc.methods.method import Schema
    from duet_rpc.methods.registry import Registry


class MethodLists(NamedTuple):
    """What the lists are made of: our own methods, and those of the workers."""

    registry: Registry
    entries: list[tuple[str, dict[str, Any]]]  # a worker's name, what it has said


def status_of(backend: Backend) -> dict[str, object]:
    """Return the status of a worker or a backend, for clients."""
    process = backend.process
    status: dict[str, object] = {
        "name": backend.name,
        "kind": backend.settings.kind,
        "state": backend.state.value,
        "reason": process.reason,
        "pid": process.pid,
        "pending": len(backend.pending),
        "restarts": process.restarts.count,
        "uptime": round(process.restarts.uptime, 3) if process.pid is not None else 0,
        "dialect": backend.settings.dialect,
        "framing": backend.settings.framing,
    }
    if isinstance(backend, Worker):
        running = backend.running
        now = monotonic()
        status["python"] = backend.python
        status["queued"] = backend.queued
        status["running"] = running and {
            "method": running.method,
            "seconds": round(now - running.began, 3),
        }
    return status


def add_methods(
    registry: Registry,
    backends: dict[str, Backend],
    names: list[str],
    pending_count: Callable[[], int],
) -> None:
    """Register `gateway/…`; `names` are those of the workers and backends, and may change."""

    def check(value: object) -> Backend:
        if isinstance(value, str) and value in backends:
            return backends[value]
        received = value[:RECEIVED_MAX] if isinstance(value, str) else json_type(value)
        raise Mismatch("the name of a worker or a backend", received, names)

    def status() -> object:
        entries = [status_of(each) for each in backends.values()]
        return {"backends": entries, "pending": pending_count()}

    def restart(backend: Backend) -> object:
        backend.process.restart()
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
        ("status", "Return the state of all workers and backends.", status, {}, everything),
        ("restart", "Stop a worker or a backend and start it again.", restart, which, state),
        ("stop", "Stop one; the next request starts it again.", stop, which, state),
        ("log", "Return the last lines that one wrote to stderr.", log, which, lines),
    ):
        registry.add(
            Method(
                f"gateway/{name}", text, function, params=params, label="object", returns=returns
            )
        )


# The lists, as JSON text.


def list_entries(kind: Kind, merged: Merged) -> str:
    """Return a merged list, and whose entries are missing in it."""
    first: dict[str, str] = {}  # two servers may have the same URI; a request could mean one
    for entry in merged.entries:
        first.setdefault(entry.name, entry.text)
    text = f'{{"{kind.member}":[{",".join(first.values())}]'
    if merged.missing:
        text += f',"_meta":{dumps({"duet-rpc/unavailable": merged.missing})}'
    return text + "}"


def list_methods(lists: MethodLists, tools: list[Entry]) -> str:
    """Return the result of listMethods."""
    own = [{"name": each.name, "description": each.summary} for each in lists.registry]
    own += [{"name": entry["name"], "description": entry["summary"]} for _, entry in lists.entries]
    theirs = [{"name": each.name, "description": _summary(each)} for each in tools]
    return dumps(own + theirs)


def describe_methods(lists: MethodLists, tools: list[Entry]) -> str:
    """Return the result of describeMethods."""
    described = [describe(each) for each in lists.registry]
    described += [entry["signature"] for _, entry in lists.entries]
    for tool in tools:
        params = []
        for name, schema, required in _parameters(tool):
            label = schema.get("type")
            text = f"{name}: {label if isinstance(label, str) else 'any'}"
            params.append(text if required else text + " = ...")
        described.append({"name": tool.name, "params": params, "returns": "object"})
    return dumps(described)


def discover_methods(lists: MethodLists, tools: list[Entry]) -> str:
    """Return the result of rpc.discover."""
    document = discover(lists.registry)
    own = document["methods"]
    assert isinstance(own, list)  # noqa: S101 - for the type checker
    definitions = Definitions(COMPONENTS)
    own += [_discover_entry(name, entry, definitions) for name, entry in lists.entries]
    if definitions.schemas:
        document["components"] = {"schemas": definitions.schemas}
    methods = [dumps(each) for each in own] + [_discover_tool(each) for each in tools]
    rest = dumps({**document, "methods": []})
    return replace(rest, ("methods",), f"[{','.join(methods)}]")


def _discover_entry(
    worker: str, entry: dict[str, Any], definitions: Definitions
) -> dict[str, object]:
    """Return what a worker has said of a method, with its definitions in their common place."""
    params = [{**each, "schema": definitions.take_from(each["schema"])} for each in entry["params"]]
    result = {**entry["result"], "schema": definitions.take_from(entry["result"]["schema"])}
    rest = {key: value for key, value in entry.items() if key != "signature"}
    return {**rest, "params": params, "result": result, "x-worker": worker}


def _discover_tool(tool: Entry) -> str:
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
    "listMethods": list_methods,
    "describeMethods": describe_methods,
    "rpc.discover": discover_methods,
}


def _summary(tool: Entry) -> str:
    return tool.description.strip().partition("\n")[0]


def _parameters(tool: Entry) -> Iterator[tuple[str, Schema, bool]]:
    """Yield name, schema and necessity of each parameter."""
    properties, listed = tool.schema.get("properties"), tool.schema.get("required")
    names = listed if isinstance(listed, list) else []
    required = {each for each in names if isinstance(each, str)}
    for name, schema in properties.items() if isinstance(properties, dict) else ():
        yield name, schema if isinstance(schema, dict) else {}, name in required
