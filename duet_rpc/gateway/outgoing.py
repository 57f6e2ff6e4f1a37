"""What the client asks: its requests in flight, from the first id to the one end of each.

Every one ends in a reply, a cancel, a timeout or the death of its backend. `incoming.py`
keeps the books of the other direction.
"""

from __future__ import annotations

from duet_rpc.gateway.backend import READY, STARTING, STOPPED, Call
from duet_rpc.jsonrpc.envelope import (
    Envelope,
    encode_error,
    encode_request,
    encode_result,
    error_of,
    id_in,
    member,
    replace,
)
from duet_rpc.jsonrpc.errors import (
    INVALID_REQUEST,
    REQUEST_CANCELLED,
    REQUEST_FAILED,
    TITLES,
)
from duet_rpc.jsonrpc.ids import InFlight, Remapper
from duet_rpc.jsonrpc.messages import NULL, Failure, encode_failure
from duet_rpc.log import DEBUG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from duet_rpc.gateway.backend import Backend, Outcome
    from duet_rpc.gateway.dialects import Dialect
    from duet_rpc.log import Log

OURS = "gateway"  # stands for a backend where the gateway itself owes the answer


class Outgoing:
    """The requests that the client has had no answer to."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        log: Log,
        say: Callable[[bytes], None],
        dialect: Dialect,
        answers_cancelled: bool,
    ) -> None:
        self._backends = backends
        self._log = log
        self._say = say  # to the client,
        self._dialect = dialect  # which speaks so of progress
        self._answers_cancelled = answers_cancelled  # what was taken back gets a reply all the same
        self._ids = Remapper()
        self._own: dict[int, None] = {}  # those that the gateway answers later
        self.fresh_id = self._ids.fresh

    @property
    def pending_count(self) -> int:
        """How many there are."""
        return self._ids.pending_count

    # Taking requests in.

    def forward(
        self, backend: Backend, message: Envelope, method: str, params: str | None
    ) -> int | None:
        """Hand a request on; return the id that it has there."""
        original = message.id
        assert original is not None  # noqa: S101 - for the type checker
        id = self.take_in(original, message.method, backend)
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

    def take_in(self, original: str, method: str | None, backend: Backend) -> int | None:
        """Give a request to a backend its id; None where it was refused."""
        id = self._remap(original, method, backend.name)
        if id is not None:
            refusal = backend.refuse()
            if refusal is not None:
                self.release(id)
                self.refuse(original, method, REQUEST_FAILED, refusal, why(backend))
                return None
        return id

    def take_own(self, original: str, method: str) -> int | None:
        """Give a request that the gateway answers later its id; None where that one is taken."""
        id = self._remap(original, method, OURS)
        if id is not None:
            self._own[id] = None
        return id

    def _remap(self, original: str, method: str | None, owner: str) -> int | None:
        try:
            return self._ids.remap(original, owner)
        except InFlight:
            self._refuse_second(original, method)
            return None

    def is_second(self, message: Envelope) -> bool:
        """Refuse a request that is to be answered at once, if its id is in flight."""
        if message.id is None or self._ids.find(message.id) is None:
            return False
        self._refuse_second(message.id, message.method)
        return True

    def _refuse_second(self, original: str, method: str | None) -> None:
        self.refuse(original, method, INVALID_REQUEST, "a request with this id is in flight")

    def refuse(
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
        found: dict[str, tuple[str, int]] = {}
        for path in backend.dialect.token_paths:
            value = message.value("params")
            for name in path:
                value = value.get(name) if isinstance(value, dict) else None
            if type(value) not in (str, int, float):
                continue
            raw = params
            for name in path:
                raw = member(raw, name) or NULL
            token = f'"duet-rpc-{id}-{len(found)}"'
            params = replace(params, path, token)
            found[token] = (raw, id)
        call.tokens = tuple(found)
        backend.tokens.update(found)
        return params

    def progress(self, backend: Backend, params: str) -> bool:
        """Hand progress on under the client's token; False where it is the backend's own."""
        dialect = backend.dialect
        token = member(params, dialect.token_key) or ""
        found = backend.tokens.get(token)
        if found is None:
            # One of ours whose request is over; or one that the backend made itself.
            return token.startswith('"duet-rpc-')
        original, id = found
        backend.prolong(id)
        written = self._dialect.write_progress(original, dialect.read_progress(params))
        self._say(encode_request(self._dialect.progress, written).encode())
        return True

    # The end of each.

    def settle(self, backend: Backend, id: int, outcome: Outcome) -> None:
        """Hand the end of a request to the client."""
        original = self.release(id)
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
            failure = backend.bad_reply("is none")
            failure.id = original
            self._say(encode_failure(failure))

    def release(self, id: int) -> str:
        """Let a request go; return its original id."""
        return self._ids.restore(id)[0]

    def cancel(self, message: Envelope, key: str) -> None:
        """Take back the request that a notification names."""
        params = message.params
        wanted = id_in(params, key) if params is not None and params[0] == "{" else None
        if wanted is None:
            self._log.warn("a cancel that names no request was dropped", message.method)
            return
        if not self.abandon(wanted):
            return  # what it names has been answered
        self._log.info(TITLES[REQUEST_CANCELLED], id=wanted)
        if self._answers_cancelled:
            failure = Failure(wanted, REQUEST_CANCELLED, TITLES[REQUEST_CANCELLED])
            self._say(encode_failure(failure))

    def abandon(self, original: str) -> bool:
        """Leave nothing of a request, at whatever stage it is; False where there is none."""
        id = self._ids.find(original)
        if id is None:
            return False
        if id in self._own:
            self.finish_own(id)
            return True
        backend = self._backends[self._ids.restore(id)[1]]
        if id in backend.pending:
            backend.drop(id)
            backend.give_up(id)
        return True

    def is_own(self, id: int) -> bool:
        """Return True where somebody still waits for an answer of the gateway's own."""
        return id in self._own

    def finish_own(self, id: int) -> str:
        """Let a request go that the gateway answers now; return its original id."""
        del self._own[id]
        return self.release(id)

    def refuse_own(self, text: str) -> None:
        """Answer all that the gateway has not answered."""
        for id in list(self._own):
            self.refuse(self.finish_own(id), None, REQUEST_FAILED, text)


def why(backend: Backend) -> dict[str, object]:
    """Say in an error's data why a backend takes no request."""
    full = backend.state in (READY, STOPPED, STARTING)
    data: dict[str, object] = {
        "backend": backend.name,
        "reason": "queue-full" if full else "unavailable",
        "state": backend.state,
    }
    if backend.tail and not full:
        data["stderr"] = "\n".join(backend.tail)
    return data
