"""What MCP servers offer: tools, resources, templates and prompts.

An entry is kept as the JSON text that its server sent; a tool or a prompt with another name in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from duet_rpc.jsonrpc.jsontext import dumps, member, replace, split_object, without
from duet_rpc.jsonrpc.values import RawJson

if TYPE_CHECKING:
    from duet_rpc.gateway.backend import Backend


class Kind(NamedTuple):
    """One kind of what servers offer."""

    method: str  # that lists it
    member: str  # of the result, with the entries
    key: str  # the member of an entry that it is known by
    capability: str  # of a server that has any
    word: str  # for people

    @property
    def has_names(self) -> bool:
        """True where entries have names, to which the gateway adds the server's; URIs are kept."""
        return self.key == "name"


TOOLS = Kind("tools/list", "tools", "name", "tools", "tool")
RESOURCES = Kind("resources/list", "resources", "uri", "resources", "resource")
TEMPLATES = Kind(
    "resources/templates/list", "resourceTemplates", "uriTemplate", "resources", "template"
)
PROMPTS = Kind("prompts/list", "prompts", "name", "prompts", "prompt")
KINDS = {kind.method: kind for kind in (TOOLS, RESOURCES, TEMPLATES, PROMPTS)}
NAMED = {"tools/call": TOOLS, "prompts/get": PROMPTS}
"""The requests that name an entry by the name that it has in a merged list."""

CHANGED = {
    "notifications/tools/list_changed": (TOOLS,),
    "notifications/resources/list_changed": (RESOURCES, TEMPLATES),
    "notifications/prompts/list_changed": (PROMPTS,),
}
"""The notifications by which a server announces changes, and the lists that may have changed."""


class Entry:
    """One tool, resource, template or prompt: its text, and the parts that are listed."""

    __slots__ = ("backend", "description", "name", "own_name", "own_text", "schema", "text")

    def __init__(self, backend: Backend, kind: Kind, text: str) -> None:
        found = split_object(text)[0]
        members = {name: each[0] for name, each in found.items()}
        name = members[kind.key]
        if not name or not isinstance(name, str):
            raise ValueError("an entry has a name")
        self.backend = backend.name
        self.own_name = self.name = name
        self.own_text = self.text = text
        if kind.has_names:
            self.name = backend.tool_name(name)
            _, start, end = found["name"]
            self.text = f"{text[:start]}{dumps(self.name)}{text[end:]}"
        self.description = str(members.get("description") or members.get("title") or "")
        schema = members.get("inputSchema")
        self.schema: dict[str, object] = schema if isinstance(schema, dict) else {}


def rename(text: str, name: str) -> str:
    """Return an object with another text in its member `name`."""
    return replace(text, ("name",), dumps(name))


def rename_call(params: RawJson, name: str) -> RawJson:
    """Return the params of a call with the name that a tool or a prompt has at its server."""
    value = {**params.value, "name": name} if isinstance(params.value, dict) else None
    return RawJson(rename(params.text, name), value)


def call_by_name(tool: str, arguments: RawJson | None) -> RawJson | None:
    """Return the params of `tools/call` for a tool called as a method; None for an array."""
    text, given = ("{}", {}) if arguments is None else (arguments.text, arguments.value)
    if not isinstance(given, dict):
        return None
    value = {"name": tool, "arguments": given}
    if "_meta" not in given:
        return RawJson(f'{{"name":{dumps(tool)},"arguments":{text}}}', value)
    # It is about the call and is not an argument.
    meta, rest = member(text, "_meta"), without(text, "_meta")
    value = {**value, "_meta": given["_meta"]}
    return RawJson(f'{{"_meta":{meta},"name":{dumps(tool)},"arguments":{rest}}}', value)
