"""Requests of the backends to the client: the other direction of `client_requests.py`.

Backends choose ids and tokens without knowing of each other, so the client sees others,
from a space of their own. Every request gets a reply: the client's, or after a while the
gateway's.
"""

from __future__ import annotations

from collections import defaultdict
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from duet_rpc.gateway.dialects import MCP, META, PLAIN
from duet_rpc.gateway.wire import id_in, params_of, raw, value_at
from duet_rpc.jsonrpc.errors import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    REQUEST_CANCELLED,
    REQUEST_FAILED,
    Error,
)
from duet_rpc.jsonrpc.jsontext import member, replace, write_id
from duet_rpc.jsonrpc.limits import PENDING_MAX
from duet_rpc.jsonrpc.messages import Failure, Notification, Request, Success
from duet_rpc.jsonrpc.values import RawJson
from duet_rpc.peer import Incoming, Outgoing

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.dialects import Dialect
    from duet_rpc.gateway.loop import Loop, Timer
    from duet_rpc.jsonrpc.messages import Id, Message
    from duet_rpc.log import Log

TOO_MANY = Error.of(REQUEST_FAILED, "the client has too many requests to answer")
IN_FLIGHT = Error.of(INVALID_REQUEST, "a request with this id is in flight")
NOT_ANSWERED = Error.of(REQUEST_FAILED, "the client did not reply in time")
INVALID_REPLY = Error.of(INTERNAL_ERROR, "the client sent an invalid reply")


class BackendRequest:
    """One request of a backend, or one that the router makes for it."""

    __slots__ = (
        "backend", "call", "client_id", "deadline", "id", "is_own", "method", "receive", "token",
    )  # fmt: skip

    def __init__(self, backend: Backend, method: str, seconds: float) -> None:
        self.backend = backend
        self.method = method  # as the client sees it
        self.id: Id = None
        self.is_own = False  # the router's, which gives it no id
        self.call: int | None = None  # the client's request that it is made for
        self.client_id: Id = None  # the id that the client sees
        self.receive: Callable[[Success | Failure], None] = lambda _reply: None
        self.deadline = monotonic() + seconds if seconds else inf
        self.token: str | None = None  # as the client sees it

    def reply(self, reply: Success | Failure) -> None:
        """Send the backend the reply to its request, or whoever has made it."""
        if self.is_own:
            self.receive(reply)
        elif isinstance(reply, Success):
            self.backend.reply(Success(self.id, reply.result))
        else:
            self.backend.reply(Failure(self.id, reply.error))


class BackendRequests:
    """The backends' requests that the client has not replied to."""

    def __init__(
        self, loop: Loop, log: Log, send: Callable[[Message], None], dialect: Dialect
    ) -> None:
        self._loop = loop
        self._log = log
        self._send = send  # to the client,
        self._dialect = dialect  # which speaks so of cancel
        self._pending: Outgoing[BackendRequest] = Outgoing()
        self._received: defaultdict[str, Incoming[BackendRequest]] = defaultdict(Incoming)
        self._tokens: dict[str, tuple[str, Backend]] = {}  # the backend's token as text
        self._timer: Timer | None = None

    def pending_count(self) -> int:
        """Return how many there are."""
        return len(self._pending)

    def forward(
        self, backend: Backend, request: Request, method: str, seconds: float | None = None
    ) -> None:
        """Send a backend's request on to the client, under the name that it has there."""
        entry = BackendRequest(
            backend, method, backend.settings.timeout if seconds is None else seconds
        )
        entry.id = request.id
        received = self._received[backend.name]
        if len(self._pending) >= PENDING_MAX or not received.has_room(request.id):
            backend.reply(Failure(request.id, TOO_MANY))
            return
        if not received.add(request.id, entry):
            backend.reply(Failure(request.id, IN_FLIGHT))
            return
        entry.client_id = self._pending.add(entry)
        backend.pending.handle_question(request.id)
        params = params_of(request)
        if params is not None:
            params = self._exchange_token(entry, params)
        self._set_timer(entry.deadline)
        self._send(Request(entry.method, params, entry.client_id))

    def ask(
        self,
        backend: Backend,
        method: str,
        params: RawJson | None,
        receive: Callable[[Success | Failure], None],
        call: int,
        seconds: float,
    ) -> None:
        """Ask the client something for a backend, which needs it for one of the client's calls."""
        entry = BackendRequest(backend, method, seconds)
        entry.is_own, entry.receive, entry.call = True, receive, call
        if len(self._pending) >= PENDING_MAX:
            receive(Failure(None, TOO_MANY))
            return
        entry.client_id = self._pending.add(entry)
        self._set_timer(entry.deadline)
        self._send(Request(method, params, entry.client_id))

    def cancel_for(self, is_in_flight: Callable[[int], bool]) -> None:
        """Cancel, at the client, what it was asked for calls that it has cancelled."""
        for entry in self._pending:
            if entry.call is not None and not is_in_flight(entry.call):
                self._forget(entry)
                self._send_cancel(entry)

    def _exchange_token(self, entry: BackendRequest, params: RawJson) -> RawJson:
        if type(value_at(params, *META)) not in (str, int, float):
            return params
        theirs = member(member(params.text, META[0]) or "{}", META[1]) or "null"
        entry.token = f"{entry.backend.name}-{entry.client_id}"
        self._tokens[entry.token] = (theirs, entry.backend)
        return raw(replace(params.text, META, f'"{entry.token}"'))

    def _forget(self, entry: BackendRequest) -> None:
        self._pending.pop(entry.client_id)
        if not entry.is_own and self._received[entry.backend.name].pop(entry.id) is not None:
            entry.backend.pending.handle_answer(entry.id)
        if entry.token is not None:
            self._tokens.pop(entry.token, None)

    def find(self, client_id: object) -> tuple[Backend, Id] | None:
        """Return who has asked a request that the client has not replied to, and its own id."""
        entry = self._pending.get(client_id) if isinstance(client_id, (str, int)) else None
        return None if entry is None else (entry.backend, entry.id)

    # Replies.

    def handle_reply(self, message: Success | Failure) -> None:
        """Send the client's reply on to the backend that asked."""
        entry = self._pending.pop(message.id)
        if entry is None:
            self._log.warn("dropped a reply to no request of ours", id=write_id(message.id))
            return
        self._forget(entry)
        entry.reply(message)

    def fail(self, id: Id) -> bool:
        """Fail the request that an invalid reply is for; return False where there is none."""
        entry = self._pending.pop(id)
        if entry is None:
            return False
        self._forget(entry)
        entry.reply(Failure(None, INVALID_REPLY))
        return True

    def _handle_timeouts(self) -> None:
        self._timer = None
        now = monotonic()
        for entry in self._pending:
            if entry.deadline <= now:
                self._forget(entry)
                self._log.warn(NOT_ANSWERED.message, entry.method, write_id(entry.client_id))
                entry.reply(Failure(None, NOT_ANSWERED))
            else:
                self._set_timer(entry.deadline)

    def _set_timer(self, when: float) -> None:
        if when != inf and (self._timer is None or when < self._timer.when):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(when - monotonic(), self._handle_timeouts)

    # Cancel and progress.

    def cancel(self, backend: Backend, params: RawJson) -> None:
        """Cancel, at the client, a request that a backend has cancelled."""
        known, id = id_in(params, backend.dialect.cancel_key)
        entry = self._received[backend.name].get(id) if known else None
        if entry is None:
            return
        self._forget(entry)
        if backend.dialect is not MCP and backend.settings.kind != "worker":  # no reply follows
            backend.reply(Failure(id, Error.of(REQUEST_CANCELLED)))
        self._send_cancel(entry)

    def abandon(self, backend: Backend, id: Id) -> None:
        """Forget a request of a backend."""
        entry = self._received[backend.name].get(id)
        if entry is not None:
            self._forget(entry)

    def cancel_all(self, backend: Backend) -> None:
        """Cancel, at the client, all requests of a backend that is gone."""
        for entry in self._pending:
            # To send one may be the end of another: the client may turn out to be gone.
            if entry.backend is backend and self._pending.pop(entry.client_id) is not None:
                self._forget(entry)
                self._send_cancel(entry)

    def _send_cancel(self, entry: BackendRequest) -> None:
        self._send(Notification(self._dialect.cancel, {self._dialect.cancel_key: entry.client_id}))

    def handle_progress(self, notification: Notification, key: str) -> bool:
        """Send the client's progress on to a backend; return False where none asked for it."""
        params = params_of(notification)
        token = value_at(params, key)
        found = self._tokens.get(token) if isinstance(token, str) else None
        if found is None or params is None:
            return False
        theirs, backend = found
        value = (MCP if key == MCP.token_key else PLAIN).read_progress(params.text)
        written = backend.dialect.write_progress(theirs, value)
        return backend.notify(backend.dialect.progress, written) is None
