"""`duet-rpc mcp --gateway`: the tools of all MCP servers and the user's methods, as one server.

It is the router for a client that speaks MCP by lines and knows tools and nothing else. The
workers with the user's methods speak MCP here, too. Their files are looked at for each list,
and for each call of a tool that nobody else has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.gateway.dialects import MCP
from duet_rpc.gateway.gateway import LIST_CHANGED
from duet_rpc.gateway.own import refuse
from duet_rpc.gateway.questions import McpCall, Questions, asked_by
from duet_rpc.gateway.router import Router, send_preparing
from duet_rpc.gateway.server_session import Offer
from duet_rpc.gateway.state import State
from duet_rpc.gateway.tools import rename, rename_call
from duet_rpc.gateway.wire import id_in, params_of, raw, value_at
from duet_rpc.jsonrpc.errors import METHOD_NOT_FOUND, TITLES, Error, RpcError
from duet_rpc.jsonrpc.jsontext import dumps
from duet_rpc.jsonrpc.limits import RECEIVED_MAX
from duet_rpc.jsonrpc.messages import (
    Notification,
    Request,
    Success,
)
from duet_rpc.mcp.session import CACHE, Session, finish, invalid
from duet_rpc.mcp.tools import NAME_MAX, allowed_name
from duet_rpc.mcp.versions import CAPABILITIES_KEY, LATEST_HANDSHAKE, VERSION_KEY, VERSIONS
from duet_rpc.server import dispatch
from duet_rpc.server.dispatch import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from duet_rpc.config.processes import BackendSettings, WorkerSettings
    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.runtime import Front, Times
    from duet_rpc.gateway.tools import Merged, Tool
    from duet_rpc.gateway.worker import Worker
    from duet_rpc.jsonrpc.values import RawJson
    from duet_rpc.log import Log
    from duet_rpc.mcp.versions import Version
    from duet_rpc.server.handover import Passed
    from duet_rpc.workers.plan import Plan


class McpGateway(Router):
    """The router for an MCP client."""

    dialect = MCP
    replies_to_cancelled = False

    def __init__(
        self,
        descriptors: tuple[int, int],
        log: Log,
        backends: Iterable[BackendSettings],
        times: Times,
        plan: Plan,
        front: Front,
    ) -> None:
        self._session = Session()
        self._offer: Offer | None = None  # for servers, once the client has said what it can do
        super().__init__(descriptors, log, backends, times, plan, front)
        self._batch = front.batch  # asked for on the command line
        self._questions = Questions(self._runtime.loop, self._requests, self._backend_requests)
        self._is_announced = False  # the client knows that there are new tools
        self._listed: dict[str, Tool] = {}  # by the names that the client was told last
        self._merged: Merged | None = None  # what they were made of
        for backend in self._backends.values():
            backend.set_offer(None)
        if front.passed is not None:
            self._take_over(front.passed, plan)

    # Messages of the client.

    def _make_worker(self, settings: WorkerSettings) -> Worker:
        settings.dialect, settings.framing = "mcp", "lines"
        worker = super()._make_worker(settings)
        worker.set_offer(self._offer)
        return worker

    def _take_over(self, passed: Passed, plan: Plan) -> None:
        """Go on where a daemon has left off."""
        for path in passed.loaded:
            plan.add_source(path)
        self._runtime.client.feed(passed.input)
        if passed.handshake is not None:
            self._session.handshake = VERSIONS[passed.handshake]
            self._handle_handshake()
            self._runtime.loop.call_soon(self._announce_tools)

    def _handle_notification(self, notification: Notification) -> None:
        if notification.method == MCP.cancel:
            self._requests.cancel(notification, MCP.cancel_key)
            self._backend_requests.cancel_for(self._requests.is_in_flight)
            known, id = id_in(params_of(notification), MCP.cancel_key)
            if known:
                self._front.drop_reply(id)
        elif not notification.method.startswith("notifications/"):
            self._runtime.log.warn(TITLES[METHOD_NOT_FOUND], notification.method)

    def _handle_request(self, request: Request) -> None:
        if self._requests.refuse_duplicate(request):
            return
        id, method, params = request.id, request.method, params_of(request)
        try:
            version = self._session.begin(id, method, None if params is None else params.value)
            if self._offer is None and value_at(params, "_meta", VERSION_KEY) is not None:
                capabilities = value_at(params, "_meta", CAPABILITIES_KEY)
                self._make_offer(LATEST_HANDSHAKE, capabilities)
            if isinstance(version, str):
                if method == "initialize":
                    self._handle_handshake()
                self._front.send(Success(id, raw(version)))
            elif version is None:
                self._refuse(request, dispatch.not_found(method))
            elif method == "tools/list":
                self._list_tools(request, version)
            else:
                self._forward_call(request, version)
        except RpcError as error:
            self._refuse(request, Refused(Error(error.code, error.message, error.data)))

    def _refuse(self, request: Request, refused: Refused) -> None:
        refuse(request, refused, self._runtime.log, self._front.send)

    def _handle_handshake(self) -> None:
        """Speak with all servers as the client wants to be spoken to."""
        handshake = self._session.handshake
        self._front.accepts_batches = self._batch or (handshake is not None and handshake.batch)
        version = LATEST_HANDSHAKE if handshake is None else handshake.name
        self._make_offer(version, self._session.capabilities)

    def _make_offer(self, version: str, capabilities: object) -> None:
        """Let the servers begin, with what the client can do."""
        self._offer = Offer(version, asked_by(capabilities))
        for backend in self._backends.values():
            backend.set_offer(self._offer)

    def _list_tools(self, request: Request, version: Version) -> None:
        self._workers.scan()
        self._questions = Questions(self._runtime.loop, self._requests, self._backend_requests)
        self._is_announced = False
        id = self._requests.begin_own(request)
        if id is None:
            return

        def done(merged: Merged) -> None:
            if self._requests.is_own(id):
                self._requests.finish_own(id, raw(self._write_list(merged, version)))

        self._tools.collect(self._runtime.times.list, done)

    def _write_list(self, merged: Merged, version: Version) -> str:
        if merged is not self._merged:
            self._merged, self._listed = merged, name_tools(merged.tools)
        if version.name not in merged.texts:
            texts = (write_tool(*each) for each in self._listed.items())
            members = f'"tools":[{",".join(texts)}]'
            if version.stateless:
                members += f",{dumps(CACHE)[1:-1]}"
            merged.texts[version.name] = finish(members, version)
        return merged.texts[version.name]

    def _forward_call(self, request: Request, version: Version) -> None:
        params = params_of(request)
        name = value_at(params, "name")
        if params is None or not isinstance(name, str):
            raise invalid("name must be a string")
        listed = self._listed.get(name)
        server: Backend | None
        if listed is not None:
            server, tool = self._backends.get(listed.backend), listed.own_name
        else:
            server, tool = self._tools.find(name) or (self._workers.find(name), name)
        if server is None:
            raise invalid(f"Unknown tool: {name[:RECEIVED_MAX]}")
        can = self._can(params, version)
        call = McpCall(server, request, rename_call(params, tool), version, can)
        self._questions.forward(call, request)

    def _can(self, params: RawJson | None, version: Version) -> object:
        """Return the capabilities of the client that makes a request."""
        if version.stateless:
            return value_at(params, "_meta", CAPABILITIES_KEY)
        return self._session.capabilities

    # Messages of the servers.

    def handle_backend_message(self, backend: Backend, message: Request | Notification) -> None:
        """Handle a request or a notification of a server."""
        method = message.method
        if isinstance(message, Request):
            if method == "ping":
                backend.reply(Success(message.id, {}))
            else:
                is_stateless = self._session.handshake is None
                client = None if is_stateless else self._session.capabilities or {}
                self._questions.handle_request(backend, message, client)
            return
        params = params_of(message)
        if method == MCP.progress and params is not None:
            self._requests.handle_progress(backend, params)
        elif method == MCP.cancel and params is not None:
            self._backend_requests.cancel(backend, params)
        elif method == LIST_CHANGED:
            self._tools.invalidate(backend.name)
            self._announce_tools()

    def handle_backend_state(self, backend: Backend) -> None:
        """Ask a server that is ready for its tools; MCP has no word for any other state."""
        if backend.state is State.READY:
            self._tools.handle_ready(backend.name)
        else:
            self._tools.forget(backend.name)
            if backend.state is not State.STARTING:
                self._backend_requests.cancel_all(backend)

    def handle_preparing(self, backend: Backend, text: str) -> None:
        """Tell those who wait for a worker what it does before it is ready."""
        send_preparing(backend, text, self.dialect, self._front.send)

    def _announce_tools(self) -> None:
        """Tell the client of new tools, once until it asks for them: a server may go on and on."""
        if self._session.handshake is not None and not self._is_announced:
            self._is_announced = True
            self._front.send(Notification(LIST_CHANGED))


def name_tools(tools: list[Tool]) -> dict[str, Tool]:
    """Give each tool a name that MCP allows, none twice; a name that is allowed is kept."""
    taken = {tool.name for tool in tools if tool.name == allowed_name(tool.name)}
    numbers: dict[str, int] = {}  # where to go on; to count from 1 again would take quadratic time
    named: dict[str, Tool] = {}
    for tool in tools:
        name = allowed = allowed_name(tool.name)
        if name != tool.name or name in named:
            number = numbers.get(allowed, 1)
            while name in taken:
                number += 1
                name = f"{allowed[: NAME_MAX - len(str(number)) - 1]}_{number}"
            numbers[allowed] = number
            taken.add(name)
        named[name] = tool
    return named


def write_tool(name: str, tool: Tool) -> str:
    """Return a tool's text with this name in it."""
    try:
        return tool.text if name == tool.name else rename(tool.text, name)
    except RecursionError:  # nested too deeply to be read again; it can be called all the same
        return f'{{"name":"{name}","inputSchema":{{"type":"object"}}}}'
