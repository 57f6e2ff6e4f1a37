"""Describe methods: to a person by their signatures, to a program by an OpenRPC document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc import __version__
from duet_rpc.jsonrpc.jsontext import dumps

if TYPE_CHECKING:
    from duet_rpc.methods.registry import Method, Registry


def describe(method: Method) -> dict[str, object]:
    """Write a method's signature for a person."""
    params = []
    for name, param in method.params.items():
        text = f"{name}: {param.label}"
        if not param.required:
            default = param.schema.get("default")
            text += f" = {dumps(default)}" if "default" in param.schema else " = ..."
        params.append(text)
    return {"name": method.name, "params": params, "returns": method.label}


def discover(registry: Registry) -> dict[str, object]:
    """Describe all methods for a program: https://spec.open-rpc.org."""
    return {
        "openrpc": "1.3.2",
        "info": {"title": "duet-rpc", "version": __version__},
        "methods": [discover_method(method) for method in registry],
    }


def discover_method(method: Method) -> dict[str, object]:
    """Describe one method for a program."""
    described: dict[str, object] = {
        "name": method.name,
        "summary": method.summary,
        "description": method.description,
        "paramStructure": "either",
        "params": [
            {"name": name, "required": param.required, "schema": param.schema}
            for name, param in method.params.items()
        ],
        "result": {"name": "result", "schema": method.returns},
    }
    if method.source is not None:
        file, line = method.source
        described["x-source"] = {"file": file, "line": line}
    return described
