"""`duet-rpc mcp --gateway`: the tools of all MCP servers and the user's methods, as one server.

It is the gateway with another client in front of it: one that speaks MCP by lines and
knows tools and nothing else. The user's methods are behind it as one more backend, a
`duet-rpc mcp` of its own, so that one of them that takes long delays nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.gateway.dialects import MCP
from duet_rpc.gateway.gateway import LIST_CHANGED, Gateway
from duet_rpc.gateway.tools import OWN, rename, rename_call
from duet_rpc.gateway.wire import params_of, raw, value_at
from duet_rpc.jsonrpc.errors import METHOD_NOT_FOUND, TITLES, Error, RpcError
from duet_rpc.jsonrpc.framing import LINES
from duet_rpc.jsonrpc.jsontext import dumps, split_object
from duet_rpc.jsonrpc.limits import RECEIVED_MAX
from duet_rpc.jsonrpc.messages import Failure, Notification, Request, Success
from duet_rpc.jsonrpc.values import RawJson
from duet_rpc.mcp.session import CACHE, COMPLETE, Session, finish, invalid
from duet_rpc.mcp.tools import allowed_name, free_name
from duet_rpc.server import dispatch
from duet_rpc.server.dispatch import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from duet_rpc.config.settings import BackendSettings
    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.pending import Outcome
    from duet_rpc.gateway.runtime import Times
    from duet_rpc.gateway.tools import Tool
    from duet_rpc.log import Log
    from duet_rpc.mcp.versions import Version


class McpGateway(Gateway):
    """The gateway, for an MCP client."""

    framing = LINES
    dialect = MCP
    replies_to_cancelled = False

    def __init__(
        self,
        descriptors: tuple[int, int],
        log: Log,
        backends: Iterable[BackendSettings],
        times: Times,
    ) -> None:
        super().__init__(descriptors, log, backends, times)
        self._session = Session(list_changed=True)
        self._listed: dict[str, Tool] = {}  # by the names that the client was told last

    # Messages of the client.

    def _handle_notification(self, notification: Notification) -> None:
        if notification.method == MCP.cancel:
            self._requests.cancel(notification, MCP.cancel_key)
        elif not notification.method.startswith("notifications/"):
            self._log.warn(TITLES[METHOD_NOT_FOUND], notification.method)

    def _handle_request(self, request: Request) -> None:
        if self._requests.refuse_duplicate(request):
            return
        id, method, params = request.id, request.method, params_of(request)
        try:
            version = self._session.begin(id, method, None if params is None else params.value)
            if isinstance(version, str):
                if method == "initialize":
                    self._offer_version()
                self._client.send(Success(id, raw(version)))
            elif version is None:
                self._refuse(request, dispatch.not_found(method))
            elif method == "tools/list":
                self._list_tools(request, version)
            else:
                self._forward_call(request, version)
        except RpcError as error:
            self._refuse(request, Refused(Error(error.code, error.message, error.data)))

    def _offer_version(self) -> None:
        """Let the user's methods speak the version that the client speaks."""
        own, version = self._backends.get(OWN), self._session.handshake
        if own is not None and version is not None:
            own.version = version.name

    def _list_tools(self, request: Request, version: Version) -> None:
        id = self._requests.begin_own(request)
        if id is None:
            return

        def done(tools: list[Tool], _missing: dict[str, str]) -> None:
            if self._requests.is_own(id):
                self._listed = name_tools(tools)
                texts = (write_tool(*each) for each in self._listed.items())
                members = f'"tools":[{",".join(texts)}]'
                if version.stateless:
                    members += f",{dumps(CACHE)[1:-1]}"
                self._requests.finish_own(id, raw(finish(members, version)))

        self._tools.collect(self._times.list, done)

    def _forward_call(self, request: Request, version: Version) -> None:
        params = params_of(request)
        name = value_at(params, "name")
        if params is None or not isinstance(name, str):
            raise invalid("name must be a string")
        listed = self._listed.get(name)
        if listed is not None:
            server, tool = self._backends.get(listed.backend), listed.own_name
        else:
            server, tool = self._tools.find(name) or (self._backends.get(OWN), name)
        if server is None:
            raise invalid(f"Unknown tool: {name[:RECEIVED_MAX]}")
        convert = make_stateless if version.stateless else None
        self._requests.forward(server, request, "tools/call", rename_call(params, tool), convert)

    # Messages of the servers.

    def handle_backend_message(self, backend: Backend, message: Request | Notification) -> None:
        """Handle a request or a notification of a server; the client is not asked anything."""
        method = message.method
        if isinstance(message, Request):
            if method == "ping":
                backend.reply(Success(message.id, {}))
            else:
                backend.reply(Failure(message.id, dispatch.not_found(method).error))
            return
        params = params_of(message)
        if method == MCP.progress and params is not None:
            self._requests.handle_progress(backend, params)
        elif method == LIST_CHANGED:
            self._tools.invalidate(backend.name)
            self._announce_tools()

    def _announce_state(self, backend: Backend) -> None:
        """Send nothing: MCP has no word for the state of a server behind a server."""

    def _announce_tools(self) -> None:
        if self._session.handshake is not None:
            super()._announce_tools()


def name_tools(tools: list[Tool]) -> dict[str, Tool]:
    """Give each tool a name that MCP allows, none twice; a name that is allowed is kept."""
    taken = {tool.name for tool in tools if tool.name == allowed_name(tool.name)}
    named: dict[str, Tool] = {}
    for tool in tools:
        name = allowed_name(tool.name)
        if name != tool.name or name in named:
            name = free_name(name, taken)
            taken.add(name)
        named[name] = tool
    return named


def write_tool(name: str, tool: Tool) -> str:
    """Return a tool's text with this name in it."""
    try:
        return tool.text if name == tool.name else rename(tool.text, name)
    except RecursionError:  # nested too deeply to be read again; it can be called all the same
        return f'{{"name":"{name}","inputSchema":{{"type":"object"}}}}'


def make_stateless(outcome: Outcome) -> Outcome:
    """Return the outcome of a call as the stateless version has it."""
    if isinstance(outcome, Success) and isinstance(outcome.result, RawJson):
        text = outcome.result.text
        if text.startswith("{"):
            return Success(outcome.id, raw(as_stateless(text)))
    return outcome


def as_stateless(result: str) -> str:
    """Return a result with the members that the stateless version requires."""
    members = split_object(result)[0]
    if "resultType" in members:
        return result
    added = '"resultType":"complete"' if "_meta" in members else COMPLETE
    return f"{{{added},{result[1:]}" if members else f"{{{added}}}"
