"""Methods as MCP resources: their entries in the lists, and what is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from duet_rpc.jsonrpc.jsontext import NOT_JSON, dumps, loads
from duet_rpc.mcp.tools import MEANING, content_of, description
from duet_rpc.methods.method import Mismatch
from duet_rpc.methods.offers import Resource
from duet_rpc.methods.results import TYPE

if TYPE_CHECKING:
    from duet_rpc.mcp.versions import Version
    from duet_rpc.methods.context import Context
    from duet_rpc.methods.method import Method


TEXT, BYTES, JSON = "text/plain", "application/octet-stream", "application/json"
"""The types of what is read, where the author says nothing else."""


def describe_resource(method: Method, offer: Resource, version: Version) -> dict[str, object]:
    """Return the entry of a resource, or of a template of resources, in its list."""
    uri = "uriTemplate" if offer.template.names else "uri"
    described: dict[str, object] = {uri: offer.template.text, "name": method.name}
    if version.title and method.title:
        described["title"] = method.title
    described["description"] = description(method)
    mime = offer.mime or mime_of(method)
    if mime is not None:
        described["mimeType"] = mime
    return described


def mime_of(method: Method) -> str | None:
    """Return the type of what a method returns, as far as its hint says."""
    kind, members = method.returns.get("type"), method.returns.get("properties")
    if method.returns.get("contentEncoding") == "base64":
        return BYTES
    if kind == "string":
        return TEXT
    if isinstance(members, dict) and TYPE in members:
        return None  # a picture says itself what it is
    return JSON if kind in ("object", "array") else None


def read(method: Method, uri: str, values: dict[str, str], context: Context | None) -> str:
    """Call the function of a resource; return the members of the result."""
    value = method.function(**method.bind(read_texts(method, values), context))
    is_bytes = isinstance(value, (bytes, bytearray))
    content = {"uri": uri, **_content(method.write(value), is_bytes, method)}
    return f'"contents":[{dumps(content)}]'


def _content(result: str, is_bytes: bool, method: Method) -> dict[str, object]:
    """Return what a method returned, as its caller reads it."""
    mime = method.offer.mime if isinstance(method.offer, Resource) else None
    value = loads(result) if result.startswith(('"', MEANING[0])) else None
    if is_bytes:
        return {"mimeType": mime or BYTES, "blob": value}
    content = content_of(value)
    if content["type"] == "image":
        return {"mimeType": content["mimeType"], "blob": content["data"]}
    if isinstance(value, str) or (isinstance(value, dict) and "text" in value):
        return {"mimeType": mime or TEXT, "text": content["text"]}
    return {"mimeType": mime or JSON, "text": result}


def read_texts(method: Method, given: dict[str, Any]) -> dict[str, object]:
    """Return arguments that came as text, as a URI and a prompt have them, with their own types.

    A text stays one where the parameter takes it; `"5"` is 5 for a parameter that is an integer.
    """
    return {name: _read_text(method, name, value) for name, value in given.items()}


def _read_text(method: Method, name: str, text: object) -> object:
    param = method.params.get(name)
    if param is None or not isinstance(text, str):
        return text
    try:
        param.check(text)
    except Mismatch:
        pass
    else:
        return text
    try:
        value = loads(text)
        param.check(value)
    except (Mismatch, *NOT_JSON):
        return text  # of which `bind` says what is wrong with it
    return value
