"""The six methods that every duet-rpc answers, and `rpc.discover`, which stands in no list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc import __version__
from duet_rpc.jsonrpc.limits import RECEIVED_MAX
from duet_rpc.log import LEVELS
from duet_rpc.methods.describe import describe, discover
from duet_rpc.methods.method import Method, Mismatch, Param, json_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.methods.context import Context
    from duet_rpc.methods.method import Params, Schema
    from duet_rpc.methods.registry import Registry

STRING: Schema = {"type": "string"}
LEVEL: Schema = {"type": "string", "enum": list(LEVELS)}


def record(**members: Schema) -> Schema:
    """Describe an object that has exactly these members."""
    return {
        "type": "object",
        "properties": members,
        "required": list(members),
        "additionalProperties": False,
    }


def array(items: Schema) -> Schema:
    """Describe an array."""
    return {"type": "array", "items": items}


def check_level(value: object) -> str:
    """Return a log level in lower case."""
    if isinstance(value, str):
        if value.lower() in LEVELS:
            return value.lower()
        received = value[:RECEIVED_MAX]
    else:
        received = json_type(value)
    raise Mismatch("one of " + ", ".join(LEVELS), received, list(LEVELS))


class Initialize(Method):
    """`initialize`, which ignores the object that LSP clients send with it."""

    __slots__ = ()

    def bind(self, params: Params, context: Context | None = None) -> dict[str, object]:
        """Take any object; LSP clients that announce capabilities want to be told some."""
        if isinstance(params, dict):
            return {"lsp": "capabilities" in params}
        return super().bind(params, context)


def initialize(lsp: bool = False) -> object:
    """Return who is answering."""
    server = {"name": "duet-rpc", "version": __version__}
    result: dict[str, object] = {"serverInfo": server, "protocolVersion": "2.0"}
    return {**result, "capabilities": {}} if lsp else result


def add_builtin(
    registry: Registry, set_level: Callable[[str], None], shut_down: Callable[[], None]
) -> None:
    """Register the six. What they do to the server comes in as two functions."""

    def set_log_level(level: str) -> object:
        set_level(level)
        return {"level": level, "success": True}

    def shutdown() -> object:
        shut_down()
        return {"message": "Shutting down gracefully"}

    for method in (
        Initialize(
            "initialize",
            "Say who is answering; optional, any method can be called without it.",
            initialize,
            label="object",
            returns=record(serverInfo=record(name=STRING, version=STRING), protocolVersion=STRING),
        ),
        Method(
            "listMethods",
            "List the methods with a description each.",
            lambda: [{"name": each.name, "description": each.summary} for each in registry],
            label="array",
            returns=array(record(name=STRING, description=STRING)),
        ),
        Method(
            "describeMethods",
            "List the methods with their signatures.",
            lambda: [describe(each) for each in registry],
            label="array",
            returns=array(record(name=STRING, params=array(STRING), returns=STRING)),
        ),
        Method(
            "version",
            "Return the version of duet-rpc.",
            lambda: {"version": __version__},
            label="object",
            returns=record(version=STRING),
        ),
        Method(
            "setLogLevel",
            "Set how much is logged, from now on.",
            set_log_level,
            params={"level": Param("string", LEVEL, check_level)},
            label="object",
            returns=record(level=LEVEL, success={"type": "boolean"}),
        ),
        Method(
            "shutdown",
            "Answer, then end the process.",
            shutdown,
            label="object",
            returns=record(message=STRING),
        ),
    ):
        registry.add(method)
    registry.add(
        Method(
            "rpc.discover",
            "Return the OpenRPC document of all methods.",
            lambda: discover(registry),
            returns={"type": "object"},
        ),
        hidden=True,
    )
