"""The gateway: one client, many backends, and the way that each message takes.

A message of the client goes to the backend that its method names; a message of a backend
goes to the client under that backend's name. Ids and progress tokens are exchanged on the
way: `client_requests.py` and `backend_requests.py` keep track of them. What a message
carries is passed on as it came.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from duet_rpc.failures import describe
from duet_rpc.gateway.backend import Backend
from duet_rpc.gateway.backend_requests import BackendRequests
from duet_rpc.gateway.client import ClientConnection
from duet_rpc.gateway.client_requests import ClientRequests
from duet_rpc.gateway.dialects import MCP, PLAIN
from duet_rpc.gateway.loop import Loop
from duet_rpc.gateway.methods import LISTS, add_methods, status_of
from duet_rpc.gateway.runtime import Runtime
from duet_rpc.gateway.shutdown import Shutdown
from duet_rpc.gateway.state import State
from duet_rpc.gateway.tools import Tools, call_by_name, rename_call
from duet_rpc.gateway.watchdog import Watchdog
from duet_rpc.gateway.wire import detail_of, params_of, raw, value_at
from duet_rpc.jsonrpc.errors import TITLES, Error
from duet_rpc.jsonrpc.framing import CONTENT_LENGTH
from duet_rpc.jsonrpc.jsontext import write_id
from duet_rpc.jsonrpc.limits import RECEIVED_MAX
from duet_rpc.jsonrpc.messages import Failure, Notification, Request, Success
from duet_rpc.log import DEBUG
from duet_rpc.methods.builtin import add_builtin
from duet_rpc.methods.registry import Registry, json_type
from duet_rpc.server import dispatch
from duet_rpc.server.dispatch import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from duet_rpc.config.settings import BackendSettings
    from duet_rpc.gateway.pending import Outcome
    from duet_rpc.gateway.runtime import Times
    from duet_rpc.gateway.tools import Tool
    from duet_rpc.jsonrpc.messages import InvalidMessage, Message
    from duet_rpc.jsonrpc.values import RawJson
    from duet_rpc.log import Log

LIST_CHANGED = "notifications/tools/list_changed"


class Gateway:
    """Routes messages between one client and its backends."""

    framing = CONTENT_LENGTH  # of the client,
    dialect = PLAIN  # and how it speaks of progress and cancel
    replies_to_cancelled = True

    def __init__(
        self,
        descriptors: tuple[int, int],
        log: Log,
        backends: Iterable[BackendSettings],
        times: Times,
    ) -> None:
        self._log = log
        self._times = times
        self._loop = loop = Loop()
        self._client = client = ClientConnection(descriptors, loop, self.framing, times.read, self)
        runtime = Runtime(loop, log, Watchdog(), times, client)
        self._backends = {each.name: Backend(each, self, runtime) for each in backends}
        self._requests = ClientRequests(
            self._backends, log, client.send, self.dialect, self.replies_to_cancelled
        )
        self._backend_requests = BackendRequests(loop, log, client.send)
        self._tools = Tools(self._backends.values(), loop, self.fresh_id)
        self._tools.on_change = self._announce_tools
        self._shutdown = Shutdown(loop, client, self._backends.values(), self._requests)
        self._registry = Registry()
        add_builtin(self._registry, log.set_level, self._shut_down)
        add_methods(self._registry, self._backends, self._count_pending)

    def _count_pending(self) -> int:
        return self._requests.pending_count() + self._backend_requests.pending_count()

    # Lifecycle.

    def run(self) -> int:
        """Serve until asked to exit; return the exit code."""
        self._loop.watch_signals(self._handle_signal, self._check_backends)
        self._client.on_first_send = self._handle_first_send
        self._client.update_reading()
        for backend in self._backends.values():
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
        for backend in self._backends.values():
            backend.process.check()

    def _handle_signal(self, name: str) -> None:
        self._log.info(f"{name} received, shutting down gracefully")
        self._shutdown.begin()

    def _shut_down(self) -> None:
        self._log.info("shutdown requested, shutting down gracefully")
        self._client.stop_serving()
        self._loop.call_soon(self._shutdown.begin)

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
        """Read the backends only while the client has room."""
        for backend in self._backends.values():
            backend.resume_reading()

    # Messages of the client.

    def handle_message(self, message: Message) -> None:
        """Route a message of the client."""
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
                self._client.send(Failure(message.id, failure))

    def handle_invalid(self, message: InvalidMessage) -> None:
        """Reply to input that is not a message, unless it is itself a reply."""
        failure = message.failure
        id = write_id(failure.id) if message.id_known else None
        self._log.warn(failure.error.message, message.method, id)
        # The id of a reply is one of ours; the client would take it for one of its own.
        is_reply = message.method is None and self._backend_requests.fail(failure.id)
        if not is_reply and not message.is_reply:
            self._client.send(failure)

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
        return (self._backends.get(name) if rest else None), rest

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
        else:
            tool = None if "/" in method else self._tools.find(method)
            if tool is not None:
                self._call_tool_by_name(*tool, request)
            else:
                self._call_own(request)

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
        else:
            self._call_own(notification)

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
        params = params_of(message)
        method = self._registry.find(message.method)
        result: str | Refused
        if method is None:
            result = dispatch.not_found(message.method)
        else:
            result = dispatch.call(method.call, None if params is None else params.value)
        if isinstance(result, Refused):
            self._refuse(message, result)
        elif isinstance(message, Request):
            took = (monotonic() - started) * 1000
            self._log.debug(f"answered in {took:.1f} ms", message.method, write_id(message.id))
            self._client.send(Success(message.id, raw(result)))

    def _refuse(self, message: Request | Notification, refused: Refused) -> None:
        error = refused.error
        id = write_id(message.id) if isinstance(message, Request) else None
        if refused.cause is not None:
            self._log.error(f"{error.message}: {describe(refused.cause)}", message.method, id)
        else:
            title = TITLES.get(error.code, f"refused with error {error.code}")
            self._log.warn(title, message.method, id)
        if isinstance(message, Request):
            self._client.send(Failure(message.id, error))

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
        self._client.send(Notification(f"{backend.name}/{method}", params))

    def handle_backend_failure(self, backend: Backend, message: Message, error: Exception) -> None:
        """Log that a message of a backend could not be handled, and reply to it."""
        failure = self._log_failure(message, error, f"backend {backend.name}: ")
        if isinstance(message, Request):
            self._backend_requests.abandon(backend, message.id)
            backend.reply(Failure(message.id, failure))

    def handle_backend_state(self, backend: Backend) -> None:
        """Announce a new state of a backend."""
        if backend.state is State.READY:
            self._tools.handle_ready(backend.name)
        else:
            self._tools.forget(backend.name)
            if backend.state is not State.STARTING:
                self._backend_requests.cancel_all(backend)
        if not self._shutdown.begun:
            self._announce_state(backend)

    def _announce_state(self, backend: Backend) -> None:
        self._client.send(Notification("gateway/stateChanged", status_of(backend)))

    def _announce_tools(self) -> None:
        self._client.send(Notification(LIST_CHANGED))

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
            self._client.send(Success(request.id, backend.handshake.result))
            return

        def convert(outcome: Outcome) -> Outcome:
            return backend.handshake or outcome

        # Whatever the server replies to a ping, by then its handshake is done.
        self._requests.forward(backend, request, "ping", None, convert)

    def _reply_with_list(self, request: Request) -> None:
        """Reply when the servers have listed their tools."""
        method, params = request.method, params_of(request)
        if params is not None and params.value and method != "tools/list":
            self._call_own(request)  # which refuses the params
            return
        id = self._requests.begin_own(request)
        if id is None:
            return

        def done(tools: list[Tool], missing: dict[str, str]) -> None:
            if self._requests.is_own(id):
                result: RawJson = raw(LISTS[method](self._registry, tools, missing))
                self._requests.finish_own(id, result)

        self._tools.collect(self._times.list, done)
