"""The gateway: one client, many backends, and who is to hear what.

A message of the client goes to the backend that its method names; a message of a backend
goes to the client under that backend's name. Ids and progress tokens are exchanged on the
way: `outgoing.py` and `incoming.py` keep the books of what the client and what the backends
have asked. What is inside a message is handed on as it came.
"""

from __future__ import annotations

from contextlib import suppress
from time import monotonic

from duet_rpc.failures import describe
from duet_rpc.gateway.backend import READY, STARTING, STOPPED, Backend, Call
from duet_rpc.gateway.dialects import MCP, PLAIN
from duet_rpc.gateway.front import Front
from duet_rpc.gateway.incoming import Incoming
from duet_rpc.gateway.loop import SETTLE, Loop
from duet_rpc.gateway.methods import LISTS, add_methods, status_of
from duet_rpc.gateway.outgoing import Outgoing
from duet_rpc.gateway.tools import Tools, call_by_name, rename_call
from duet_rpc.gateway.watchdog import Watchdog
from duet_rpc.jsonrpc.envelope import Envelope, encode_request, encode_result
from duet_rpc.jsonrpc.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    OVERSIZE,
    PARSE_ERROR,
    TITLES,
)
from duet_rpc.jsonrpc.framing import CONTENT_LENGTH
from duet_rpc.jsonrpc.ids import read_own
from duet_rpc.jsonrpc.limits import (
    FAREWELL,
    GRACE,
    LAST_REPLIES,
    RECEIVED_MAX,
)
from duet_rpc.jsonrpc.messages import (
    NULL,
    Failure,
    Request,
    encode_failure,
    encode_success,
    to_json,
)
from duet_rpc.methods.builtin import add_builtin
from duet_rpc.methods.registry import Registry, json_type
from duet_rpc.server import dispatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from duet_rpc.config.settings import BackendSettings
    from duet_rpc.gateway.backend import Outcome, Times
    from duet_rpc.gateway.tools import Tool
    from duet_rpc.log import Log

LIST_CHANGED = "notifications/tools/list_changed"


class Gateway:
    """Routes, and says when it is over."""

    command = "gateway"
    framing = CONTENT_LENGTH  # of the client,
    dialect = PLAIN  # and how it speaks of progress and cancel
    answers_cancelled = True  # what was taken back gets a reply all the same

    def __init__(
        self,
        descriptors: tuple[int, int],
        log: Log,
        backends: Iterable[BackendSettings],
        times: Times,
    ) -> None:
        self._log = log
        self._times = times
        self._loop = Loop(log)
        self.client_full = False  # it does not read: a backend looks at this for each message
        self._front = Front(descriptors, self._loop, log, self.framing, times.read, self)
        self._say = self._front.say
        self._incoming = Incoming(self._loop, log, lambda text: self._say(text.encode()))
        self._closing: float | None = None
        self._code = 0
        watchdog = Watchdog()
        self._backends = {
            each.name: Backend(each, self, self._loop, log, watchdog, times) for each in backends
        }
        self._outgoing = Outgoing(
            self._backends, log, self._say, self.dialect, self.answers_cancelled
        )
        self._tools = Tools(self._backends.values(), self._loop, self.fresh_id)
        self._tools.on_news = lambda: self._say(encode_request(LIST_CHANGED, None).encode())
        self._registry = Registry()
        add_builtin(self._registry, log.set_level, self._shut_down)
        add_methods(self._registry, self._backends, self._count_pending)
        self.prepare()

    def prepare(self) -> None:
        """Do what another kind of client needs done at the start."""

    def _count_pending(self) -> int:
        return self._outgoing.pending_count + self._incoming.pending_count

    # Life.

    def run(self) -> int:
        """Serve until asked to leave; return the exit code."""
        loop = self._loop
        loop.on_signal = self._on_signal
        loop.on_child = self._look_at_backends
        self._front.update_reading()
        for backend in self._backends.values():
            if backend.settings.start == "eager":
                backend.start()
        loop.after(SETTLE, load_later)
        loop.run()
        return self._code

    def release(self) -> None:
        """Give the client's descriptor back as it came."""
        self._front.release()

    def _look_at_backends(self) -> None:
        for backend in self._backends.values():
            backend.look()

    def _on_signal(self, name: str) -> None:
        self._log.info(f"{name} received, shutting down gracefully")
        self._close()

    def _shut_down(self) -> None:
        self._log.info("shutdown requested, shutting down gracefully")
        self._front.stop_reading(deaf=True)
        self._loop.soon(self._close)

    def lose_client(self, error: OSError) -> None:
        """Leave: nobody reads what we say."""
        if isinstance(error, BrokenPipeError):
            self._log.error("stdout is closed: the client is gone")
        else:
            self._log.error(f"input or output failed: {error.strerror}")
        self._code = 1
        self._close()

    def end_input(self) -> None:
        """Leave, but give what is under way a moment."""
        self._log.info("stdin closed, shutting down gracefully")
        self._loop.after(GRACE - 0.15, self._leave)
        until = monotonic() + LAST_REPLIES

        def look() -> None:
            pending = self._outgoing.pending_count and not self._front.outlet.closed
            if pending and monotonic() < until:
                self._loop.after(0.02, look)
            else:
                self._close()

        look()

    def _close(self) -> None:
        """End all backends at the same time, then ourselves."""
        if self._closing is not None:
            return
        self._closing = monotonic()
        self._front.stop_reading()
        self._loop.after(GRACE - 0.15, self._leave)
        self._outgoing.refuse_own("the gateway is leaving")
        for backend in self._backends.values():
            backend.stop(self._leave_if_done)
        self._leave_if_done()

    def _leave_if_done(self) -> None:
        if all(backend.state == STOPPED for backend in self._backends.values()):
            # What the client has not read yet has the rest of the time. jsonrpc.el 1.0.25
            # hands a reply on later than the news of our death, so that comes a bit later.
            started = self._closing or 0.0
            if self._front.outlet.size:
                self._loop.after(0.01, self._leave_if_done)
            else:
                self._loop.after(max(0.0, started + FAREWELL - monotonic()), self._leave)

    def _leave(self) -> None:
        self._loop.running = False

    def change_flow(self, full: bool) -> None:
        """Read the backends no more, or again."""
        self.client_full = full
        for backend in self._backends.values():
            if full:
                backend.update_reading()
            else:
                backend.catch_up()

    # The client asks.

    def hear(self, message: Envelope) -> None:
        """Take a message of the client."""
        try:
            if message.method is not None:
                self._route(message, message.method)
            else:
                self._incoming.answer(message)
        except Exception as error:  # noqa: BLE001 - it ends nothing but what the message is about
            failure = self._excuse(message, error)
            if message.method is not None and message.id is not None:
                self._outgoing.abandon(message.id)
                self._say(encode_failure(failure))

    def _excuse(self, message: Envelope, error: Exception, whose: str = "") -> Failure:
        """Log why a message could not be dealt with; say it to whoever sent it."""
        if isinstance(error, RecursionError):  # it could be read once, with more room
            text = f"{TITLES[PARSE_ERROR]}: nested too deeply"
            self._log.warn(whose + text, message.method, message.id)
            return Failure(message.id, PARSE_ERROR, text)
        self._log.error(f"{whose}internal error: {describe(error)}", message.method, message.id)
        return Failure(message.id, INTERNAL_ERROR, TITLES[INTERNAL_ERROR])

    def _route(self, message: Envelope, method: str) -> None:
        name, slash, rest = method.partition("/")
        backend = self._backends.get(name) if slash else None
        if backend is not None and rest:
            self._to_backend(backend, message, rest)
        elif self._outgoing.is_second(message):
            pass  # and refused
        elif message.id is None and method == PLAIN.cancel:
            self._outgoing.cancel(message, PLAIN.cancel_key)
        elif message.id is None and method == PLAIN.progress:
            if not self._incoming.progress(message, PLAIN.token_key):
                self._log.warn("a progress that nobody waits for was dropped", method)
        elif method in LISTS:
            self._answer_later(message, method)
        elif method == "tools/call":
            self._call_tool(message)
        else:
            tool = None if slash else self._tools.find(method)
            if tool is not None:
                self._call_tool_by_name(tool[0], message, tool[1])
            else:
                self._answer_now(message, method)

    def _answer_now(self, message: Envelope, method: str) -> None:
        params = message.value("params")
        request = Request(method, params, message.id)  # type: ignore[arg-type]
        found = dispatch.find(self._registry, request)
        result: bytes | Failure
        if isinstance(found, Failure):
            result = found
        else:
            result = dispatch.call(request.id, found.call, request.params)
        if isinstance(result, Failure):
            if result.cause is not None:
                text = f"{result.message}: {describe(result.cause)}"
                self._log.error(text, method, message.id)
            else:
                title = TITLES.get(result.code, f"refused with error {result.code}")
                self._log.warn(title, method, message.id)
            if result.id is not None:
                self._say(encode_failure(result))
        elif message.id is not None:
            self._say(encode_success(message.id, result))

    def _to_backend(self, backend: Backend, message: Envelope, method: str) -> None:
        dialect = backend.dialect
        if message.id is None:
            if method == dialect.cancel:
                self._outgoing.cancel(message, dialect.cancel_key)
            elif dialect is MCP and method == "notifications/initialized":
                pass  # the gateway has said it
            elif method == dialect.progress and self._incoming.progress(message, dialect.token_key):
                pass  # under the backend's own token
            elif not backend.notify(method, message.params):
                text = backend.refuse() or "not available"
                self._log.warn(f"dropped: {text}", message.method)
        elif dialect is MCP and method == "initialize":
            if not self._outgoing.is_second(message):
                self._show_handshake(backend, message.id)
        else:
            self._outgoing.forward(backend, message, method, message.params)

    # The backends answer and ask.

    def fresh_id(self) -> int:
        """Return an id for a request of the gateway's own."""
        return self._outgoing.fresh_id()

    def settle(self, backend: Backend, id: int, outcome: Outcome) -> None:
        """Hand the end of a request to the client that made it."""
        self._outgoing.settle(backend, id, outcome)

    def take(self, backend: Backend, message: Envelope) -> None:
        """Take a request or a notification of a backend."""
        method = str(message.method)
        if message.id is not None:
            if backend.dialect is MCP and method == "ping":
                backend.answer(encode_result(message.id, "{}"))
            else:
                self._incoming.ask(backend, message, method, message.id)
            return
        dialect = backend.dialect
        params = message.params
        if params is not None and params[0] == "{":
            if method == dialect.progress and self._outgoing.progress(backend, params):
                return
            if method == dialect.cancel:
                self._incoming.cancel(backend, params)
                return
        if dialect is MCP and method == LIST_CHANGED:
            self._tools.renew(backend.name)
            self._tools.on_news()
        self._say(encode_request(f"{backend.name}/{method}", params).encode())

    def fail(self, backend: Backend, message: Envelope, error: Exception) -> None:
        """Take note of a message of a backend that could not be dealt with."""
        failure = self._excuse(message, error, f"backend {backend.name}: ")
        if message.method is not None and message.id is not None:
            self._incoming.abandon(backend, message.id)
            backend.answer(encode_failure(failure).decode())

    def take_broken(self, backend: Backend, failure: Failure, body: bytes | bytearray) -> None:
        """Skip what a backend said that is no message; end what it was the answer to."""
        from duet_rpc.jsonrpc.broken import may_be_answer

        backend.report(f"something on its stdout is no message and was skipped: {failure.message}")
        id = failure.id or NULL
        if not may_be_answer(body):
            if id != NULL:
                backend.answer(encode_failure(failure).decode())
        elif read_own(id) in backend.pending:
            backend.end_broken(read_own(id))
        elif (
            id == NULL and failure.data == {"reason": OVERSIZE} and len(backend.pending) == 1
        ):  # the one that it may be the answer to
            backend.end_broken(next(iter(backend.pending)))

    def changed(self, backend: Backend) -> None:
        """Tell the client about a new state."""
        if backend.state == READY:
            self._tools.retry(backend.name)
        else:
            self._tools.forget(backend.name)
            if backend.state != STARTING:
                self._incoming.drop(backend)
        if self._closing is None:
            self._announce(backend)

    def _announce(self, backend: Backend) -> None:
        params = to_json(status_of(backend)).decode()
        self._say(encode_request("gateway/stateChanged", params).encode())

    # Tools.

    def _call_tool(self, message: Envelope) -> None:
        params, value = message.params, message.value("params")
        name = value.get("name") if isinstance(value, dict) else None
        found = self._tools.find(name) if isinstance(name, str) else None
        if params is None or found is None:
            shown = name[:RECEIVED_MAX] if isinstance(name, str) else json_type(name)
            text = f"unknown tool: {shown}"
            self._outgoing.refuse(message.id, message.method, INVALID_PARAMS, text)
            return
        backend, tool = found
        self._send_tool_call(backend, message, rename_call(params, tool))

    def _call_tool_by_name(self, backend: Backend, message: Envelope, tool: str) -> None:
        params = call_by_name(tool, message.params or "{}")
        if params is None:
            text = "a tool takes its arguments by name"
            self._outgoing.refuse(message.id, message.method, INVALID_PARAMS, text)
            return
        self._send_tool_call(backend, message, params)

    def _send_tool_call(self, backend: Backend, message: Envelope, params: str) -> None:
        if message.id is None:
            self._log.warn("a tool can't be called by a notification", message.method)
        else:
            self._outgoing.forward(backend, message, "tools/call", params)

    def _show_handshake(self, backend: Backend, original: str) -> None:
        """Answer initialize for a server with which the gateway shakes hands itself."""
        if backend.handshake is not None:
            self._say(encode_result(original, backend.handshake.raw("result") or NULL).encode())
            return
        id = self._outgoing.take_in(original, f"{backend.name}/initialize", backend)
        if id is None:
            return

        def shaken(outcome: Outcome) -> None:
            if not isinstance(outcome, Failure) and backend.handshake is not None:
                outcome = backend.handshake
            self.settle(backend, id, outcome)

        # Whatever it answers, by then its handshake is done.
        backend.request(id, "ping", None, Call("ping", shaken))

    def _answer_later(self, message: Envelope, method: str) -> None:
        """Answer when the servers have said which tools they have."""
        if message.id is None:
            self._log.warn("a list was asked for by a notification", method)
            return
        if message.value("params") and method != "tools/list":
            self._answer_now(message, method)  # which refuses the params
            return
        id = self._outgoing.take_own(message.id, method)
        if id is None:
            return

        def done(tools: list[Tool], absent: dict[str, str]) -> None:
            if self._outgoing.is_own(id):
                result = LISTS[method](self._registry, tools, absent)
                self._say(encode_success(self._outgoing.finish_own(id), result))

        self._tools.collect(self._times.list, done)


def load_later() -> None:
    """Load what the start goes without."""
    with suppress(ImportError):  # its files are gone already; it is needed seldom, or never
        import duet_rpc.gateway.later  # noqa: F401
