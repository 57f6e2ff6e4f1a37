"""Methods as MCP tools: their names, their descriptions, their results."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.jsontext import dumps, loads
from duet_rpc.methods.definitions import Definitions, map_parts
from duet_rpc.methods.describe import param_schemas

if TYPE_CHECKING:
    from collections.abc import Iterable

    from duet_rpc.mcp.versions import Version
    from duet_rpc.methods.method import Method, Schema

NAME_MAX = 128
WRAPPER = "result"
"""The member that holds a result which is no object: MCP's structured content is one."""
WRAPPED = "x-fastmcp-wrap-result"
"""The mark of a schema with such a member: FastMCP's client then returns what is in it."""


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
    tool["description"] = description(method)
    tool["inputSchema"] = input_schema(method)
    if version.structured and method.returns and not may_be_picture(method.returns):
        tool["outputSchema"] = output_schema(method)
    if version.annotations:
        annotations: dict[str, object] = {**method.hints}
        if method.title:
            annotations["title"] = method.title
        if annotations:
            tool["annotations"] = annotations
    return tool


def description(method: Method) -> str:
    """Return what the docstring says above its sections, or the name in words."""
    text = method.description.strip()
    if "\n" in text:
        from duet_rpc.methods.docstring import read_docstring  # only where there is one to read

        text = read_docstring(text).text
    return text or in_words(method.name)


def in_words(name: str) -> str:
    """Write `text.wordCount` or `word_count` as a person would."""
    words = re.findall(r"[A-Z]+[0-9]*(?![a-z])|[A-Z]?[^\W_A-Z]+|[^\W_]+", name)
    text = " ".join(word if word.isupper() and len(word) > 1 else word.lower() for word in words)
    return text[:1].upper() + text[1:] or name


def input_schema(method: Method) -> Schema:
    """Describe the arguments as one object, those first that must be given."""
    schema: Schema = {"type": "object"}
    definitions = Definitions()
    schemas = param_schemas(method)
    if schemas:
        required = [name for name, param in method.params.items() if param.required]
        order = [*required, *(name for name in schemas if name not in required)]
        schema["properties"] = {
            name: modern(definitions.take_from(schemas[name])) for name in order
        }
        if required:
            schema["required"] = required
    schema["additionalProperties"] = False
    return with_definitions(schema, definitions)


def output_schema(method: Method) -> Schema:
    """Describe the structured content."""
    definitions = Definitions()
    # A result may have members that its type does not name, as a subclass has.
    schema = modern(definitions.take_from(method.returns), closed=False)
    if not returns_object(method):
        schema = {
            "type": "object",
            "properties": {WRAPPER: schema},
            "required": [WRAPPER],
            "additionalProperties": False,
            WRAPPED: True,
        }
    return with_definitions(schema, definitions, closed=False)


def with_definitions(schema: Schema, definitions: Definitions, closed: bool = True) -> Schema:
    """Add what a schema refers to."""
    if not definitions.schemas:
        return schema
    made = {name: modern(each, closed) for name, each in definitions.schemas.items()}
    return {**schema, "$defs": made}


def returns_object(method: Method) -> bool:
    """Return True where the signature promises an object, which needs no wrapper."""
    return method.returns.get("type") == "object"


def modern(schema: Schema, closed: bool = True) -> Schema:
    """Write a schema as JSON Schema 2020-12, which has another word for a tuple's items."""
    made = map_parts(schema, lambda part: modern(part, closed))
    if isinstance(made.get("items"), list):
        made["prefixItems"] = made.pop("items")
    if not closed and made.get("additionalProperties") is False:
        del made["additionalProperties"]
    return made


def may_be_picture(part: object) -> bool:
    """Return True for a schema with a picture in it: that goes to the model as a picture alone."""
    if isinstance(part, dict):
        return part == PICTURE or any(map(may_be_picture, part.values()))
    return isinstance(part, list) and any(map(may_be_picture, part))


PICTURE = {"const": "image"}


def write_result(result: str, method: Method, version: Version) -> str:
    """Write what a method returned, for people and models (text) and for programs."""
    # A text is shown as it is, all else as JSON.
    text = result if result.startswith('"') else dumps(result)
    items = f'{{"type":"text","text":{text}}}'
    is_picture = False
    if result.startswith(MEANING):
        items, is_picture = write_meaning(result, items)
    content = f'"content":[{items}],"isError":false'
    if not version.structured or is_picture or may_be_picture(method.returns):
        return content
    if not returns_object(method) and (method.returns or not result.startswith("{")):
        result = f'{{"{WRAPPER}":{result}}}'
    return f'{content},"structuredContent":{result}'


MEANING = ('{"duet":"', '[{"duet":"')
"""How the JSON of results begins that say what they are (`methods.results`)."""


def write_meaning(result: str, otherwise: str) -> tuple[str, bool]:
    """Write pictures as pictures and a text as itself; return whether there is a picture."""
    value = loads(result)
    parts = [content_of(part) for part in (value if isinstance(value, list) else [value])]
    has_picture = any(part["type"] == "image" for part in parts)
    if has_picture or not isinstance(value, list):
        return ",".join(map(dumps, parts)), has_picture
    return otherwise, False


def content_of(part: object) -> dict[str, object]:
    """Return a result, or one part of it, as MCP's content."""
    if isinstance(part, dict):
        kind, text, data, mime = (part.get(each) for each in ("duet", "text", "data", "mime"))
        if kind == "image" and isinstance(data, str) and isinstance(mime, str):
            return {"type": "image", "data": data, "mimeType": mime}
        if kind == "text" and isinstance(text, str):
            return {"type": "text", "text": text}
    return {"type": "text", "text": part if isinstance(part, str) else dumps(part)}


def write_error(message: str, data: object = None) -> str:
    """Write why a tool failed, for the model that called it."""
    text = message if data is None else f"{message}\n{dumps(data)}"
    return f'"content":[{{"type":"text","text":{dumps(text)}}}],"isError":true'


def departure(name: str, method: Method, path: str) -> str:
    """Describe where a result differs from what the signature promises."""
    if method.offer is None and not returns_object(method):
        path = f"{WRAPPER}.{path}" if path and not path.startswith("[") else WRAPPER + path
    wrong = f"{name} returned something else than its signature promises"
    return f"{wrong}: {path}" if path else wrong
