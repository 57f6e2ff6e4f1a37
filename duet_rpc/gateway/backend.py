"""One server behind the gateway: its handshake, the requests to it and its replies.

Its process is started, restarted and stopped by a `Supervisor`. Requests that arrive before
the handshake is done wait here. Requests and notifications of the server itself are handed
to the gateway.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from duet_rpc.gateway.backend_log import BackendLog
from duet_rpc.gateway.dialects import DIALECTS, LSP, MCP
from duet_rpc.gateway.eras import without_own_meta
from duet_rpc.gateway.pending import Backlog, Call, PendingRequests
from duet_rpc.gateway.server_session import HandshakeParams, ServerSession
from duet_rpc.gateway.state import State
from duet_rpc.gateway.supervisor import Supervisor
from duet_rpc.gateway.wire import detail_of, params_of, raw, to_frame
from duet_rpc.jsonrpc import limits, salvage
from duet_rpc.jsonrpc.errors import INTERNAL_ERROR, OVERSIZE, REQUEST_FAILED, Error
from duet_rpc.jsonrpc.framing import FRAMINGS
from duet_rpc.jsonrpc.messages import Failure, Notification, Request, Success
from duet_rpc.jsonrpc.values import RawJson
from duet_rpc.workers.start import Start

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from duet_rpc.config.processes import ProcessSettings
    from duet_rpc.gateway.child import Invalid
    from duet_rpc.gateway.pending import Outcome
    from duet_rpc.gateway.runtime import Runtime
    from duet_rpc.jsonrpc.messages import Message
    from duet_rpc.mcp.versions import Version

    class Owner(Protocol):
        """What a backend needs of the gateway."""

        def fresh_id(self) -> int:
            """Return an id for a request of the gateway's own."""

        def handle_backend_message(self, backend: Backend, message: Request | Notification) -> None:
            """Handle a request or a notification of a backend."""

        def handle_backend_failure(
            self, backend: Backend, message: Message, error: Exception
        ) -> None:
            """Handle an exception that a message of a backend has caused."""

        def handle_backend_state(self, backend: Backend) -> None:
            """Handle a new state of a backend."""

        def handle_preparing(self, backend: Backend, text: str) -> None:
            """Handle what a worker does before it is ready."""

        def original_id(self, id: int) -> str | None:
            """Return the client's id of a request that it waits for, as text."""


SEPARATOR = "__"
"""Between the name of a server and that of its tool."""

UNAVAILABLE = (State.BACKOFF, State.FAILED, State.STOPPING)
"""The states in which requests are refused, unless the process is going to be there soon."""


class Backend:
    """A server that can be sent requests and notifications at any time."""

    def __init__(self, settings: ProcessSettings, owner: Owner, runtime: Runtime) -> None:
        self.settings = settings
        self.dialect = DIALECTS[settings.dialect]
        self.log = BackendLog(self.title, runtime.log)
        self.pending = PendingRequests(runtime.loop, settings.timeout, self._handle_timeouts)
        self.process = Supervisor(settings, runtime, self)
        capabilities = getattr(settings, "capabilities", {})
        self.session = ServerSession(
            HandshakeParams(capabilities=capabilities)
        )  # with an MCP server
        self._framing = FRAMINGS[settings.framing]
        self._owner = owner
        self._backlog = Backlog()  # what waits for the handshake

    @property
    def name(self) -> str:
        """The name in the configuration, or that of a worker's file."""
        return self.settings.name

    @property
    def title(self) -> str:
        """The name with the kind before it, for people."""
        return f"{self.settings.kind} {self.settings.name}"

    @property
    def state(self) -> State:
        """The state of the backend."""
        return self.process.state

    # Requests and notifications to it.

    def refusal(self) -> Error | None:
        """Return why it takes no request now, or None."""
        state, child = self.process.state, self.process.child
        stderr = {}
        if state in UNAVAILABLE and not self.process.restarts_soon:
            reason, detail = (
                "unavailable",
                f"is not available: {self.process.reason or state.value}",
            )
            if self.log.tail:
                stderr = {"stderr": self.log.end()}
        elif (
            self._backlog.size + (0 if child is None else child.input.size) > limits.QUEUE_MAX
            or len(self.pending) >= limits.PENDING_MAX
        ):
            reason, detail = "queue-full", f"{self._why_full()}: its queue is full"
        else:
            return None
        data = {"backend": self.name, "reason": reason, "state": state.value, **stderr}
        return Error.of(REQUEST_FAILED, f"{self.title} {detail}", data)

    def _why_full(self) -> str:
        child = self.process.child
        if child is None or self.process.state is not State.READY:
            return "is not ready yet"
        return "does not read" if child.input.size else "does not answer"

    def request(self, id: int, call: Call, params: RawJson | None, timed: bool = True) -> None:
        """Send a request, or keep it until the server is ready."""
        self.pending.add(id, call, timed)
        self._send(Request(call.method, params, id), id)

    def tool_name(self, tool: str) -> str:
        """Return the name that one of its tools has for the client."""
        return f"{self.name}{SEPARATOR}{tool}"

    def client_name(self, method: str) -> str:
        """Return the name that one of its methods, or of its messages, has for the client."""
        return f"{self.name}/{method}"

    def notify(self, method: str, params: RawJson | None) -> Error | None:
        """Send a notification; return why it was dropped, or None."""
        refusal = self.refusal()
        if refusal is not None:
            return refusal
        if self.dialect is LSP and method == "exit":
            if self.process.child is None:
                return None
            self.process.exit_expected = True
        self._send(Notification(method, params), self._owner.fresh_id())
        return None

    def speaks_stateless(self, _version: Version) -> bool:
        """Return whether a request of a client's version goes to it without translation."""
        return self.session.is_stateless

    def reply(self, message: Success | Failure) -> None:
        """Send the reply to a request of its own."""
        if self.process.child is not None:
            self.process.child.reply(to_frame(message, self._framing))

    def _send(self, message: Request | Notification, id: int) -> None:
        if self.can_take(message):
            self._write(message)
            return
        self._backlog.put(id, message)
        if self.process.state is State.STOPPED:
            self.process.start()

    def can_take(self, _message: Request | Notification) -> bool:
        """Return whether a message is written at once, and does not have to wait."""
        return self.process.state is State.READY

    def _write(self, message: Request | Notification) -> None:
        if self.process.child is not None:
            self.process.child.input.put(to_frame(self._adapt(message), self._framing))

    def _adapt(self, message: Request | Notification) -> Request | Notification:
        """Return a message as this server understands it."""
        if message.params is not None and not isinstance(message.params, RawJson):
            return message
        params = without_own_meta(params_of(message))
        if self.dialect is MCP:
            params = self.session.adapt(params, isinstance(message, Request))
        if params is message.params:
            return message
        if isinstance(message, Request):
            return Request(message.method, params, message.id)
        return Notification(message.method, params)

    def _ask(self, method: str, params: RawJson | None, receive: Callable[[Outcome], None]) -> None:
        """Send a request of our own, ahead of those that wait for the handshake."""
        id = self._owner.fresh_id()
        self.pending.add(id, Call(method, receive), timed=False)
        self._write(Request(method, params, id))

    def resume_reading(self) -> None:
        """Read on, where the client has room for it, or stop."""
        if self.process.child is not None:
            self.process.child.output.resume()

    # How requests end.

    def cancel(self, id: int) -> None:
        """Forget a request, and tell the server that nobody waits for its reply."""
        if self.pending.pop(id) is not None:
            self._send_cancel(id)

    def _send_cancel(self, id: int) -> None:
        # Before the server is ready nothing but the handshake was sent to it.
        if not self._backlog.remove(id) and self.state is State.READY:
            params = raw(f'{{"{self.dialect.cancel_key}":{id}}}')
            self._write(Notification(self.dialect.cancel, params))

    def _handle_timeouts(self) -> None:
        while True:
            expired = self.pending.pop_expired()
            if expired is None:
                return
            id, call = expired
            self._send_cancel(id)
            seconds = f"{self.settings.timeout:g} s"
            self.log.warn(f"no reply within {seconds}", call.method)
            data = {"backend": self.name, "reason": "timeout"}
            detail = self.explain_timeout(id, call, seconds)
            call.receive(Failure(None, Error.of(REQUEST_FAILED, detail, data)))

    def explain_timeout(self, _id: int, _call: Call, seconds: str) -> str:
        """Return what a caller is told that has waited for too long."""
        return f"{self.title} did not reply within {seconds}"

    def handle_gone(self, text: str, data: dict[str, object]) -> None:
        """Fail the requests of a process that has exited, or is going to.

        Those that were not sent to it wait for the next one, where that comes soon.
        """
        self.session.forget()
        error = Error.of(REQUEST_FAILED, f"{self.title}: {text}", {"backend": self.name, **data})
        if not self.process.restarts_soon:
            self._backlog.pop_all()
        for call in self.pending.pop_where(lambda id: id not in self._backlog):
            call.receive(Failure(None, error))

    def _bad_reply(self, detail: str) -> Failure:
        detail = f"{self.title} sent an invalid reply: {detail}"
        data = {"backend": self.name, "reason": "bad-reply"}
        return Failure(None, Error.of(INTERNAL_ERROR, detail, data))

    # What it writes.

    def handle_message(self, message: Message) -> None:
        """Handle a reply, or hand on what the server asks or notifies."""
        call = None
        self.pending.note_activity()
        try:
            if isinstance(message, (Request, Notification)):
                self._owner.handle_backend_message(self, message)
                return
            call = self.pending.pop(message.id)
            if call is None:
                self.log.debug("dropped a reply that nobody waits for")
            else:
                call.receive(message)
        except Exception as error:  # noqa: BLE001 - it ends nothing but what the message is about
            self._owner.handle_backend_failure(self, message, error)
            if call is not None:
                call.receive(self._bad_reply("it can't be handled"))

    def handle_invalid(self, message: Invalid, body: bytes) -> None:
        """Skip output that is not a message; fail the request that it is the reply to."""
        skipped = "skipped output on stdout that is not a JSON-RPC message"
        if isinstance(message, list):
            self.log.output(f"{skipped}: a batch")
            return
        failure = message.failure
        self.log.output(f"{skipped}: {failure.error.message}")
        if not salvage.may_be_reply(body):
            if failure.id is not None:
                self.reply(failure)
            return
        id, detail = failure.id, detail_of(failure.error)
        if failure.error.data == {"reason": OVERSIZE}:
            detail = f"it is larger than the limit of {limits.BODY_MAX:,} bytes"
            if not message.id_known:
                id = self.pending.only()  # no other request can be meant
        call = self.pending.pop(id)
        if call is not None:
            call.receive(self._bad_reply(detail))

    def handle_stderr(self, line: str) -> None:
        """Log a line of its stderr."""
        self.log.keep(line)
        self.log.output(line)

    def handle_expired_frame(self) -> None:
        """Log that a frame was discarded."""
        self.log.warn("discarded a frame that was not complete in time")

    # Its process.

    def find_start(self) -> Start:
        """Return how its process is started."""
        return Start(self.settings.command, {**os.environ, **self.settings.env})

    def handle_started(self) -> None:
        """Begin the handshake, where the dialect has one that is ours to make."""
        if self.dialect is not MCP:
            self._become_ready()
            return
        self.process.prepare()
        self._begin_handshake()

    def set_handshake_params(self, params: HandshakeParams | None) -> None:
        """Set what the next handshake says of the client; None makes the handshake wait."""
        self.session.params = params
        if self.session.is_due:
            self._begin_handshake()

    def _begin_handshake(self) -> None:
        self.session.is_due = self.session.params is None
        if not self.session.is_due:
            self.process.limit_handshake()
            self.session.negotiate(self._ask, self._handle_negotiated)

    def _handle_negotiated(self, problem: str) -> None:
        if self.state is not State.STARTING or self.process.child is None:
            return  # it exited or was stopped, which has been reported
        if problem:
            self.process.fail(problem)
            return
        if not self.session.is_stateless:
            self._write(Notification("notifications/initialized"))
        self._send_log_level()
        self._become_ready()

    def set_log_level(self, level: str) -> None:
        """Let an MCP server send log messages from this level on, now and when it is restarted."""
        self.session.log_level = level
        if self.state is State.READY:
            self._send_log_level()

    def _send_log_level(self) -> None:
        level = self.session.log_level
        has_log = "logging" in self.session.capabilities
        if level is not None and has_log and not self.session.is_stateless:
            self._ask("logging/setLevel", raw(f'{{"level":"{level}"}}'), lambda _outcome: None)

    def _become_ready(self) -> None:
        for message in self._backlog.pop_all():
            self._write(message)
        self.process.connected()

    def handle_stopping(self) -> None:
        """Ask the server to exit, by its protocol or by closing its input."""
        if self.dialect is LSP and not self.process.exit_expected:
            self._ask("shutdown", None, self._send_exit)
        elif self.process.child is not None:
            self.process.child.close_input()

    def _send_exit(self, _outcome: Outcome) -> None:
        if self.process.child is not None:
            self._write(Notification("exit"))
            self.process.child.close_input()

    def handle_state(self) -> None:
        """Report a new state to the gateway."""
        self._owner.handle_backend_state(self)
