"""What an AI client is offered: the user's methods as tools, as resources and as prompts.

A catalog is made of the methods as they are at one time, and never changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.jsontext import dumps
from duet_rpc.jsonrpc.limits import RECEIVED_MAX
from duet_rpc.mcp.prompts import describe_prompt
from duet_rpc.mcp.resources import describe_resource
from duet_rpc.mcp.session import CACHE, LISTS, finish, invalid, resource_not_found
from duet_rpc.mcp.tools import describe_tool, name_tools
from duet_rpc.mcp.versions import VERSIONS
from duet_rpc.methods.offers import Prompt, Resource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from duet_rpc.mcp.session import Params
    from duet_rpc.mcp.versions import Version
    from duet_rpc.methods.method import Method


class Catalog:
    """The tools, the resources and the prompts, each by its name."""

    def __init__(self, methods: Iterable[Method]) -> None:
        methods = [*methods]
        self.tools = name_tools(each for each in methods if each.offer is None)
        self.prompts = {each.name: each for each in methods if isinstance(each.offer, Prompt)}
        self._resources = [
            (each, each.offer) for each in methods if isinstance(each.offer, Resource)
        ]
        self._texts: dict[tuple[str, str], str] = {}  # by list and version

    # Lists.

    def write(self, method: str, version: Version) -> str:
        """Return the result of one of the lists."""
        key = method, version.name
        if key not in self._texts:
            body = {LISTS[method]: self._entries(method, version)}
            more = CACHE if version.stateless else {}
            self._texts[key] = finish(dumps({**body, **more})[1:-1], version)
        return self._texts[key]

    def _entries(self, method: str, version: Version) -> list[dict[str, object]]:
        if method == "tools/list":
            return [describe_tool(*each, version) for each in self.tools.items()]
        if method == "prompts/list":
            return [describe_prompt(each, version) for each in self.prompts.values()]
        wants_templates = method == "resources/templates/list"
        return [
            describe_resource(each, offer, version)
            for each, offer in self._resources
            if bool(offer.template.names) is wants_templates
        ]

    def changed_since(self, earlier: Catalog) -> list[str]:
        """Return the kinds of which a client was told something else by an earlier catalog."""
        others = [key[0] for key, text in earlier._texts.items() if self._differs(*key, text)]
        return [*dict.fromkeys(method.partition("/")[0] for method in others)]

    def _differs(self, method: str, version: str, text: str) -> bool:
        return self.write(method, VERSIONS[version]) != text

    # What a request names.

    def find(self, params: Params, method: str) -> Method | None:
        """Return what a request names, if there is such a thing."""
        if method == "resources/read":
            found = self.match(params.get("uri"))
            return None if found is None else found[0]
        name = params.get("name")
        names = {"tools/call": self.tools, "prompts/get": self.prompts}.get(method, {})
        return names.get(name) if isinstance(name, str) else None

    def match(self, uri: object) -> tuple[Method, dict[str, str]] | None:
        """Return the resource that has a URI, and the values of its variables."""
        if not isinstance(uri, str):
            raise invalid("uri must be a string")
        found = None
        for method, offer in self._resources:
            values = offer.template.match(uri)
            if values is not None and not offer.template.names:
                return method, {}  # the exact one, whatever others would match
            if values is not None and found is None:
                found = method, values
        return found

    def resource(self, uri: object, version: Version) -> tuple[Method, dict[str, str]]:
        """Return the resource that has a URI; raise RpcError where there is none."""
        found = self.match(uri)
        if found is None:
            raise resource_not_found(uri, version)
        return found

    def prompt(self, params: Params) -> tuple[Method, dict[str, object]]:
        """Return the prompt that is asked for and its arguments; raise RpcError."""
        _, method, given = _find_named("prompt", self.prompts, params)
        return method, given or {}

    def tool(self, params: Params) -> tuple[str, Method, Params | None]:
        """Return the tool that is called, by its name, and its arguments; raise RpcError."""
        return _find_named("tool", self.tools, params)

    def template(self, text: object) -> Method | None:
        """Return the resource with this template."""
        for method, offer in self._resources:
            if offer.template.text == text:
                return method
        return None


def _find_named(
    kind: str, methods: Mapping[str, Method], params: Params
) -> tuple[str, Method, Params | None]:
    name, given = params.get("name"), params.get("arguments")
    if not isinstance(name, str):
        raise invalid("name must be a string")
    if name not in methods:
        raise invalid(f"Unknown {kind}: {name[:RECEIVED_MAX]}")
    if given is not None and not isinstance(given, dict):
        raise invalid("arguments must be an object")
    return name, methods[name], given
