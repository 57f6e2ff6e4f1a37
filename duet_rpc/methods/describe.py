"""Describe methods: to a person by their signatures, to a program by an OpenRPC document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc import __version__
from duet_rpc.jsonrpc.jsontext import dumps
from duet_rpc.methods.definitions import Definitions

if TYPE_CHECKING:
    from typing import Protocol

    from duet_rpc.methods.method import Method, Schema
    from duet_rpc.methods.registry import Registry

    class TakesSchemas(Protocol):
        """What collects the definitions of schemas, or leaves them where they are."""

        def take_from(self, schema: Schema) -> Schema:
            """Return a schema as it is to be shown."""


COMPONENTS = "#/components/schemas/"
"""Where an OpenRPC document has the definitions that schemas refer to."""


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
    definitions = Definitions(COMPONENTS)
    document: dict[str, object] = {
        "openrpc": "1.3.2",
        "info": {"title": "duet-rpc", "version": __version__},
        "methods": [discover_method(method, definitions) for method in registry],
    }
    if definitions.schemas:
        document["components"] = {"schemas": definitions.schemas}
    return document


def discover_method(method: Method, definitions: TakesSchemas) -> dict[str, object]:
    """Describe one method for a program."""
    schemas = param_schemas(method)
    described: dict[str, object] = {
        "name": method.name,
        "summary": method.summary,
        "description": method.description,
        "paramStructure": "either",
        "params": [
            {
                "name": name,
                "required": param.required,
                "schema": definitions.take_from(schemas[name]),
            }
            for name, param in method.params.items()
        ],
        "result": {"name": "result", "schema": definitions.take_from(method.returns)},
    }
    if method.streams is not None:
        described["x-stream"] = True
    if method.source is not None:
        file, line = method.source
        described["x-source"] = {"file": file, "line": line}
    if method.command is not None:
        sources = {
            name: param.source.as_json()
            for name, param in method.params.items()
            if param.source is not None
        }
        described["x-command"] = {**method.command, "sources": sources}
    if method.offer is not None:
        described[f"x-{method.offer.kind}"] = method.offer.as_json()
    return described


def param_schemas(method: Method) -> dict[str, Schema]:
    """Return the schema of each parameter, with what the docstring or its source says of it."""
    said: dict[str, str] = {
        name: param.source.meaning
        for name, param in method.params.items()
        if param.source is not None
    }
    if method.params and "\n" in method.description:
        from duet_rpc.methods.docstring import read_docstring

        said.update(read_docstring(method.description).params)
    return {
        name: {**param.schema, "description": said[name]}
        if name in said and "description" not in param.schema
        else param.schema
        for name, param in method.params.items()
    }
