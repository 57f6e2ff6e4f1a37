"""What the backends ask the client: the other direction of the gateway's books.

Backends choose ids and tokens without knowing of each other, so the client sees others,
from a space of their own. Every question has an answer: the client's, or after a while
the gateway's.
"""

from __future__ import annotations

from time import monotonic

from duet_rpc.gateway.dialects import MCP, META, PLAIN
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
    INTERNAL_ERROR,
    INVALID_REQUEST,
    REQUEST_CANCELLED,
    REQUEST_FAILED,
    TITLES,
)
from duet_rpc.jsonrpc.ids import InFlight, Remapper, read_own
from duet_rpc.jsonrpc.limits import PENDING_MAX
from duet_rpc.jsonrpc.messages import NULL, Failure, encode_failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.loop import Loop, Timer
    from duet_rpc.log import Log


class Question:
    """One request of a backend."""

    __slots__ = ("backend", "deadline", "method", "token")

    def __init__(self, backend: Backend, method: str) -> None:
        self.backend = backend
        self.method = method
        self.deadline = monotonic() + backend.settings.timeout
        self.token: str | None = None  # as the client knows it


class Incoming:
    """The questions that the client has not answered."""

    def __init__(self, loop: Loop, log: Log, say: Callable[[str], None]) -> None:
        self._loop = loop
        self._log = log
        self._say = say  # to the client
        self._ids = Remapper()
        self._questions: dict[int, Question] = {}
        self._tokens: dict[str, tuple[str, Backend]] = {}  # the client's: the backend's
        self._timer: Timer | None = None

    @property
    def pending_count(self) -> int:
        """How many there are."""
        return self._ids.pending_count

    def ask(self, backend: Backend, message: Envelope, method: str, id: str) -> None:
        """Hand a backend's request on to the client."""
        if len(self._questions) >= PENDING_MAX:
            backend.answer(_refuse(id, REQUEST_FAILED, ": the client has too much to answer"))
            return
        try:
            ours = self._ids.remap(id, backend.name, backend.name)
        except InFlight:
            text = ": a request with this id is in flight"
            backend.answer(_refuse(id, INVALID_REQUEST, text))
            return
        question = self._questions[ours] = Question(backend, method)
        params = message.params
        if params is not None and _has_token(message.value("params")):
            theirs = member(member(params, META[0]) or "{}", META[1]) or NULL
            token = f'"{backend.name}-{ours}"'
            params = replace(params, META, token)
            question.token = token
            self._tokens[token] = (theirs, backend)
        if self._timer is None or question.deadline < self._timer.when:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.after(backend.settings.timeout, self._expire)
        self._say(encode_request(f"{backend.name}/{method}", params, ours))

    def _finish(self, id: int) -> tuple[str, Question]:
        question = self._questions.pop(id)
        if question.token is not None:
            del self._tokens[question.token]
        return self._ids.restore(id)[0], question

    def answer(self, message: Envelope) -> None:
        """Hand the client's answer on to the backend that asked."""
        id = read_own(message.id)
        if id not in self._questions:
            self._log.warn("a response that nobody asked for was dropped", id=message.id)
            return
        original, question = self._finish(id)
        error, result = error_of(message), message.raw("result")
        if error:
            text = encode_error(original, error)
        elif error is None and result is not None:
            text = encode_result(original, result)
        else:
            text = _refuse(original, INTERNAL_ERROR, ": the client gave an answer that is none")
        question.backend.answer(text)

    def cancel(self, backend: Backend, params: str) -> None:
        """Tell the client that a backend has lost interest."""
        wanted = id_in(params, backend.dialect.cancel_key)
        id = self._ids.find(wanted or "", backend.name)
        if id is None:
            return
        original, _ = self._finish(id)
        if backend.dialect is not MCP:  # there no answer follows
            backend.answer(_refuse(original, REQUEST_CANCELLED))
        self._take_back(id)

    def abandon(self, backend: Backend, original: str) -> None:
        """Leave nothing of a question, at whatever stage it is."""
        id = self._ids.find(original, backend.name)
        if id is not None:
            self._finish(id)

    def drop(self, backend: Backend) -> None:
        """Take back what a backend that is gone had asked."""
        for id, question in list(self._questions.items()):
            # To say one may be the end of another: the client may be gone by then.
            if question.backend is backend and id in self._questions:
                self._finish(id)
                self._take_back(id)

    def _take_back(self, id: int) -> None:
        self._say(encode_request(PLAIN.cancel, f'{{"id":{id}}}'))

    def _expire(self) -> None:
        """Answer for a client that has not."""
        now = monotonic()
        self._timer = None
        for id, question in list(self._questions.items()):
            if question.deadline <= now:
                original, _ = self._finish(id)
                text = "the client did not answer in time"
                self._log.warn(text, f"{question.backend.name}/{question.method}", str(id))
                question.backend.answer(_refuse(original, REQUEST_FAILED, f": {text}"))
        if self._questions:
            nearest = min(question.deadline for question in self._questions.values())
            self._timer = self._loop.after(nearest - now, self._expire)

    def progress(self, message: Envelope, key: str) -> bool:
        """Hand on how far the client is with what a backend asked; False where none did."""
        params = message.params or "[]"
        token = member(params, key) if params[0] == "{" else None
        found = self._tokens.get(token or "")
        if found is None:
            return False
        theirs, backend = found
        value = (MCP if key == MCP.token_key else PLAIN).read_progress(params)
        return backend.notify(
            backend.dialect.progress, backend.dialect.write_progress(theirs, value)
        )


def _refuse(id: str, code: int, text: str = "") -> str:
    """Write an error of our own to a backend."""
    return encode_failure(Failure(id, code, TITLES[code] + text)).decode()


def _has_token(params: object) -> bool:
    meta = params.get(META[0]) if isinstance(params, dict) else None
    return isinstance(meta, dict) and type(meta.get(META[1])) in (str, int, float)
