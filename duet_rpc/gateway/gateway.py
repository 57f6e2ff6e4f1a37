"""The gateway: one client, many backends, and the way that each message takes.

A message of the client goes to the backend that its method names; a message of a backend
goes to the client under that backend's name. Ids and progress tokens are exchanged on the
way: `client_requests.py` and `backend_requests.py` keep track of them. What a message
carries is passed on as it came.
"""

from __future__ import annotations

import json
from time import monotonic
from typing import TYPE_CHECKING

from duet_rpc.failures import describe
from duet_rpc.gateway.backend import Backend
from duet_rpc.gateway.backend_requests import BackendRequests
from duet_rpc.gateway.batches import Batch, Batches
from duet_rpc.gateway.client import ClientConnection
from duet_rpc.gateway.client_requests import IN_FLIGHT, ClientRequests
from duet_rpc.gateway.dialects import MCP, PLAIN
from duet_rpc.gateway.loop import Loop
from duet_rpc.gateway.methods import LISTS, MethodLists, add_methods, status_of
from duet_rpc.gateway.pending import Call
from duet_rpc.gateway.runtime import Runtime
from duet_rpc.gateway.shutdown import SHUTTING_DOWN, Shutdown
from duet_rpc.gateway.state import State
from duet_rpc.gateway.tools import Tools, call_by_name, rename_call
from duet_rpc.gateway.wire import detail_of, params_of, raw, value_at
from duet_rpc.gateway.worker import Worker
from duet_rpc.gateway.workers import Workers
from duet_rpc.jsonrpc.errors import BATCH_NOT_SUPPORTED, INVALID_REQUEST, TITLES, Error
from duet_rpc.jsonrpc.jsontext import dumps, replace, write_id
from duet_rpc.jsonrpc.limits import BATCH_MAX, RECEIVED_MAX
from duet_rpc.jsonrpc.messages import (
    Failure,
    InvalidMessage,
    Notification,
    Request,
    Success,
)
from duet_rpc.jsonrpc.values import RawJson
from duet_rpc.log import DEBUG
from duet_rpc.methods.builtin import add_builtin
from duet_rpc.methods.method import json_type
from duet_rpc.methods.registry import Registry
from duet_rpc.methods.sources import RELOAD
from duet_rpc.server import dispatch
from duet_rpc.server.dispatch import Refused
from duet_rpc.server.rpc import DISCOVER, METHODS_CHANGED
from duet_rpc.server.user_methods import LOAD, add_reload

if TYPE_CHECKING:
    from collections.abc import Iterable

    from duet_rpc.config.processes import BackendSettings, WorkerSettings
    from duet_rpc.gateway.pending import Outcome
    from duet_rpc.gateway.runtime import Front, Times
    from duet_rpc.gateway.tools import Merged
    from duet_rpc.jsonrpc.messages import Message
    from duet_rpc.log import Log
    from duet_rpc.server.handover import Passed
    from duet_rpc.workers.plan import Plan

LIST_CHANGED = "notifications/tools/list_changed"
DURING = ("_meta", "during")  # the question that the client is answering

BATCH = InvalidMessage(
    Error(INVALID_REQUEST, "Batch requests not supported", {"reason": BATCH_NOT_SUPPORTED})
)


class Gateway:
    """Routes messages between one client and its backends."""

    dialect = PLAIN  # how the client speaks of progress and cancel
    replies_to_cancelled = True

    def __init__(
        self,
        descriptors: tuple[int, int],
        log: Log,
        backends: Iterable[BackendSettings],
        times: Times,
        plan: Plan,
        front: Front,
    ) -> None:
        self._log = log
        self._times = times
        self._loop = loop = Loop()
        self._client = client = ClientConnection(descriptors, loop, front.framing, times.read, self)
        runtime = Runtime(loop, log, times, client)
        self._backends = {each.name: Backend(each, self, runtime) for each in backends}
        self._batches = Batches(client.send)
        self._accepts_batches = front.batch
        self._requests = ClientRequests(
            self._backends, log, self._send, self.dialect, self.replies_to_cancelled
        )
        self._backend_requests = BackendRequests(loop, log, self._send)
        self._tools = Tools(self._backends, loop, self.fresh_id, client)
        self._tools.on_change = self._announce_tools
        self._shutdown = Shutdown(runtime, self._backends.values(), self._requests)
        self._registry = Registry()
        add_builtin(self._registry, self._set_level, self._shut_down)
        add_reload(self._registry, lambda: None, lambda file: file)  # checks of their params
        self._names: list[str] = []  # of workers and backends, as of the last call
        add_methods(self._registry, self._backends, self._names, self._count_pending)
        self._lists = MethodLists(self._registry)
        self._workers = Workers(
            plan,
            self._backends,
            lambda settings: self._make_worker(settings, runtime),
            self.fresh_id,
            runtime,
        )
        self._workers.on_change = self._announce_methods
        self._client_knows_methods = False  # and wants to hear of others
        self._level: str | None = None  # that somebody has set
        if front.passed is not None:
            self._take_over(front.passed, plan)

    def _make_worker(self, settings: WorkerSettings, runtime: Runtime) -> Worker:
        return Worker(settings, self, runtime, self._say)

    def _take_over(self, passed: Passed, plan: Plan) -> None:
        """Go on where a daemon has left off."""
        for path in passed.loaded:
            plan.add_source(path)
        self._client_knows_methods = passed.knows_methods
        self._client.feed(passed.input)
        if passed.knows_methods:
            self._loop.call_soon(lambda: self._workers.collect(self._times.list, bool))

    def _say(self, level: str, text: str) -> None:
        """Tell a person."""
        getattr(self._log, level)(text)
        self._send(Notification("client/say", {"level": level, "text": text}))

    def _set_level(self, level: str) -> None:
        self._log.set_level(level)
        self._level = level
        for worker in self._workers:
            if worker.state is State.READY:
                self._set_level_of(worker, level)

    def _set_level_of(self, worker: Worker, level: str) -> None:
        call = Call("setLogLevel", lambda _outcome: None)
        worker.request(self.fresh_id(), call, raw(dumps({"level": level})))

    def _count_pending(self) -> int:
        return self._requests.pending_count() + self._backend_requests.pending_count()

    # Lifecycle.

    def run(self) -> int:
        """Serve until asked to exit; return the exit code."""
        self._loop.watch_signals(self._handle_signal, self._check_backends)
        self._client.on_first_send = self._handle_first_send
        self._client.update_reading()
        for backend in list(self._backends.values()):
            if backend.settings.start == "eager":
                backend.process.start()
        self._loop.run()
        return self._shutdown.exit_code

    def release(self) -> None:
        """Give the client's descriptor back as it came."""
        self._client.release()

    def _handle_first_send(self) -> None:
        self._loop.on_idle = self._log.start_loguru

    def _check_backends(self) -> None:
        for backend in list(self._backends.values()):
            backend.process.check()

    def _handle_signal(self, name: str) -> None:
        self._log.info(f"{name} received, shutting down gracefully")
        self._client.stop_serving()
        self._shutdown.begin_after_running()

    def _shut_down(self) -> None:
        self._log.info("shutdown requested, shutting down gracefully")
        self._client.stop_serving()
        self._loop.call_soon(self._shutdown.begin_after_running)

    def handle_lost_client(self, error: OSError) -> None:
        """Exit: nobody reads what we write."""
        if isinstance(error, BrokenPipeError):
            self._log.error("stdout is closed: the client is gone")
        else:
            self._log.error(f"input or output failed: {error.strerror}")
        self._shutdown.exit_code = 1
        self._shutdown.begin()

    def handle_end_of_input(self) -> None:
        """Exit, but give pending requests a moment."""
        self._log.info("stdin closed, shutting down gracefully")
        self._shutdown.begin_after_replies()

    def handle_flow(self) -> None:
        """Read the backends and send large lists only while the client has room."""
        for backend in self._backends.values():
            backend.resume_reading()
        self._tools.deliver()

    def _send(self, message: Message) -> None:
        """Send a message to the client."""
        if not isinstance(message, (Success, Failure)) or not self._batches.take(message):
            self._client.send(message)

    # Messages of the client.

    def handle_message(self, message: Message) -> None:
        """Route a message of the client that is not part of an array."""
        if isinstance(message, Request) and message.id in self._batches:
            self._client.send(Failure(message.id, IN_FLIGHT))
        else:
            self._route(message)

    def _route(self, message: Message) -> None:
        if self._shutdown.begun:
            if isinstance(message, Request):
                self._send(Failure(message.id, SHUTTING_DOWN))
            return
        if self._log.level <= DEBUG and isinstance(message, Request):
            self._log.debug("received", message.method, write_id(message.id))
        try:
            if isinstance(message, Request):
                self._handle_request(message)
            elif isinstance(message, Notification):
                self._handle_notification(message)
            else:
                self._backend_requests.handle_reply(message)
        except Exception as error:  # noqa: BLE001 - it ends nothing but what the message is about
            failure = self._log_failure(message, error)
            if isinstance(message, Request):
                self._requests.abandon(message.id)
                self._send(Failure(message.id, failure))

    def handle_invalid(self, message: InvalidMessage) -> None:
        """Reply to input that is not a message, unless it is itself a reply."""
        failure = message.failure
        id = write_id(failure.id) if message.id_known else None
        self._log.warn(failure.error.message, message.method, id)
        # The id of a reply is one of ours; the client would take it for one of its own.
        is_reply = message.method is None and self._backend_requests.fail(failure.id)
        if not is_reply and not message.is_reply:
            self._send(failure)

    @property
    def accepts_batches(self) -> bool:
        """True where the client may send arrays."""
        return self._accepts_batches

    def handle_batch(self, messages: list[Message | InvalidMessage]) -> None:
        """Handle an array of messages, where the client may send one."""
        if not self.accepts_batches:
            self.handle_invalid(BATCH)
            return
        if not 0 < len(messages) <= BATCH_MAX:
            error = Error.invalid_request(f"a batch holds 1 to {BATCH_MAX} messages")
            self.handle_invalid(InvalidMessage(error))
            return
        batch = Batch()
        for message in messages:
            if isinstance(message, InvalidMessage):
                if not message.is_reply:
                    self._log.warn(message.failure.error.message, message.method)
                    self._batches.add(batch, message.failure)
            elif isinstance(message, Request) and message.id in self._batches:
                self._batches.add(batch, Failure(message.id, IN_FLIGHT))
            else:
                if isinstance(message, Request):
                    self._batches.expect(batch, message.id)
                self._route(message)
        self._batches.count_down(batch)

    def handle_expired_frame(self) -> None:
        """Log that a frame of the client was discarded."""
        seconds = f"{self._times.read:g} s"
        self._log.warn(f"discarded a frame that was not complete after {seconds}")

    def _log_failure(self, message: Message, error: Exception, source: str = "") -> Error:
        """Log why a message could not be handled; return the error for whoever sent it."""
        method = message.method if isinstance(message, (Request, Notification)) else None
        id = None if isinstance(message, Notification) else write_id(message.id)
        if isinstance(error, RecursionError):  # it could be read once, with a shallower stack
            failure = Error.parse_error("nested too deeply")
            self._log.warn(source + failure.message, method, id)
            return failure
        self._log.error(f"{source}internal error: {describe(error)}", method, id)
        return Error.internal_error()

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
        elif method in LISTS:
            self._reply_with_list(request)
        elif method == "tools/call":
            self._call_tool(request)
        elif method in (RELOAD, LOAD):
            self._load_methods(request)
        elif self._registry.get(method) is not None:
            self._call_own(request)
        else:
            self._call_method(request)

    def _call_method(self, request: Request) -> None:
        """Call a tool by its own name, or a method of the user's."""
        tool = None if "/" in request.method else self._tools.find(request.method)
        if tool is not None:
            self._call_tool_by_name(*tool, request)
            return
        worker = self._workers.find(request.method)
        if worker is not None:
            params = self._translate_question(worker, params_of(request))
            self._requests.forward(worker, request, request.method, params)
        else:
            self._call_own(request)  # which says that there is no such method

    def _translate_question(self, worker: Worker, params: RawJson | None) -> RawJson | None:
        """Return params that name a question by the id that it has for its worker.

        A call that the client makes while it answers a question is served at once by the worker
        that has asked. To any other worker it is a call like all others.
        """
        during = value_at(params, *DURING)
        if during is None or params is None or not isinstance(params.value, dict):
            return params
        found = self._backend_requests.find(during)
        id = found[1] if found is not None and found[0] is worker else None
        meta = {**params.value["_meta"], DURING[1]: id}
        return RawJson(replace(params.text, DURING, write_id(id)), {**params.value, "_meta": meta})

    def _load_methods(self, request: Request) -> None:
        """Load the user's methods again, or one more file of them."""
        loads = request.method == LOAD
        params = params_of(request)
        method = self._registry.get(request.method)
        assert method is not None  # noqa: S101 - for the type checker
        checked = dispatch.call(
            dispatch.refuse, method.call, None if params is None else params.value
        )
        if isinstance(checked, Refused):
            self._refuse(request, checked)
            return
        id = self._requests.begin_own(request)
        if id is None:
            return
        if loads:
            self._workers.add_file(str(json.loads(checked)))

        def done() -> None:
            if self._requests.is_own(id):
                names = [str(entry.get("name")) for _, entry in self._workers.entries()]
                result = {"methods": names, "problems": self._workers.problems()}
                self._requests.finish_own(id, raw(dumps(result)))

        self._workers.collect(self._times.list, done, reload=not loads)

    def _handle_notification(self, notification: Notification) -> None:
        method = notification.method
        backend, rest = self._find_backend(method)
        if backend is not None:
            self._notify_backend(backend, notification, rest)
        elif method == PLAIN.cancel:
            self._requests.cancel(notification, PLAIN.cancel_key)
        elif method == PLAIN.progress:
            if not self._backend_requests.handle_progress(notification, PLAIN.token_key):
                self._log.warn("dropped progress that nobody waits for", method)
        elif method in LISTS:
            self._log.warn("a notification can't ask for a list", method)
        elif method == "tools/call" or ("/" not in method and self._tools.find(method)):
            self._log.warn("a notification can't call a tool", method)
        elif self._registry.get(method) is not None:
            self._call_own(notification)
        else:
            worker = self._workers.find(method)
            if worker is None:
                self._call_own(notification)
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
                self._log.warn(f"dropped: {detail_of(refusal)}", notification.method)

    def _call_own(self, message: Request | Notification) -> None:
        """Call one of the gateway's own methods."""
        started = monotonic()
        self._names[:] = self._backends
        params = params_of(message)
        method = self._registry.get(message.method)
        result: str | Refused
        if method is None:
            result = dispatch.not_found(message.method)
        else:
            result = dispatch.call(
                dispatch.refuse, method.call, None if params is None else params.value
            )
        if isinstance(result, Refused):
            self._refuse(message, result)
        elif isinstance(message, Request):
            took = (monotonic() - started) * 1000
            self._log.debug(f"answered in {took:.1f} ms", message.method, write_id(message.id))
            self._send(Success(message.id, raw(result)))

    def _refuse(self, message: Request | Notification, refused: Refused) -> None:
        error = refused.error
        id = write_id(message.id) if isinstance(message, Request) else None
        if refused.cause is not None:
            self._log.error(f"{error.message}: {describe(refused.cause)}", message.method, id)
        else:
            title = TITLES.get(error.code, f"refused with error {error.code}")
            self._log.warn(title, message.method, id)
        if isinstance(message, Request):
            self._send(Failure(message.id, error))

    # Messages of the backends.

    def fresh_id(self) -> int:
        """Return an id for a request of the gateway's own."""
        return self._requests.fresh_id()

    def handle_backend_message(self, backend: Backend, message: Request | Notification) -> None:
        """Route a request or a notification of a backend."""
        method, dialect = message.method, backend.dialect
        if isinstance(message, Request):
            if dialect is MCP and method == "ping":
                backend.reply(Success(message.id, {}))
            else:
                self._backend_requests.forward(backend, message)
            return
        params = params_of(message)
        if params is not None and isinstance(params.value, dict):
            if method == dialect.progress and self._requests.handle_progress(backend, params):
                return
            if method == dialect.cancel:
                self._backend_requests.cancel(backend, params)
                return
        if dialect is MCP and method == LIST_CHANGED:
            self._tools.invalidate(backend.name)
            self._announce_tools()
        if isinstance(backend, Worker) and method == METHODS_CHANGED:
            self._workers.handle_changed(backend)
            return
        self._send(Notification(backend.client_name(method), params))

    def handle_backend_failure(self, backend: Backend, message: Message, error: Exception) -> None:
        """Log that a message of a backend could not be handled, and reply to it."""
        failure = self._log_failure(message, error, f"{backend.title}: ")
        if isinstance(message, Request):
            self._backend_requests.abandon(backend, message.id)
            backend.reply(Failure(message.id, failure))

    def handle_backend_state(self, backend: Backend) -> None:
        """Announce a new state of a backend."""
        if backend.state is State.READY:
            self._tools.handle_ready(backend.name)
            if isinstance(backend, Worker) and self._level is not None:
                self._set_level_of(backend, self._level)
        else:
            self._tools.forget(backend.name)
            if backend.state is not State.STARTING:
                self._backend_requests.cancel_all(backend)
        if not self._shutdown.begun:
            self._announce_state(backend)

    def handle_preparing(self, backend: Backend, text: str) -> None:
        """Tell those who wait for a worker what it does before it is ready."""
        value = dumps({"done": 0, "total": None, "message": text})
        for token, _ in backend.pending.tokens.values():
            written = self.dialect.write_progress(token, value)
            self._send(Notification(self.dialect.progress, written))
        self._announce_state(backend)

    def _announce_methods(self) -> None:
        """Tell a client that has asked for the methods that they are others now, once."""
        if self._client_knows_methods:
            self._client_knows_methods = False
            self._send(Notification(METHODS_CHANGED))

    def _announce_state(self, backend: Backend) -> None:
        self._send(Notification("gateway/stateChanged", status_of(backend)))

    def _announce_tools(self) -> None:
        self._send(Notification(LIST_CHANGED))

    # Tools, lists and the handshake.

    def _call_tool(self, request: Request) -> None:
        params = params_of(request)
        name = value_at(params, "name")
        found = self._tools.find(name) if isinstance(name, str) else None
        if params is None or found is None:
            shown = name[:RECEIVED_MAX] if isinstance(name, str) else json_type(name)
            self._requests.refuse(request, Error.invalid_params(f"unknown tool: {shown}"))
            return
        backend, tool = found
        self._requests.forward(backend, request, "tools/call", rename_call(params, tool))

    def _call_tool_by_name(self, backend: Backend, tool: str, request: Request) -> None:
        params = call_by_name(tool, params_of(request))
        if params is None:
            error = Error.invalid_params("a tool takes its arguments by name")
            self._requests.refuse(request, error)
            return
        self._requests.forward(backend, request, "tools/call", params)

    def _send_handshake(self, backend: Backend, request: Request) -> None:
        """Reply to `initialize` for a server whose handshake the gateway makes itself."""
        if backend.handshake is not None:
            self._send(Success(request.id, backend.handshake.result))
            return

        def convert(outcome: Outcome) -> Outcome:
            return backend.handshake or outcome

        # Whatever the server replies to a ping, by then its handshake is done.
        self._requests.forward(backend, request, "ping", None, convert)

    def _reply_with_list(self, request: Request) -> None:
        """Reply when the servers have listed their tools."""
        method, params = request.method, params_of(request)
        given = None if params is None else params.value
        says_nothing = not given or (isinstance(given, dict) and set(given) == {"_meta"})
        if not says_nothing and method != "tools/list":
            self._call_own(request)  # which refuses the params
            return
        id = self._requests.begin_own(request)
        if id is None:
            return

        def done(merged: Merged) -> None:
            if self._requests.is_own(id):
                key = f"{method} {self._workers.version}"
                if key not in merged.texts:
                    self._lists.entries = self._workers.entries()
                    self._registry.set_user_methods(() if self._workers else None)
                    merged.texts[key] = LISTS[method](self._lists, merged.tools, merged.missing)
                if method == DISCOVER:
                    self._client_knows_methods = True
                self._requests.finish_own(id, raw(merged.texts[key]))

        seconds = self._times.list
        self._workers.collect(seconds, lambda: self._tools.collect(seconds, done))
