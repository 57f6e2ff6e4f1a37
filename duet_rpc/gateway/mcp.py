"""`duet-rpc mcp --gateway`: all MCP servers and the user's methods, as one server.

It is the router for a client that speaks MCP by lines. The workers with the user's methods speak
MCP here, too; their files are checked for changes for each list, and for each call of a tool that
nobody else has. All servers are started with the process. Their handshakes wait until it is known
which version the client speaks and what can be asked of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.gateway.client_session import ClientSession
from duet_rpc.gateway.dialects import MCP
from duet_rpc.gateway.entries import CHANGED, KINDS, RESOURCES, TEMPLATES
from duet_rpc.gateway.instructions import Instructions
from duet_rpc.gateway.kept import KeptLists
from duet_rpc.gateway.lists import Patience
from duet_rpc.gateway.names import Names
from duet_rpc.gateway.own import refuse
from duet_rpc.gateway.questions import McpCall, Questions
from duet_rpc.gateway.router import Router
from duet_rpc.gateway.server_logs import MESSAGE, ServerLogs
from duet_rpc.gateway.state import State
from duet_rpc.gateway.subscriptions import (
    LISTEN,
    SUBSCRIBE,
    UNSUBSCRIBE,
    UPDATED,
    Subscriptions,
)
from duet_rpc.gateway.wire import id_in, params_of, raw, value_at
from duet_rpc.gateway.worker import Worker
from duet_rpc.jsonrpc.errors import METHOD_NOT_FOUND, TITLES, Error, RpcError
from duet_rpc.jsonrpc.jsontext import dumps
from duet_rpc.jsonrpc.messages import Notification, Request, Success
from duet_rpc.mcp.logging import check_level
from duet_rpc.mcp.session import SET_LEVEL, resource_not_found
from duet_rpc.mcp.versions import CAPABILITIES_KEY, LOG_LEVEL_KEY
from duet_rpc.server import dispatch
from duet_rpc.server.dispatch import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.config.processes import WorkerSettings
    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.entries import Kind
    from duet_rpc.gateway.lists import Merged
    from duet_rpc.gateway.pending import Outcome
    from duet_rpc.gateway.runtime import Setup
    from duet_rpc.mcp.versions import Version
    from duet_rpc.server.handover import Passed

ROOTS_CHANGED = "notifications/roots/list_changed"


class McpGateway(Router):
    """The router for an MCP client."""

    dialect = MCP
    replies_to_cancelled = False

    def __init__(self, setup: Setup) -> None:
        self._session = ClientSession(setup.batch)
        super().__init__(setup)
        loop, send = self._runtime.loop, self._front.send
        self._names = Names(self._catalog, self._backends, self._workers)
        self._questions = Questions(
            loop, self._requests, self._backend_requests, setup.times.answer
        )
        self._logs = ServerLogs(self._backends, send)
        self._subscriptions = Subscriptions(self._catalog, self._requests, send)
        self._instructions = Instructions(self._backends, loop, self._catalog.kept)
        for backend in self._backends.values():
            backend.set_handshake_params(None)
        if setup.passed is not None:
            self._take_over(setup.passed)

    def _find_kept_lists(self) -> KeptLists | None:
        return KeptLists()

    def _starts_now(self, _backend: Backend) -> bool:
        return True

    def _make_worker(self, settings: WorkerSettings) -> Worker:
        settings.dialect, settings.framing = "mcp", "lines"
        worker = super()._make_worker(settings)
        worker.set_handshake_params(self._session.params)
        return worker

    def _take_over(self, passed: Passed) -> None:
        """Go on where a daemon has left off."""
        super()._take_over(passed)
        if passed.handshake is not None:
            self._session.take_over(passed.handshake, passed.capabilities)
            self._begin_handshakes()
            self._runtime.loop.call_soon(self._announce_all)

    # Messages of the client.

    def _handle_notification(self, notification: Notification) -> None:
        method = notification.method
        if method == MCP.cancel:
            self._requests.cancel(notification, MCP.cancel_key)
            self._backend_requests.cancel_for(self._requests.is_in_flight)
            known, id = id_in(params_of(notification), MCP.cancel_key)
            if known:
                self._front.drop_reply(id)
        elif method == MCP.progress:
            self._backend_requests.handle_progress(notification, MCP.token_key)
        elif method == ROOTS_CHANGED:
            for backend in self._backends.values():
                if backend.state is State.READY and not isinstance(backend, Worker):
                    backend.notify(method, params_of(notification))
        elif not method.startswith("notifications/"):
            self._runtime.log.warn(TITLES[METHOD_NOT_FOUND], method)

    def _handle_request(self, request: Request) -> None:
        if self._requests.refuse_duplicate(request):
            return
        id, method, params = request.id, request.method, params_of(request)
        known = self._session.params
        try:
            version = self._session.begin(id, method, None if params is None else params.value)
            if self._session.params is not known:
                self._begin_handshakes()
            if isinstance(version, str):
                if method == "ping":
                    self._front.send(Success(id, raw(version)))
                else:
                    self._introduce(request, version)
            elif version is None:
                self._refuse(request, dispatch.not_found(method))
            elif method in KINDS:
                self._list(request, KINDS[method], version)
            else:
                self._serve(request, version)
        except RpcError as error:
            self._refuse(request, Refused(Error(error.code, error.message, error.data)))

    def _serve(self, request: Request, version: Version) -> None:
        method = request.method
        if method == SET_LEVEL:
            self._logs.set_level(value_at(params_of(request), "level"))
            self._front.send(Success(request.id, raw("{}")))
        elif method == LISTEN:
            self._with_resources(lambda: self._subscriptions.listen(request), request)
        elif method == UNSUBSCRIBE:
            self._subscriptions.unsubscribe(str(value_at(params_of(request), "uri")))
            self._front.send(Success(request.id, raw("{}")))
        else:
            self._forward(request, version)

    def _refuse(self, request: Request, refused: Refused) -> None:
        refuse(request, refused, self._runtime.log, self._front.send)

    def _begin_handshakes(self) -> None:
        """Let the servers' handshakes begin, with what can be asked of the client."""
        self._front.accepts_batches = self._session.accepts_batches
        for backend in self._backends.values():
            backend.set_handshake_params(self._session.params)

    def _introduce(self, request: Request, text: str) -> None:
        """Reply with what we are, and with the instructions of the servers."""
        id = self._requests.begin_own(request)
        if id is None:
            return

        def done(instructions: str) -> None:
            if self._requests.is_own(id):
                added = f',"instructions":{dumps(instructions)}' if instructions else ""
                self._requests.finish_own(id, raw(f"{text[:-1]}{added}}}"))

        self._instructions.collect(self._runtime.times.list_at_once, done)

    # Lists and calls.

    def _list(self, request: Request, kind: Kind, version: Version) -> None:
        self._workers.scan()
        self._subscriptions.handle_listed(kind)
        id = self._requests.begin_own(request)
        if id is None:
            return

        def done(merged: Merged) -> None:
            if self._requests.is_own(id):
                text = self._names.write_list(kind, merged, version)
                self._requests.finish_own(id, raw(text))

        self._catalog[kind].collect(self._patience, done)

    @property
    def _patience(self) -> Patience:
        return Patience(self._runtime.times.list_at_once, self._runtime.times.list)

    def _forward(self, request: Request, version: Version, is_last: bool = False) -> None:
        params = params_of(request)
        found = self._names.find(request.method, params)
        if found is not None:
            server, translated = found
            if request.method == SUBSCRIBE:
                self._subscribe(request)
                return
            capabilities: object = self._session.capabilities
            level = value_at(params, "_meta", LOG_LEVEL_KEY) if version.stateless else None
            if version.stateless:
                capabilities = value_at(params, "_meta", CAPABILITIES_KEY)
            call = McpCall(
                server,
                request,
                translated,
                version,
                capabilities,
                None if level is None else check_level(level),
            )
            self._logs.prepare(call)
            self._questions.forward(call, request)
        elif not is_last:  # nobody has asked for the lists yet, perhaps
            self._with_resources(lambda: self._forward(request, version, is_last=True), request)
        else:
            is_completion = request.method == "completion/complete"
            path = ("ref", "uri") if is_completion else ("uri",)
            raise resource_not_found(value_at(params, *path), version)

    def _with_resources(self, function: Callable[[], None], request: Request) -> None:
        """Call a function when it is known who has which resources."""

        def run(_merged: Merged) -> None:
            try:
                function()
            except RpcError as error:
                self._refuse(request, Refused(Error(error.code, error.message, error.data)))

        def collect_templates(_merged: Merged) -> None:
            self._catalog[TEMPLATES].collect(self._patience, run, is_sent=False)

        self._catalog[RESOURCES].collect(self._patience, collect_templates, is_sent=False)

    def _subscribe(self, request: Request) -> None:
        id = self._requests.begin_own(request)
        if id is None:
            return

        def done(outcome: Outcome) -> None:
            if self._requests.is_own(id):
                self._requests.finish(id, outcome)

        self._subscriptions.subscribe(str(value_at(params_of(request), "uri")), done)

    # Messages of the servers.

    def handle_backend_message(self, backend: Backend, message: Request | Notification) -> None:
        """Handle a request or a notification of a server."""
        method, params = message.method, params_of(message)
        if isinstance(message, Request):
            if method == "ping":
                backend.reply(Success(message.id, {}))
            else:
                has_handshake = self._session.has_handshake
                client = self._session.capabilities or {} if has_handshake else None
                self._questions.handle_request(backend, message, client)
        elif method in CHANGED:
            for kind in CHANGED[method]:
                self._catalog[kind].handle_changed(backend.name)
                self._announce(kind)
        elif params is None:
            pass
        elif method == MCP.progress:
            self._requests.handle_progress(backend, params)
        elif method == MCP.cancel:
            self._backend_requests.cancel(backend, params)
        elif method == MESSAGE:
            self._logs.handle_message(backend, params, self._session.has_handshake)
        elif method == UPDATED:
            self._subscriptions.handle_updated(value_at(params, "uri"), self._session.has_handshake)

    def handle_backend_state(self, backend: Backend) -> None:
        """Ask a server that is ready for its lists; MCP has no word for any other state."""
        if backend.state is State.READY:
            self._catalog.handle_ready(backend.name)
            self._subscriptions.handle_ready(backend)
        else:
            self._catalog.handle_gone(backend)
            if backend.state is not State.STARTING:
                self._backend_requests.cancel_all(backend)
        self._instructions.handle_state(backend)

    def _announce_all(self) -> None:
        for kinds in CHANGED.values():
            self._announce(kinds[0])

    def _announce(self, kind: Kind) -> None:
        """Notify the client that a list has changed."""
        self._subscriptions.announce(kind, self._session.has_handshake)
