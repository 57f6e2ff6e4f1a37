"""What every MCP server answers alike: who it is, and which version a request is of.

The version is determined for each request: from its `_meta`, or, where that names
none, from the handshake. That and the client's name are all the state there is. What the tools
are is not known here: `handler` has the user's methods, `gateway.mcp` those and the tools of
other servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc import __version__
from duet_rpc.jsonrpc.errors import INVALID_PARAMS, INVALID_REQUEST, TITLES, RpcError
from duet_rpc.jsonrpc.jsontext import dumps
from duet_rpc.jsonrpc.limits import RECEIVED_MAX
from duet_rpc.mcp.versions import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    HANDSHAKE,
    LATEST_HANDSHAKE,
    RESOURCE_NOT_FOUND,
    SERVER_INFO_KEY,
    STATELESS,
    SUPPORTED,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
    VERSIONS,
    Version,
)

if TYPE_CHECKING:
    from duet_rpc.jsonrpc.messages import Id

    Params = dict[str, object]

SERVER_INFO = {"name": "duet-rpc", "version": __version__}
LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
"""The lists that there are, and the member that holds each."""

METHODS = {
    "tools": ("tools/list", "tools/call"),
    "resources": ("resources/list", "resources/templates/list", "resources/read"),
    "prompts": ("prompts/list", "prompts/get"),
    "completions": ("completion/complete",),
}
"""What a client calls, by the capability that announces it."""

# A client of this era is not to keep a list: what there is comes and goes with the user's files.
CACHE: dict[str, object] = {"ttlMs": 0, "cacheScope": "private"}
# What makes a result one of the stateless era.
META = f'"_meta":{dumps({SERVER_INFO_KEY: SERVER_INFO})}'
COMPLETE = f'"resultType":"complete",{META}'
INPUT_REQUIRED = f'"resultType":"input_required",{META}'
SET_LEVEL = "logging/setLevel"


class Session:
    """One client's handshake, if there was one."""

    def __init__(self) -> None:
        self._methods = {method for each in METHODS.values() for method in each}
        self.handshake: Version | None = None
        self.capabilities: object = None  # the client's
        self.client_name = "AI client"  # or as it calls itself

    def begin(self, id: Id, method: str, params: object) -> Version | str | None:
        """Answer what every server answers alike, or return the version of the request.

        None is for a method that there is not. Raises RpcError.
        """
        if not isinstance(id, (str, int)):
            detail = "an id is a string or an integer here"
            raise RpcError(INVALID_REQUEST, f"{TITLES[INVALID_REQUEST]}: {detail}")
        if params is None:
            params = {}
        if not isinstance(params, dict):
            raise invalid("params must be an object")
        # Without a version to shake hands on, but with one in `_meta`, it is of the era that
        # has no handshake.
        if method == "initialize" and (
            "protocolVersion" in params or _named_version(params) is None
        ):
            return self._initialize(params)
        version = self._version_of(method, params)
        if method == "ping" and (version is None or not version.stateless):
            return "{}"
        if version is None:
            raise invalid(f"initialize comes first, or a version in _meta.{VERSION_KEY}")
        if method == "server/discover" and version.stateless:
            offered = self._capabilities(version)
            body = {"supportedVersions": SUPPORTED, "capabilities": offered, **CACHE}
            return finish(dumps(body)[1:-1], version)
        if method in LISTS and params.get("cursor") is not None:
            raise invalid("no such cursor: the list has one page")
        is_known = method in self._methods or (method == SET_LEVEL and not version.stateless)
        return version if is_known else None

    def _capabilities(self, version: Version) -> Params:
        """Return what is offered: always all of it, because the user's files come and go."""
        changes = {} if version.stateless else {"listChanged": True}
        offered: Params = {each: changes for each in METHODS if each != "completions"}
        if version.completions:
            offered["completions"] = {}
        return {**offered, "logging": {}}

    def _initialize(self, params: Params) -> str:
        asked = params.get("protocolVersion")
        if not isinstance(asked, str):
            raise invalid("protocolVersion must be a string")
        name = asked if asked in HANDSHAKE else LATEST_HANDSHAKE
        self.handshake = VERSIONS[name]
        self.capabilities = params.get("capabilities")
        self._note_name(params.get("clientInfo"))
        offered = self._capabilities(self.handshake)
        return dumps({"protocolVersion": name, "capabilities": offered, "serverInfo": SERVER_INFO})

    def _note_name(self, info: object) -> None:
        name = info.get("name") if isinstance(info, dict) else None
        if isinstance(name, str) and name.isprintable() and name:
            self.client_name = name[:RECEIVED_MAX]

    def _version_of(self, method: str, params: Params) -> Version | None:
        asked = _named_version(params)
        if asked is None:
            if method == "server/discover":
                raise invalid(f"_meta.{VERSION_KEY} is missing")
            return self.handshake
        if not isinstance(asked, str):
            raise invalid(f"_meta.{VERSION_KEY} must be a string")
        meta = params["_meta"]
        assert isinstance(meta, dict)  # noqa: S101 - for the type checker
        self._note_name(meta.get(CLIENT_INFO_KEY))
        if not isinstance(meta.get(CAPABILITIES_KEY), dict):
            raise invalid(f"_meta.{CAPABILITIES_KEY} must be an object")
        if asked not in STATELESS:
            data = {"supported": SUPPORTED, "requested": asked[:RECEIVED_MAX]}
            raise RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
        return VERSIONS[asked]


def _named_version(params: Params) -> object:
    """Return the version that a request of the stateless era says it is of."""
    meta = params.get("_meta")
    return meta.get(VERSION_KEY) if isinstance(meta, dict) else None


def invalid(detail: str) -> RpcError:
    """Return the error for invalid params."""
    return RpcError(INVALID_PARAMS, f"{TITLES[INVALID_PARAMS]}: {detail}")


def resource_not_found(uri: object, version: Version) -> RpcError:
    """Return the error for a resource that nobody has, with the code of the request's era."""
    shown = str(uri)[:RECEIVED_MAX]
    what = f"Resource not found: {shown}"
    if version.stateless:
        return RpcError(INVALID_PARAMS, f"{TITLES[INVALID_PARAMS]}: {what}", {"uri": shown})
    return RpcError(RESOURCE_NOT_FOUND, what, {"uri": shown})


def finish(members: str, version: Version) -> str:
    """Return the result that has these members."""
    return f"{{{COMPLETE},{members}}}" if version.stateless else f"{{{members}}}"
