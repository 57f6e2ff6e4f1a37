"""Methods as MCP prompts: their entries in the list, their messages, and completion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from duet_rpc.jsonrpc.jsontext import dumps, loads
from duet_rpc.mcp.resources import read_texts
from duet_rpc.mcp.session import invalid
from duet_rpc.mcp.tools import description
from duet_rpc.methods.describe import param_schemas
from duet_rpc.methods.method import BadResult, accepted
from duet_rpc.methods.results import TYPE

if TYPE_CHECKING:
    from duet_rpc.mcp.catalog import Catalog
    from duet_rpc.mcp.session import Params
    from duet_rpc.mcp.versions import Version
    from duet_rpc.methods.context import Context
    from duet_rpc.methods.method import Method

VALUES_MAX = 100
"""How many completions MCP lets a server send."""


def describe_prompt(method: Method, version: Version) -> dict[str, object]:
    """Return the entry of a prompt in the list, with its arguments."""
    described: dict[str, object] = {"name": method.name}
    if version.title and method.title:
        described["title"] = method.title
    described["description"] = description(method)
    schemas = param_schemas(method)
    arguments = []
    for name, param in method.params.items():
        said = schemas[name].get("description")
        # An argument has no schema here: what it may be stands in words.
        words = [str(said)] if said else []
        words += [f"({param.label})"] if param.label != "string" else []
        about = {"description": " ".join(words)} if words else {}
        arguments.append({"name": name, **about, "required": param.required})
    described["arguments"] = arguments
    return described


def write_messages(method: Method, given: dict[str, object], context: Context | None) -> str:
    """Call the function of a prompt; return the members of the result."""
    value = loads(method.call(read_texts(method, given), context))
    messages = [_message(each, method) for each in (value if isinstance(value, list) else [value])]
    return f'"description":{dumps(description(method))},"messages":{dumps(messages)}'


def _message(value: Any, method: Method) -> dict[str, object]:
    role, text = "user", value
    if isinstance(value, dict) and value.get(TYPE) == "message":
        role, text = value["role"], value["text"]
    if not isinstance(text, str):
        what = "a prompt returns a text, a Message or a list of those"
        raise BadResult(f"{what} (returned by {method.place})", method.source, "")
    return {"role": role, "content": {"type": "text", "text": text}}


# Completion.


def complete(catalog: Catalog, params: Params) -> str:
    """Return the values that an argument may have and that begin as what was typed."""
    reference, argument = params.get("ref"), params.get("argument")
    if not isinstance(reference, dict) or not isinstance(argument, dict):
        raise invalid("ref and argument must be objects")
    name, typed = argument.get("name"), argument.get("value")
    if not isinstance(name, str) or not isinstance(typed, str):
        raise invalid("argument must have a name and a value")
    kind = reference.get("type")
    if kind == "ref/prompt":
        method = catalog.prompts.get(str(reference.get("name")))
    elif kind == "ref/resource":
        method = catalog.template(reference.get("uri"))
    else:
        raise invalid("ref must be of type ref/prompt or ref/resource")
    param = method.params.get(name) if method is not None else None
    if param is None:
        raise invalid("ref and argument name no parameter of a prompt or a resource")
    choices = ["true", "false"] if param.schema.get("type") == "boolean" else accepted(param.schema)
    values = [each for each in choices or () if each.lower().startswith(typed.lower())]
    found = {"values": values[:VALUES_MAX], "total": len(values)}
    return f'"completion":{dumps({**found, "hasMore": len(values) > VALUES_MAX})}'
