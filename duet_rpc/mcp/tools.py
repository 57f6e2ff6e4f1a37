"""Methods as MCP tools: their names, their descriptions, their results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.jsontext import dumps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from duet_rpc.mcp.versions import Version
    from duet_rpc.methods.registry import Method, Schema

NAME_MAX = 128
WRAPPER = "result"
"""The member that holds a result which is no object: MCP's structured content is one."""


def name_tools(methods: Iterable[Method]) -> dict[str, Method]:
    """Give each method a name that MCP allows, in the methods' order, none twice."""
    methods = list(methods)
    allowed = {method.name: allowed_name(method.name) for method in methods}
    # A method whose name is fine as it is keeps it, whatever others become.
    taken = {name for name, tool in allowed.items() if name == tool}
    tools = {}
    for method in methods:
        tool = allowed[method.name]
        if tool != method.name:
            tool = free_name(tool, taken)
            taken.add(tool)
        tools[tool] = method
    return tools


def allowed_name(name: str) -> str:
    """Make a name that MCP allows."""
    kept = (c if c.isascii() and (c.isalnum() or c in "_.-") else "_" for c in name)
    return "".join(kept)[:NAME_MAX] or "_"


def free_name(name: str, taken: set[str]) -> str:
    """Make one of it that nobody has."""
    number, found = 1, name
    while found in taken:
        number += 1
        end = f"_{number}"
        found = name[: NAME_MAX - len(end)] + end
    return found


def describe_tool(name: str, method: Method, version: Version) -> dict[str, object]:
    """Describe a tool in the words that a version has."""
    tool: dict[str, object] = {"name": name}
    if version.title and method.title:
        tool["title"] = method.title
    if method.summary:
        tool["description"] = method.summary
    tool["inputSchema"] = input_schema(method)
    if version.structured and method.returns:
        tool["outputSchema"] = output_schema(method)
    if version.annotations:
        annotations: dict[str, object] = {**method.hints}
        if method.title:
            annotations["title"] = method.title
        if annotations:
            tool["annotations"] = annotations
    return tool


def input_schema(method: Method) -> Schema:
    """Describe the arguments as one object."""
    schema: Schema = {"type": "object"}
    if method.params:
        schema["properties"] = {name: modern(param.schema) for name, param in method.params.items()}
        required = [name for name, param in method.params.items() if param.required]
        if required:
            schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def output_schema(method: Method) -> Schema:
    """Describe the structured content."""
    # A result may have members that its type does not name, as a subclass has.
    schema = modern(method.returns, closed=False)
    if returns_object(method):
        return schema
    return {
        "type": "object",
        "properties": {WRAPPER: schema},
        "required": [WRAPPER],
        "additionalProperties": False,
    }


def returns_object(method: Method) -> bool:
    """Return True where the signature promises an object, which needs no wrapper."""
    return method.returns.get("type") == "object"


def modern(schema: Schema, closed: bool = True) -> Schema:
    """Write a schema as JSON Schema 2020-12, which has another word for a tuple's items."""
    made: Schema = {}
    for key, value in schema.items():
        if key == "items" and isinstance(value, list):
            made["prefixItems"] = [modern(each, closed) for each in value]
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            made[key] = modern(value, closed)
        elif key == "properties" and isinstance(value, dict):
            made[key] = {name: modern(each, closed) for name, each in value.items()}
        elif key == "anyOf" and isinstance(value, list):
            made[key] = [modern(each, closed) for each in value]
        elif closed or key != "additionalProperties":
            made[key] = value
    return made


TYPES: dict[object, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int, float),  # 1.0 is one; a fraction is found below
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


def find_departure(value: object, schema: Schema) -> str | None:
    """Find where a result is not what its schema says; return the path to it.

    A client that checks what it gets refuses such a result in words that help nobody.
    """
    if "anyOf" in schema:
        fits = (find_departure(value, each) is None for each in schema["anyOf"])  # type: ignore[attr-defined]
        return None if any(fits) else ""
    if "type" in schema and type(value) not in TYPES[schema["type"]]:
        return ""
    if isinstance(value, float) and schema.get("type") == "integer" and not value.is_integer():
        return ""
    if "enum" in schema:
        same = (type(value) is type(each) and value == each for each in schema["enum"])  # type: ignore[attr-defined]
        return None if any(same) else ""
    if isinstance(value, list):
        return _find_in_array(value, schema.get("items"))
    if isinstance(value, dict):
        return _find_in_object(value, schema)
    return None


def _find_in_array(value: list[object], items: object) -> str | None:
    if isinstance(items, list) and len(items) != len(value):
        return ""
    if not items:
        return None
    for at, each in enumerate(value):
        place = find_departure(each, items[at] if isinstance(items, list) else items)  # type: ignore[arg-type]
        if place is not None:
            return f"[{at}]{place}"
    return None


def _find_in_object(value: dict[str, object], schema: Schema) -> str | None:
    for name in schema.get("required", ()):  # type: ignore[attr-defined]
        if name not in value:
            return f".{name}"
    named, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, each in value.items():
        wanted = named.get(name, others)  # type: ignore[attr-defined]
        if wanted:
            place = find_departure(each, wanted)
            if place is not None:
                return f".{name}{place}"
    return None


def write_result(result: str, method: Method, version: Version) -> str:
    """Write what a method returned, for people and models (text) and for programs."""
    # A text is shown as it is, all else as JSON.
    text = result if result.startswith('"') else dumps(result)
    content = f'"content":[{{"type":"text","text":{text}}}],"isError":false'
    if not version.structured:
        return content
    if not returns_object(method) and (method.returns or not result.startswith("{")):
        result = f'{{"{WRAPPER}":{result}}}'
    return f'{content},"structuredContent":{result}'


def write_error(message: str, data: object = None) -> str:
    """Write why a tool failed, for the model that called it."""
    text = message if data is None else f"{message}\n{dumps(data)}"
    return f'"content":[{{"type":"text","text":{dumps(text)}}}],"isError":true'
