"""Requests of the client: from the id that it chose to the one reply that each gets.

Every request ends in a reply, a cancel, a timeout or the exit of its backend. The requests
of the backends are in `backend_requests.py`.
"""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from duet_rpc.gateway.pending import Call
from duet_rpc.gateway.wire import id_in, params_of, raw, value_at
from duet_rpc.jsonrpc.errors import INVALID_REQUEST, REQUEST_CANCELLED, REQUEST_FAILED, Error
from duet_rpc.jsonrpc.ids import IdRemapper
from duet_rpc.jsonrpc.jsontext import member, replace, write_id
from duet_rpc.jsonrpc.limits import PENDING_MAX
from duet_rpc.jsonrpc.messages import Failure, Notification, Request, Success
from duet_rpc.jsonrpc.values import RawJson
from duet_rpc.log import DEBUG
from duet_rpc.peer import Incoming

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.dialects import Dialect
    from duet_rpc.gateway.pending import Outcome
    from duet_rpc.jsonrpc.messages import Id, Message
    from duet_rpc.log import Log

GATEWAY = "gateway"  # stands for a backend where the gateway itself replies

CANCELLED = Error.of(REQUEST_CANCELLED)
TOO_MANY = Error.of(
    REQUEST_FAILED, "too many requests for lists are waiting", {"reason": "queue-full"}
)
IDS_TOO_LONG = Error.of(
    REQUEST_FAILED, "the ids of the requests in flight are too long", {"reason": "queue-full"}
)
IN_FLIGHT = Error.of(INVALID_REQUEST, "a request with this id is in flight")


class ClientRequest:
    """One request without a reply."""

    __slots__ = ("backend_id", "id", "method", "original", "started")

    def __init__(self, id: int, original: Id, method: str) -> None:
        self.id = id  # that it has in the gateway
        self.original = original  # that the client has chosen
        self.backend_id = id  # and at its backend, which is the same unless it is sent again
        self.method = method
        self.started = monotonic()


class ClientRequests:
    """The client's requests without a reply."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        log: Log,
        send: Callable[[Message], None],
        dialect: Dialect,
        replies_to_cancelled: bool,
    ) -> None:
        self._backends = backends
        self._log = log
        self._send = send  # to the client,
        self._dialect = dialect  # which speaks so of progress
        self._replies_to_cancelled = replies_to_cancelled
        self._ids = IdRemapper()
        self._in_flight: Incoming[ClientRequest] = Incoming()
        self._by_id: dict[int, ClientRequest] = {}  # the same, by the ids that they have here
        # Those that the gateway itself replies to later, and what to do if one is cancelled.
        self._own: dict[int, Callable[[], object]] = {}
        self.fresh_id = self._ids.fresh

    def pending_count(self) -> int:
        """Return how many there are."""
        return self._ids.pending_count()

    # Beginning.

    def forward(
        self,
        backend: Backend,
        request: Request,
        method: str,
        params: RawJson | None,
        receive: Callable[[int, Outcome], None] | None = None,
        carrier: object = None,
    ) -> int | None:
        """Send a request on to a backend; return its id, or None where it was refused.

        What comes back goes to `receive`, or is the reply.
        """
        if self.refuse_duplicate(request):
            return None
        refusal = backend.refusal()
        if refusal is None and not self._in_flight.has_room(request.id):
            refusal = IDS_TOO_LONG
        if refusal is not None:
            self.refuse(request, refusal)
            return None
        id = self._begin(request, backend.name)
        call = Call(method, partial(receive or self.finish, id), carrier)
        self._send_to(backend, id, call, params)
        return id

    def _send_to(self, backend: Backend, id: int, call: Call, params: RawJson | None) -> None:
        if params is not None:
            params = self._exchange_tokens(backend, id, call, params)
        backend.request(id, call, params)

    def send_again(
        self,
        id: int,
        backend: Backend,
        method: str,
        params: RawJson,
        receive: Callable[[int, Outcome], None],
        carrier: object,
    ) -> None:
        """Send a request to its backend once more, with other params and under another id."""
        request = self._by_id[id]
        request.backend_id = self.fresh_id()
        call = Call(method, partial(receive, id), carrier)
        self._send_to(backend, request.backend_id, call, params)

    def attach(self, request: Request, backend: Backend, backend_id: int) -> int | None:
        """Let a request wait for what was sent before; return its id, None where it is refused."""
        if self.refuse_duplicate(request):
            return None
        id = self._begin(request, backend.name)
        self._by_id[id].backend_id = backend_id
        return id

    def original_id(self, id: int) -> str | None:
        """Return the id that the client has chosen for a request without a reply, as text."""
        request = self._by_id.get(id)
        return None if request is None else write_id(request.original)

    def is_in_flight(self, id: int) -> bool:
        """Return whether the client still waits for the reply to a request."""
        return id in self._by_id

    def begin_own(self, request: Request, on_cancel: Callable[[], object] = bool) -> int | None:
        """Begin a request that the gateway replies to later; None where it was refused."""
        if self.refuse_duplicate(request):
            return None
        if len(self._own) >= PENDING_MAX or not self._in_flight.has_room(request.id):
            self.refuse(request, TOO_MANY)
            return None
        id = self._begin(request, GATEWAY)
        self._own[id] = on_cancel
        return id

    def _begin(self, request: Request, backend: str) -> int:
        id = self._ids.remap(request.id, backend)
        self._by_id[id] = entry = ClientRequest(id, request.id, request.method)
        self._in_flight.add(request.id, entry)
        return id

    def refuse_duplicate(self, request: Request) -> bool:
        """Refuse a request whose id is in flight; return whether it was."""
        if self._in_flight.get(request.id) is None:
            return False
        self.refuse(request, IN_FLIGHT)
        return True

    def refuse(self, request: Request, error: Error) -> None:
        """Reply to a request with an error of our own."""
        if self._log.logs_refusals:
            self._log.warn(error.message, request.method, write_id(request.id))
        self._send(Failure(request.id, error))

    # Progress tokens.

    def _exchange_tokens(self, backend: Backend, id: int, call: Call, params: RawJson) -> RawJson:
        """Return the params with tokens of our own in the place of the client's."""
        value, text = params.value, params.text
        if not isinstance(value, dict) or backend.dialect.token_members.isdisjoint(value):
            return params
        found: dict[str, tuple[str, int]] = {}
        for path in backend.dialect.token_paths:
            if type(value_at(params, *path)) not in (str, int, float):
                continue
            theirs = text
            for name in path:
                theirs = member(theirs, name) or "null"
            token = f"duet-rpc-{id}-{len(found)}"
            text = replace(text, path, f'"{token}"')
            found[token] = (theirs, id)
        if not found:
            return params
        call.tokens = tuple(found)
        backend.pending.tokens.update(found)
        return raw(text)

    def handle_progress(self, backend: Backend, params: RawJson) -> bool:
        """Send progress on under the client's token; return False where the token is another."""
        dialect = backend.dialect
        token = value_at(params, dialect.token_key)
        if not isinstance(token, str):
            return False
        found = backend.pending.tokens.get(token)
        if found is None:
            # One of ours whose request has ended; or one that the backend made itself.
            return token.startswith("duet-rpc-")
        theirs = found[0]
        written = self._dialect.write_progress(theirs, dialect.read_progress(params.text))
        self._send(Notification(self._dialect.progress, written))
        return True

    # Ending.

    def finish(self, id: int, outcome: Outcome) -> None:
        """Send the client the reply to a request."""
        original, request = self._release(id)
        if self._log.level <= DEBUG:
            took = (monotonic() - request.started) * 1000
            self._log.debug(f"answered in {took:.1f} ms", request.method, write_id(original))
        if isinstance(outcome, Success):
            self._send(Success(original, outcome.result))
        else:
            self._send(Failure(original, outcome.error))

    def finish_own(self, id: int, result: RawJson) -> None:
        """Reply to a request that `begin_own` has begun."""
        self.finish(id, Success(None, result))

    def end_own(self, id: int) -> bool:
        """Forget a request that `begin_own` has begun; return False where it has ended."""
        is_pending = self.is_own(id)
        if is_pending:
            self._release(id)
        return is_pending

    def is_own(self, id: int) -> bool:
        """Return True while the client waits for a reply of the gateway's own."""
        return id in self._own

    def _release(self, id: int) -> tuple[Id, ClientRequest]:
        """Forget a request; return it, and the id that the client chose."""
        self._own.pop(id, None)
        self._by_id.pop(id, None)
        found = self._ids.restore(id)
        request = None if found is None else self._in_flight.pop(found[0])
        if found is None or request is None:
            raise KeyError(id)
        return found[0], request

    def cancel(self, notification: Notification, key: str) -> None:
        """Cancel the request that a notification names."""
        known, id = id_in(params_of(notification), key)
        if not known:
            self._log.warn("dropped a cancel that names no request", notification.method)
        elif self.abandon(id):  # else it has had its reply
            self._log.info(CANCELLED.message, id=write_id(id))
            if self._replies_to_cancelled:
                self._send(Failure(id, CANCELLED))

    def abandon(self, original: Id) -> bool:
        """Forget a request, here and at its backend; return False where there is none."""
        request = self._in_flight.pop(original)
        if request is None:
            return False
        self._by_id.pop(request.id, None)
        found = self._ids.restore(request.id)
        self._own.pop(request.id, bool)()
        backend = None if found is None else self._backends.get(found[1])
        if backend is not None:
            backend.cancel(request.backend_id)
        return True

    def refuse_own(self, error: Error) -> None:
        """Fail all requests that the gateway has not replied to."""
        for id in list(self._own):
            self.finish(id, Failure(None, error))
