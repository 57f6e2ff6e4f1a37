"""The gateway: one client, many backends, and who is to hear what.

A message of the client goes to the backend that its method names; a message of a backend
goes to the client under that backend's name. Ids and progress tokens are exchanged on the
way, in both directions, and every request has exactly one end: reply, cancel, timeout or
death. What is inside a message is handed on as it came.
"""

from __future__ import annotations

import os
from contextlib import suppress
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit
from time import monotonic

from duet_rpc import __version__
from duet_rpc.gateway.backend import READY, STARTING, STOPPED, Backend, Call, Times
from duet_rpc.gateway.dialects import MCP, PLAIN
from duet_rpc.gateway.front import Front
from duet_rpc.gateway.ids import InFlight, Remapper
from duet_rpc.gateway.incoming import Incoming
from duet_rpc.gateway.loop import Loop
from duet_rpc.gateway.methods import LISTS, add_methods, status_of
from duet_rpc.gateway.tools import Tools, split_tool
from duet_rpc.gateway.watchdog import Watchdog
from duet_rpc.log import DEBUG
from duet_rpc.methods.builtin import add_builtin
from duet_rpc.methods.registry import Registry, json_type
from duet_rpc.protocol.envelope import (
    Envelope,
    encode_error,
    encode_request,
    encode_result,
    error_of,
    id_in,
    member,
    replace,
    without,
)
from duet_rpc.protocol.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    OVERSIZE,
    REQUEST_CANCELLED,
    REQUEST_FAILED,
    TITLES,
)
from duet_rpc.protocol.framing import CONTENT_LENGTH
from duet_rpc.protocol.limits import (
    FAREWELL,
    GRACE,
    LAST_REPLIES,
    RECEIVED_MAX,
)
from duet_rpc.protocol.messages import (
    NULL,
    Failure,
    Request,
    encode_failure,
    encode_success,
    to_json,
)
from duet_rpc.server import dispatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from duet_rpc.config import BackendSettings
    from duet_rpc.gateway.backend import Outcome
    from duet_rpc.gateway.tools import Tool
    from duet_rpc.log import Log

LIST_CHANGED = "notifications/tools/list_changed"
SPARE_DESCRIPTORS = 64
OURS = "gateway"  # stands for a backend where the gateway itself owes the answer

TERMINAL_HINT = (
    "duet-rpc {}: waiting for JSON-RPC requests, {}; Ctrl-D ends it. For people there are "
    "`duet-rpc call NAME/method` and `duet-rpc gateway --check`.\n"
)


def serve(
    descriptors: tuple[int, int],
    log: Log,
    backends: Iterable[BackendSettings],
    times: Times | None = None,
    kind: type[Gateway] | None = None,
) -> None:
    """Serve one client until it or a signal ends it; does not return."""
    code = 1
    gateway = None
    try:
        kind = kind or Gateway
        if os.isatty(descriptors[0]):
            os.write(2, TERMINAL_HINT.format(kind.command, kind.framing.form).encode())
        log.info(
            f"duet-rpc {__version__} gateway started: pid {os.getpid()}, "
            f"level {log.level_name}, log to {log.sink}"
        )
        settings = list(backends)
        raise_limit(len(settings))
        gateway = kind(descriptors, log, settings, times or Times())
        code = gateway.run()
    except OSError as error:
        log.error(f"input or output failed: {error.strerror}")
    except BaseException as error:  # noqa: BLE001 - no traceback reaches a person
        log.error(f"internal error: {log.describe(error)}")
    log.close()
    if gateway is not None:
        gateway.release()
    # Not sys.exit: taking the interpreter apart takes longer than all of this. What is
    # still alive of the backends is ended by the watchdog.
    os._exit(code)


def raise_limit(backends: int) -> None:
    """Make room for three pipes to each backend, where the system has set a low limit."""
    needed = 3 * backends + SPARE_DESCRIPTORS
    soft, hard = getrlimit(RLIMIT_NOFILE)
    if soft != RLIM_INFINITY and soft < needed:
        most = needed if hard == RLIM_INFINITY else min(needed, hard)
        with suppress(OSError, ValueError):
            setrlimit(RLIMIT_NOFILE, (most, hard))


class Gateway:
    """Routes, and keeps the books."""

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
        self._ids = Remapper()  # of the client
        self._incoming = Incoming(self._loop, log, lambda text: self._say(text.encode()))
        self._own: dict[int, None] = {}  # requests that the gateway answers later
        self._closing: float | None = None
        self._code = 0
        watchdog = Watchdog()
        self._backends = {
            each.name: Backend(each, self, self._loop, log, watchdog, times) for each in backends
        }
        self._tools = Tools(self._backends.values(), self._loop, self._ids.fresh)
        self._tools.on_news = lambda: self._say(encode_request(LIST_CHANGED, None).encode())
        self._registry = Registry()
        add_builtin(self._registry, log.set_level, self._shut_down)
        add_methods(self._registry, self._backends, self._count_pending)
        self.prepare()

    def prepare(self) -> None:
        """Do what another kind of client needs done at the start."""

    def _count_pending(self) -> int:
        return self._ids.pending_count + self._incoming.pending_count

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
            if self._ids.pending_count and monotonic() < until and not self._front.outlet.closed:
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
        for id in list(self._own):
            self._refuse(self._finish_own(id), None, REQUEST_FAILED, "the gateway is leaving")
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
        if message.method is not None:
            self._route(message, message.method)
        else:
            self._incoming.answer(message)

    def _route(self, message: Envelope, method: str) -> None:
        name, slash, rest = method.partition("/")
        backend = self._backends.get(name) if slash else None
        if backend is not None and rest:
            self._to_backend(backend, message, rest)
        elif message.id is None and method == PLAIN.cancel:
            self._cancel(message, "id")
        elif message.id is None and method == PLAIN.progress:
            if not self._incoming.progress(message, PLAIN.token_key):
                self._log.warn("a progress that nobody waits for was dropped", method)
        elif method in LISTS:
            self._answer_later(message, method)
        elif method == "tools/call":
            self._call_tool(message)
        elif backend is None and not slash and self._is_tool(method):
            self._call_tool_by_name(message, method)
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
                text = f"{result.message}: {self._log.describe(result.cause)}"
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
                self._cancel(message, dialect.cancel_key)
            elif dialect is MCP and method == "notifications/initialized":
                pass  # the gateway has said it
            elif method == dialect.progress and self._incoming.progress(message, dialect.token_key):
                pass  # under the backend's own token
            elif not backend.notify(method, message.params):
                text = backend.refuse() or "not available"
                self._log.warn(f"dropped: {text}", message.method)
        elif dialect is MCP and method == "initialize":
            self._show_handshake(backend, message.id)
        else:
            self._forward(backend, message, method, message.params)

    def _forward(
        self,
        backend: Backend,
        message: Envelope,
        method: str,
        params: str | None,
    ) -> int | None:
        """Hand a request on; return the id that it has there."""
        original = message.id
        assert original is not None  # noqa: S101 - for the type checker
        refusal = backend.refuse()
        if refusal is not None:
            self._refuse(original, message.method, REQUEST_FAILED, refusal, self._why(backend))
            return None
        id = self._take_in(original, message.method, backend.name)
        if id is None:
            return None
        call = Call(method)
        # A look for the word saves nearly everybody a look into the params.
        if params is not None and ("Token" in params or "\\u" in params):
            params = self._exchange_tokens(backend, id, call, message, params)
        backend.request(id, method, params, call)
        if self._log.level <= DEBUG:
            self._log.debug("forwarded", message.method, original)
        return id

    def _take_in(self, original: str, method: str | None, owner: str) -> int | None:
        """Give a request its id; None where that one is taken."""
        try:
            return self._ids.remap(original, owner)
        except InFlight:
            text = "a request with this id is in flight"
            self._refuse(original, method, INVALID_REQUEST, text)
            return None

    def _why(self, backend: Backend) -> dict[str, object]:
        full = backend.state in (READY, STOPPED, STARTING)
        data: dict[str, object] = {
            "backend": backend.name,
            "reason": "queue-full" if full else "unavailable",
            "state": backend.state,
        }
        if backend.tail and not full:
            data["stderr"] = "\n".join(backend.tail)
        return data

    def _refuse(
        self,
        id: str | None,
        method: str | None,
        code: int,
        text: str,
        data: object = None,
    ) -> None:
        """Answer with an error of our own."""
        self._log.warn(text, method, id)
        if id is not None:
            self._say(encode_failure(Failure(id, code, f"{TITLES[code]}: {text}", data)))

    # Tokens.

    def _exchange_tokens(
        self, backend: Backend, id: int, call: Call, message: Envelope, params: str
    ) -> str:
        """Put tokens of our own in the places of the client's."""
        for path in backend.dialect.token_paths:
            value = message.value("params")
            for name in path:
                value = value.get(name) if isinstance(value, dict) else None
            if type(value) not in (str, int, float):
                continue
            raw = params
            for name in path:
                raw = member(raw, name) or NULL
            token = f'"duet-rpc-{id}-{len(call.tokens)}"'
            params = replace(params, path, token)
            call.tokens += (token,)
            backend.tokens[token] = (raw, id)
        return params

    # Cancel.

    def _cancel(self, message: Envelope, key: str) -> None:
        params = message.params
        wanted = id_in(params, key) if params is not None and params[0] == "{" else None
        if wanted is None:
            self._log.warn("a cancel that names no request was dropped", message.method)
            return
        id = self._ids.find(wanted)
        if id is None:
            return  # what it names has been answered
        if id in self._own:
            original = self._finish_own(id)
        else:
            original, name = self._ids.restore(id)
            backend = self._backends[name]
            backend.drop(id)
            backend.give_up(id)
        self._log.info(TITLES[REQUEST_CANCELLED], id=original)
        if self.answers_cancelled:
            failure = Failure(original, REQUEST_CANCELLED, TITLES[REQUEST_CANCELLED])
            self._say(encode_failure(failure))

    # The backends answer and ask.

    def fresh_id(self) -> int:
        """Return an id for a request of the gateway's own."""
        return self._ids.fresh()

    def settle(self, backend: Backend, id: int, outcome: Outcome) -> None:
        """Hand the end of a request to the client that made it."""
        original, _ = self._ids.restore(id)
        if isinstance(outcome, Failure):
            outcome.id = original
            self._say(encode_failure(outcome))
            return
        error = error_of(outcome)
        result = outcome.raw("result")
        if error:
            self._say(encode_error(original, error).encode())
        elif error is None and result is not None:
            self._say(encode_result(original, result).encode())
        else:
            text = f"{TITLES[INTERNAL_ERROR]}: backend {backend.name} gave an answer that is none"
            data = {"backend": backend.name, "reason": "bad-reply"}
            self._say(encode_failure(Failure(original, INTERNAL_ERROR, text, data)))

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
            if method == dialect.progress and self._progress(backend, params):
                return
            if method == dialect.cancel:
                self._incoming.cancel(backend, params)
                return
        if dialect is MCP and method == LIST_CHANGED:
            self._tools.forget(backend.name)
            self._tools.on_news()
        self._say(encode_request(f"{backend.name}/{method}", params).encode())

    def _progress(self, backend: Backend, params: str) -> bool:
        """Hand progress on under the client's token; False where it is the backend's own."""
        dialect = backend.dialect
        token = member(params, dialect.token_key) or ""
        found = backend.tokens.get(token)
        if found is None:
            # One of ours whose request is over; or one that the backend made itself.
            return token.startswith('"duet-rpc-')
        original, id = found
        backend.prolong(id)
        written = self.dialect.write_progress(original, dialect.read_progress(params))
        self._say(encode_request(self.dialect.progress, written).encode())
        return True

    def take_broken(self, backend: Backend, failure: Failure, body: bytes | bytearray) -> None:
        """Skip what a backend said that is no message; end what it was the answer to."""
        backend.report(f"something on its stdout is no message and was skipped: {failure.message}")
        id = failure.id or NULL
        is_answer = b'"method"' not in body
        if is_answer and id.isdigit() and int(id) in backend.pending:
            number = int(id)
        elif failure.data == {"reason": OVERSIZE} and len(backend.pending) == 1:
            number = next(iter(backend.pending))  # the one that it may be the answer to
        else:
            if not is_answer and id != NULL:
                backend.answer(encode_failure(failure).decode())
            return
        call = backend.drop(number)
        text = f"{TITLES[INTERNAL_ERROR]}: backend {backend.name} gave an answer that can't be read"
        data = {"backend": backend.name, "reason": "bad-reply"}
        broken = Failure(NULL, INTERNAL_ERROR, text, data)
        if call.receive is not None:
            call.receive(broken)
        else:
            self.settle(backend, number, broken)

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

    def _is_tool(self, method: str) -> bool:
        name, tool = split_tool(method)
        backend = self._backends.get(name)
        return bool(tool) and backend is not None and backend.dialect is MCP

    def _call_tool(self, message: Envelope) -> None:
        params, value = message.params, message.value("params")
        name = value.get("name") if isinstance(value, dict) else None
        if params is None or not isinstance(name, str) or not self._is_tool(name):
            shown = name[:RECEIVED_MAX] if isinstance(name, str) else json_type(name)
            self._refuse(message.id, message.method, INVALID_PARAMS, f"unknown tool: {shown}")
            return
        backend, tool = split_tool(name)
        renamed = replace(params, ("name",), to_json(tool).decode())
        self._send_tool_call(self._backends[backend], message, renamed)

    def _call_tool_by_name(self, message: Envelope, method: str) -> None:
        backend, tool = split_tool(method)
        arguments = message.params or "{}"
        if arguments[0] != "{":
            text = "a tool takes its arguments by name"
            self._refuse(message.id, method, INVALID_PARAMS, text)
            return
        params = f'{{"name":{to_json(tool).decode()},"arguments":{arguments}}}'
        value = message.value("params")
        if isinstance(value, dict) and "_meta" in value:
            # It says something about the call and is no argument.
            meta = member(arguments, "_meta")
            params = (
                f'{{"_meta":{meta},"name":{to_json(tool).decode()},'
                f'"arguments":{without(arguments, "_meta")}}}'
            )
        self._send_tool_call(self._backends[backend], message, params)

    def _send_tool_call(self, backend: Backend, message: Envelope, params: str) -> None:
        if message.id is None:
            self._log.warn("a tool can't be called by a notification", message.method)
        else:
            self._forward(backend, message, "tools/call", params)

    def _show_handshake(self, backend: Backend, original: str) -> None:
        """Answer initialize for a server with which the gateway shakes hands itself."""
        if backend.handshake is not None:
            self._say(encode_result(original, backend.handshake.raw("result") or NULL).encode())
            return
        method = f"{backend.name}/initialize"
        refusal = backend.refuse()
        if refusal is not None:
            self._refuse(original, method, REQUEST_FAILED, refusal, self._why(backend))
            return
        id = self._take_in(original, method, backend.name)
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
        id = self._take_in(message.id, method, OURS)
        if id is None:
            return
        self._own[id] = None

        def done(tools: list[Tool], absent: dict[str, str]) -> None:
            if id in self._own:
                result = LISTS[method](self._registry, tools, absent)
                self._say(encode_success(self._finish_own(id), result))

        self._tools.collect(self._times.list, done)

    def _finish_own(self, id: int) -> str:
        del self._own[id]
        return self._ids.restore(id)[0]
