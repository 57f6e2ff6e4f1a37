"""The six methods that every duet-rpc answers, and `rpc.discover`, which stands in no list."""

from __future__ import annotations

from duet_rpc import __version__
from duet_rpc.log import LEVELS
from duet_rpc.methods.registry import Method, Registry, accepted, json_type, type_name
from duet_rpc.protocol.errors import invalid_params
from duet_rpc.protocol.limits import RECEIVED_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.methods.registry import Schema

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


def add_builtin(
    registry: Registry, set_level: Callable[[str], None], shut_down: Callable[[], None]
) -> None:
    """Register the six. What they do to the server comes in as two functions."""

    def set_log_level(level: object) -> object:
        name = level.lower() if isinstance(level, str) else None
        if name not in LEVELS:
            received = level[:RECEIVED_MAX] if isinstance(level, str) else json_type(level)
            expected = "one of " + ", ".join(LEVELS)
            raise invalid_params("level", expected, received, accepted(LEVEL))
        set_level(name)
        return {"level": name, "success": True}

    def shutdown() -> object:
        shut_down()
        return {"message": "Shutting down gracefully"}

    for method in (
        Method(
            "initialize",
            "Say who is answering; optional, any method can be called without it.",
            lambda: {
                "serverInfo": {"name": "duet-rpc", "version": __version__},
                "protocolVersion": "2.0",
            },
            returns=record(serverInfo=record(name=STRING, version=STRING), protocolVersion=STRING),
            constant=True,
        ),
        Method(
            "listMethods",
            "List the methods with a description each.",
            lambda: [{"name": each.name, "description": each.description} for each in registry],
            returns=array(record(name=STRING, description=STRING)),
        ),
        Method(
            "describeMethods",
            "List the methods with their signatures.",
            lambda: [describe(each) for each in registry],
            returns=array(record(name=STRING, params=array(STRING), returns=STRING)),
        ),
        Method(
            "version",
            "Return the version of duet-rpc.",
            lambda: {"version": __version__},
            returns=record(version=STRING),
            constant=True,
        ),
        Method(
            "setLogLevel",
            "Set how much is logged, from now on.",
            set_log_level,
            params={"level": LEVEL},
            returns=record(level=LEVEL, success={"type": "boolean"}),
        ),
        Method(
            "shutdown",
            "Answer, then end the process.",
            shutdown,
            returns=record(message=STRING),
        ),
    ):
        registry.add(method)
    registry.hidden["rpc.discover"] = Method(
        "rpc.discover",
        "Return the OpenRPC document of all methods.",
        lambda: discover(registry),
        returns={"type": "object"},
    )


def describe(method: Method) -> dict[str, object]:
    """Write a method's signature for a person."""
    return {
        "name": method.name,
        "params": [f"{name}: {type_name(schema)}" for name, schema in method.params.items()],
        "returns": type_name(method.returns),
    }


def discover(registry: Registry) -> dict[str, object]:
    """Describe all methods for a program: https://spec.open-rpc.org."""
    return {
        "openrpc": "1.3.2",
        "info": {"title": "duet-rpc", "version": __version__},
        "methods": [
            {
                "name": method.name,
                "summary": method.description,
                "paramStructure": "either",
                "params": [
                    {"name": name, "required": True, "schema": schema}
                    for name, schema in method.params.items()
                ],
                "result": {"name": "result", "schema": method.returns},
            }
            for method in registry
        ],
    }
