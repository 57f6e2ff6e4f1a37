"""`duet-rpc mcp --gateway`: the tools of all MCP servers and the user's methods, as one server.

It is the gateway with another client in front of it: one that speaks MCP by lines and
knows tools and nothing else. The user's methods are behind it as one more backend, a
`duet-rpc mcp` of its own, so that one of them that takes long holds up nobody.
"""

from __future__ import annotations

from functools import partial

from duet_rpc.gateway.dialects import MCP
from duet_rpc.gateway.gateway import LIST_CHANGED, Gateway
from duet_rpc.gateway.tools import OWN, rename_call
from duet_rpc.jsonrpc.envelope import encode_request, encode_result, split_object
from duet_rpc.jsonrpc.errors import METHOD_NOT_FOUND, TITLES, RpcError
from duet_rpc.jsonrpc.framing import LINES, Framing
from duet_rpc.jsonrpc.limits import RECEIVED_MAX
from duet_rpc.jsonrpc.messages import Failure, Request, encode_failure, encode_success, to_json
from duet_rpc.mcp.session import CACHE, COMPLETE, Session, finish, invalid
from duet_rpc.mcp.tools import allowed_name, free_name
from duet_rpc.server import dispatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from duet_rpc.gateway.backend import Backend, Outcome
    from duet_rpc.gateway.tools import Tool
    from duet_rpc.jsonrpc.envelope import Envelope
    from duet_rpc.mcp.versions import Version

NO_BREAKS = bytes.maketrans(b"\r\n", b"  ")


def encode_one_line(body: bytes) -> bytes:
    """Make one line of what a server may have broken into several, between two tokens."""
    return LINES.encode(body.translate(NO_BREAKS) if b"\n" in body or b"\r" in body else body)


class McpGateway(Gateway):
    """The gateway, for an MCP client."""

    command = "mcp --gateway"
    framing = Framing(LINES.form, LINES.decoder, encode_one_line)
    dialect = MCP
    answers_cancelled = False
    _session: Session

    def prepare(self) -> None:
        """Begin without a handshake."""
        self._session = Session(list_changed=True)
        self._named: dict[str, Tool] = {}  # as they were listed last
        self._tools.on_news = self._announce_tools

    # The client asks.

    def _route(self, message: Envelope, method: str) -> None:
        id = message.id
        if id is None:
            if method == MCP.cancel:
                self._outgoing.cancel(message, MCP.cancel_key)
            elif not method.startswith("notifications/"):
                self._log.warn(TITLES[METHOD_NOT_FOUND], method)
            return
        if self._outgoing.is_second(message):
            return
        try:
            version = self._session.begin(id, method, message.value("params"))
            if isinstance(version, bytes):
                if method == "initialize":
                    self._offer_version()
                self._say(encode_success(id, version))
            elif version is None:
                self._say_failure(dispatch.not_found(Request(method, None, id)), method)
            elif method == "tools/list":
                self._list(id, version)
            else:
                self._call(message, version)
        except RpcError as error:
            self._say_failure(Failure(id, error.code, error.message, error.data), method)

    def _offer_version(self) -> None:
        """Have the user's methods speak the version that the client speaks."""
        own, version = self._backends.get(OWN), self._session.handshake
        if own is not None and version is not None:
            own.version = version.name

    def _say_failure(self, failure: Failure, method: str) -> None:
        title = TITLES.get(failure.code, f"refused with error {failure.code}")
        self._log.warn(title, method, failure.id)
        self._say(encode_failure(failure))

    def _list(self, original: str, version: Version) -> None:
        id = self._outgoing.take_own(original, "tools/list")
        if id is None:
            return

        def done(tools: list[Tool], _absent: dict[str, str]) -> None:
            if self._outgoing.is_own(id):
                self._named = name_tools(tools)
                texts = (rename(*each) for each in self._named.items())
                members = f'"tools":[{",".join(texts)}]'
                if version.stateless:
                    members += f",{to_json(CACHE).decode()[1:-1]}"
                result = finish(members.encode(), version)
                self._say(encode_success(self._outgoing.finish_own(id), result))

        self._tools.collect(self._times.list, done)

    def _call(self, message: Envelope, version: Version) -> None:
        value, params = message.value("params"), message.params
        name = value.get("name") if isinstance(value, dict) else None
        if params is None or not isinstance(name, str):
            raise invalid("name must be a string")
        listed = self._named.get(name)
        if listed is not None:
            server, tool = self._backends.get(listed.backend), listed.own_name
        else:
            server, tool = self._tools.find(name) or (self._backends.get(OWN), name)
        if server is None:
            raise invalid(f"Unknown tool: {name[:RECEIVED_MAX]}")
        id = self._outgoing.forward(server, message, "tools/call", rename_call(params, tool))
        if id is not None and id in server.pending and version.stateless:
            server.pending[id].receive = partial(self._settle_stateless, server, id)

    # The servers answer and ask.

    def _settle_stateless(self, backend: Backend, id: int, outcome: Outcome) -> None:
        """Hand a result on in the words of the stateless version."""
        result = None if isinstance(outcome, Failure) else outcome.raw("result")
        if result is None or not result.startswith("{"):
            self.settle(backend, id, outcome)
            return
        text = as_stateless(result)  # first, for it may fail
        self._say(encode_result(self._outgoing.release(id), text).encode())

    def take(self, backend: Backend, message: Envelope) -> None:
        """Take what a server asks or says: it has been told that nobody here can do anything."""
        method, params = str(message.method), message.params
        if message.id is not None:
            if method == "ping":
                backend.answer(encode_result(message.id, "{}"))
            else:
                failure = dispatch.not_found(Request(method, None, message.id))
                backend.answer(encode_failure(failure).decode())
        elif method == MCP.progress and params is not None and params[0] == "{":
            self._outgoing.progress(backend, params)
        elif method == LIST_CHANGED:
            self._tools.renew(backend.name)
            self._announce_tools()

    def _announce(self, backend: Backend) -> None:
        """Say nothing: how the servers are is no matter of MCP."""

    def _announce_tools(self) -> None:
        if self._session.handshake is not None:
            self._say(encode_request(LIST_CHANGED, None).encode())


def name_tools(tools: list[Tool]) -> dict[str, Tool]:
    """Give each tool a name that MCP allows, none twice; what is fine as it is stays so."""
    taken = {tool.name for tool in tools if tool.name == allowed_name(tool.name)}
    named: dict[str, Tool] = {}
    for tool in tools:
        name = allowed_name(tool.name)
        if name != tool.name or name in named:
            name = free_name(name, taken)
            taken.add(name)
        named[name] = tool
    return named


def rename(name: str, tool: Tool) -> str:
    """Write a tool under another name, or its own."""
    try:
        return tool.text if name == tool.name else rename_call(tool.text, name)
    except RecursionError:  # nested too deeply to be read again; it can be called all the same
        return f'{{"name":"{name}","inputSchema":{{"type":"object"}}}}'


def as_stateless(result: str) -> str:
    """Put into a result what the stateless version wants in it."""
    members = split_object(result)[0]
    if "resultType" in members:
        return result
    added = '"resultType":"complete"' if "_meta" in members else COMPLETE.decode()
    return f"{{{added},{result[1:]}" if members else f"{{{added}}}"
