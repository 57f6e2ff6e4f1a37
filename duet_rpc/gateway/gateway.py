"""The router for a client that names backends: `NAME/method` is a method of backend NAME.

Everything else is a method of the user's, which a worker has, a tool of an MCP server, or one
of the methods that the router answers itself (`own.py`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from duet_rpc.gateway.dialects import MCP, PLAIN
from duet_rpc.gateway.entries import CHANGED, KINDS, NAMED, TOOLS, call_by_name, rename_call
from duet_rpc.gateway.lists import Patience
from duet_rpc.gateway.methods import LISTS, MethodLists, list_entries, status_of
from duet_rpc.gateway.own import OwnMethods, refuse
from duet_rpc.gateway.pending import Call
from duet_rpc.gateway.router import Router
from duet_rpc.gateway.state import State
from duet_rpc.gateway.wire import detail_of, params_of, raw, value_at
from duet_rpc.gateway.worker import Worker
from duet_rpc.gateway.workers import Waiting
from duet_rpc.jsonrpc.errors import Error
from duet_rpc.jsonrpc.jsontext import dumps, replace, write_id
from duet_rpc.jsonrpc.limits import RECEIVED_MAX
from duet_rpc.jsonrpc.messages import Notification, Request, Success
from duet_rpc.jsonrpc.values import RawJson
from duet_rpc.methods.method import json_type
from duet_rpc.methods.sources import RELOAD
from duet_rpc.server.dispatch import Refused
from duet_rpc.server.rpc import DISCOVER, METHODS_CHANGED
from duet_rpc.server.user_methods import LOAD

if TYPE_CHECKING:
    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.entries import Kind
    from duet_rpc.gateway.lists import Merged
    from duet_rpc.gateway.pending import Outcome
    from duet_rpc.gateway.runtime import Setup
    from duet_rpc.server.handover import Passed

DURING = ("_meta", "during")  # the question that the client is answering


class Gateway(Router):
    """Routes messages between one client and the backends that it names."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._own = OwnMethods(
            self._backends,
            setup.log,
            self._front.send,
            self._count_pending,
            self._set_level,
            self._shut_down,
        )
        self._workers.on_change = self._announce_methods
        self._client_knows_methods = False  # and is to be notified of changes
        self._level: str | None = None  # that somebody has set
        if setup.passed is not None:
            self._take_over(setup.passed)

    def _take_over(self, passed: Passed) -> None:
        """Go on where a daemon has left off."""
        self._client_knows_methods = passed.knows_methods
        super()._take_over(passed)
        if passed.knows_methods:
            seconds = self._runtime.times.list
            self._runtime.loop.call_soon(lambda: self._workers.collect(Waiting(bool), seconds))

    def _set_level(self, level: str) -> None:
        self._runtime.log.set_level(level)
        self._level = level
        for worker in self._workers:
            if worker.state is State.READY:
                self._set_level_of(worker, level)

    def _set_level_of(self, worker: Worker, level: str) -> None:
        call = Call("setLogLevel", lambda _outcome: None)
        worker.request(self.fresh_id(), call, raw(dumps({"level": level})))

    def _count_pending(self) -> int:
        return self._requests.pending_count() + self._backend_requests.pending_count()

    # Messages of the client.

    def _find_backend(self, method: str) -> tuple[Backend | None, str]:
        """Return the backend that a method names, and the method's name there."""
        name, _, rest = method.partition("/")
        backend = self._backends.get(name) if rest else None
        return (None if isinstance(backend, Worker) else backend), rest

    def _handle_request(self, request: Request) -> None:
        method = request.method
        backend, rest = self._find_backend(method)
        if backend is not None and not (backend.dialect is MCP and rest == "initialize"):
            self._requests.forward(backend, request, rest, params_of(request))
        elif self._requests.refuse_duplicate(request):
            pass
        elif backend is not None:
            self._send_handshake(backend, request)
        elif method in LISTS or method in KINDS:
            self._reply_with_list(request)
        elif method in NAMED:
            self._call_named(request, NAMED[method])
        elif method == "resources/read":
            self._read_resource(request)
        elif method in (RELOAD, LOAD):
            self._load_methods(request)
        elif self._own.has(method):
            self._own.call(request)
        else:
            self._call_method(request)

    def _call_method(self, request: Request) -> None:
        """Call a tool by its own name, or a method of the user's."""
        name = request.method
        tool = None if "/" in name else self._catalog.find_named(name, TOOLS)
        if tool is not None:
            self._call_tool_by_name(*tool, request)
            return
        worker = self._workers.find(name)
        if self._workers.may_have(name):
            self._ask_first(request)
        else:
            self._send_to_worker(worker, request)

    def _ask_first(self, request: Request) -> None:
        """Let the workers tell their methods, then call one that their files do not show."""

        def done() -> None:
            if own_id is not None and self._requests.end_own(own_id):
                self._send_to_worker(self._workers.find(request.method), request)

        waiting = Waiting(done)
        own_id = self._requests.begin_own(request, lambda: self._workers.give_up(waiting))
        if own_id is not None:
            self._workers.collect(waiting, self._runtime.times.list)

    def _send_to_worker(self, worker: Worker | None, request: Request) -> None:
        if worker is not None:
            params = self._translate_question(worker, params_of(request))
            self._requests.forward(worker, request, request.method, params)
        else:
            self._own.call(request)  # which says that there is no such method

    def _translate_question(self, worker: Worker, params: RawJson | None) -> RawJson | None:
        """Return params that name a question by an id that its worker knows.

        A call that the client makes while it answers is served at once by a worker that waits for
        an answer, whichever question the call names: the client may have come to it through the
        questions of others. To a worker that waits for none it is a call like all others.
        """
        during = value_at(params, *DURING)
        is_mark = type(during) in (str, int)
        if not is_mark or params is None or not isinstance(params.value, dict):
            return params
        found = self._backend_requests.find(during)
        id = found[1] if found is not None and found[0] is worker else None
        if id is None:
            id = next(iter(worker.pending.questions), None)
        meta = {**params.value["_meta"], DURING[1]: id}
        return RawJson(replace(params.text, DURING, write_id(id)), {**params.value, "_meta": meta})

    def _load_methods(self, request: Request) -> None:
        """Load the user's methods again, or one more file of them."""
        loads = request.method == LOAD
        checked = self._own.run(request)
        if isinstance(checked, Refused):
            refuse(request, checked, self._runtime.log, self._front.send)
            return

        def done() -> None:
            if own_id is not None and self._requests.is_own(own_id):
                names = [str(entry.get("name")) for _, entry in self._workers.entries()]
                result = {"methods": names, "problems": self._workers.problems()}
                self._requests.finish_own(own_id, raw(dumps(result)))

        waiting = Waiting(done)
        own_id = self._requests.begin_own(request, lambda: self._workers.give_up(waiting))
        if own_id is None:
            return
        file = str(json.loads(checked)) if loads else None
        if file is not None:
            self._workers.add_source(file)
        seconds = self._runtime.times.list
        self._workers.collect(waiting, seconds, reload=not loads, load=file)

    def _handle_notification(self, notification: Notification) -> None:
        method = notification.method
        backend, rest = self._find_backend(method)
        if backend is not None:
            self._notify_backend(backend, notification, rest)
        elif method == PLAIN.cancel:
            self._requests.cancel(notification, PLAIN.cancel_key)
        elif method == PLAIN.progress:
            if not self._backend_requests.handle_progress(notification, PLAIN.token_key):
                self._runtime.log.warn("dropped progress that nobody waits for", method)
        elif method in LISTS or method in KINDS:
            self._runtime.log.warn("a notification can't ask for a list", method)
        elif method in NAMED or ("/" not in method and self._catalog.find_named(method, TOOLS)):
            self._runtime.log.warn("a notification can't call a tool", method)
        elif self._own.has(method):
            self._own.call(notification)
        else:
            worker = self._workers.find(method)
            if worker is None:
                self._own.call(notification)
            else:
                self._notify_backend(worker, notification, method)

    def _notify_backend(self, backend: Backend, notification: Notification, method: str) -> None:
        dialect = backend.dialect
        if method == dialect.cancel:
            self._requests.cancel(notification, dialect.cancel_key)
        elif dialect is MCP and method == "notifications/initialized":
            pass  # the gateway has sent it
        elif method == dialect.progress and self._backend_requests.handle_progress(
            notification, dialect.token_key
        ):
            pass
        else:
            refusal = backend.notify(method, params_of(notification))
            if refusal is not None:
                self._runtime.log.warn(f"dropped: {detail_of(refusal)}", notification.method)

    # Messages of the backends.

    def handle_backend_message(self, backend: Backend, message: Request | Notification) -> None:
        """Route a request or a notification of a backend."""
        method, dialect = message.method, backend.dialect
        if isinstance(message, Request):
            if dialect is MCP and method == "ping":
                backend.reply(Success(message.id, {}))
            else:
                self._backend_requests.forward(backend, message, backend.client_name(method))
            return
        params = params_of(message)
        if params is not None and isinstance(params.value, dict):
            if method == dialect.progress and self._requests.handle_progress(backend, params):
                return
            if method == dialect.cancel:
                self._backend_requests.cancel(backend, params)
                return
        if dialect is MCP and method in CHANGED:
            for kind in CHANGED[method]:
                self._catalog[kind].handle_changed(backend.name)
            self._announce(CHANGED[method][0])
        if isinstance(backend, Worker) and method == METHODS_CHANGED:
            self._workers.handle_changed(backend)
            return
        self._front.send(Notification(backend.client_name(method), params))

    def handle_backend_state(self, backend: Backend) -> None:
        """Announce a new state of a backend."""
        if backend.state is State.READY:
            self._catalog.handle_ready(backend.name)
            if isinstance(backend, Worker) and self._level is not None:
                self._set_level_of(backend, self._level)
        else:
            self._catalog.handle_gone(backend)
            if backend.state is not State.STARTING:
                self._backend_requests.cancel_all(backend)
        if not self._shutdown.begun:
            self._announce_state(backend)

    def handle_preparing(self, backend: Backend, text: str) -> None:
        """Announce what a worker does before it is ready, to those who wait and to all."""
        super().handle_preparing(backend, text)
        self._announce_state(backend)

    def _announce_methods(self) -> None:
        """Tell a client that has asked for the methods that they are others now, once."""
        if self._client_knows_methods:
            self._client_knows_methods = False
            self._front.send(Notification(METHODS_CHANGED))

    def _announce_state(self, backend: Backend) -> None:
        self._front.send(Notification("gateway/stateChanged", status_of(backend)))

    def _announce(self, kind: Kind) -> None:
        self._front.send(Notification(f"notifications/{kind.capability}/list_changed"))

    # Tools, lists and the handshake.

    def _call_named(self, request: Request, kind: Kind) -> None:
        params = params_of(request)
        name = value_at(params, "name")
        found = self._catalog.find_named(name, kind) if isinstance(name, str) else None
        if params is None or found is None:
            shown = name[:RECEIVED_MAX] if isinstance(name, str) else json_type(name)
            what = f"unknown {kind.word}: {shown}"
            self._requests.refuse(request, Error.invalid_params(what))
            return
        backend, own_name = found
        self._requests.forward(backend, request, request.method, rename_call(params, own_name))

    def _read_resource(self, request: Request) -> None:
        """Read a resource of the server that has listed it, or whose template fits it."""
        params = params_of(request)
        uri = value_at(params, "uri")
        backend = self._catalog.find_resource(uri) if isinstance(uri, str) else None
        if backend is None:
            shown = uri[:RECEIVED_MAX] if isinstance(uri, str) else json_type(uri)
            what = f"no server has listed this resource: {shown}"
            self._requests.refuse(request, Error.invalid_params(what))
            return
        self._requests.forward(backend, request, request.method, params)

    def _call_tool_by_name(self, backend: Backend, tool: str, request: Request) -> None:
        params = call_by_name(tool, params_of(request))
        if params is None:
            error = Error.invalid_params("a tool takes its arguments by name")
            self._requests.refuse(request, error)
            return
        self._requests.forward(backend, request, "tools/call", params)

    def _send_handshake(self, backend: Backend, request: Request) -> None:
        """Reply to `initialize` for a server whose handshake the gateway makes itself."""
        handshake = backend.session.handshake
        if handshake is not None:
            self._front.send(Success(request.id, handshake.result))
            return

        def receive(id: int, outcome: Outcome) -> None:
            self._requests.finish(id, backend.session.handshake or outcome)

        # Whatever the server replies to a ping, by then its handshake is done.
        self._requests.forward(backend, request, "ping", None, receive)

    def _reply_with_list(self, request: Request) -> None:
        """Reply when the servers have listed what they have."""
        method, params = request.method, params_of(request)
        given = None if params is None else params.value
        says_nothing = not given or (isinstance(given, dict) and set(given) == {"_meta"})
        if not says_nothing and method not in KINDS:
            self._own.call(request)  # which refuses the params
            return
        lists = self._catalog[KINDS.get(method, TOOLS)]
        seconds = self._runtime.times.list

        def done(merged: Merged) -> None:
            if own_id is not None and self._requests.is_own(own_id):
                key = f"{method} {self._workers.version}"
                if key not in merged.texts:
                    merged.texts[key] = self._write_list(method, merged)
                if method == DISCOVER:
                    self._client_knows_methods = True
                self._requests.finish_own(own_id, raw(merged.texts[key]))

        waiting = Waiting(lambda: lists.collect(Patience(seconds, seconds), done))
        own_id = self._requests.begin_own(request, lambda: self._workers.give_up(waiting))
        if own_id is not None:
            self._workers.collect(waiting, seconds)

    def _write_list(self, method: str, merged: Merged) -> str:
        if method in KINDS:
            return list_entries(KINDS[method], merged)
        self._own.registry.set_user_methods(() if self._workers else None)
        own = MethodLists(self._own.registry, self._workers.entries())
        return LISTS[method](own, merged.entries)
