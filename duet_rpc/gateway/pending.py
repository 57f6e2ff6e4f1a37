"""The requests that a backend owes a reply to, and the messages that wait for its handshake."""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Union

from duet_rpc.gateway.loop import Deadline
from duet_rpc.jsonrpc.messages import Failure, Success
from duet_rpc.jsonrpc.values import RawJson

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.gateway.loop import Loop
    from duet_rpc.jsonrpc.messages import Id, Notification, Request

Outcome = Union[Success, Failure]
"""How a request ended; the id in it is not that of the client."""


def is_made_here(failure: Failure) -> bool:
    """Return whether the gateway has made a failure, because the backend sent no valid reply."""
    data = failure.error.data
    return isinstance(data, dict) and "backend" in data


class Call:
    """A request that was sent to a backend, or waits to be sent."""

    __slots__ = ("began", "carrier", "deadline", "method", "receive", "tokens")

    def __init__(
        self, method: str, receive: Callable[[Outcome], None], carrier: object = None
    ) -> None:
        self.method = method
        self.carrier = carrier  # an `McpCall`, in which the client can be asked something
        self.began = monotonic()
        self.receive = receive  # called once, with its outcome
        self.tokens: tuple[str, ...] = ()  # for progress, as the backend sees them
        self.deadline = inf


class PendingRequests:
    """Requests without a reply, the one with the nearest deadline first."""

    def __init__(self, loop: Loop, timeout: float, on_timeout: Callable[[], object]) -> None:
        self._timeout = timeout  # seconds; 0 is none
        self._calls: dict[Id, Call] = {}  # the ids are numbers
        self._last_activity = 0.0  # when the backend last sent anything
        self._deadline = Deadline(loop, on_timeout)
        self.tokens: dict[str, tuple[str, int]] = {}  # the client's token as text, the request
        self.questions: set[Id] = set()  # of the backend to the client, without an answer

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, id: Id) -> bool:
        return id in self._calls

    def add(self, id: int, call: Call, timed: bool = True) -> None:
        """Add a request; its time begins now, unless something else limits it."""
        self._calls[id] = call
        if timed and self._timeout:
            call.deadline = monotonic() + self._timeout
            if self._deadline.when is None:
                self._deadline.set(call.deadline)

    def get(self, id: Id) -> Call | None:
        """Return the request with this id."""
        return self._calls.get(id)

    def items(self) -> list[tuple[int, Call]]:
        """Return the requests and their ids, the oldest first."""
        return [(id, call) for id, call in self._calls.items() if isinstance(id, int)]

    def note_activity(self) -> None:
        """Let the time of all requests begin again: the backend has sent something."""
        self._last_activity = monotonic()

    def handle_question(self, id: Id) -> None:
        """Let no time pass while the client is asked something."""
        self.questions.add(id)
        self.note_activity()

    def handle_answer(self, id: Id) -> None:
        """Let time pass again, unless something else was asked."""
        if id in self.questions:
            self.questions.remove(id)
            self.note_activity()

    def pop(self, id: Id) -> Call | None:
        """Remove a request and its tokens, and return it."""
        call = self._calls.pop(id, None)
        if call is not None:
            for token in call.tokens:
                del self.tokens[token]
        return call

    def only(self) -> Id:
        """Return the id of the request where there is exactly one, else None."""
        return next(iter(self._calls)) if len(self._calls) == 1 else None

    def pop_expired(self) -> tuple[int, Call] | None:
        """Remove a request whose time is over and return it; None sets the next deadline."""
        now = monotonic()
        for id, call in self._calls.items():
            if call.deadline == inf:
                continue
            since = now if self.questions else self._last_activity
            deadline = max(call.deadline, since + self._timeout)
            if deadline > now:
                self._deadline.set(deadline)
                return None
            self.pop(id)
            assert isinstance(id, int)  # noqa: S101 - for the type checker
            return id, call
        return None

    def pop_all(self) -> list[Call]:
        """Remove all requests and return them."""
        return self.pop_where(lambda _id: True)

    def pop_where(self, is_meant: Callable[[Id], bool]) -> list[Call]:
        """Remove the requests whose ids are meant, and return them."""
        found = [self.pop(id) for id in [*self._calls] if is_meant(id)]
        if not self._calls:
            self._deadline.when = None
        return [call for call in found if call is not None]


class Backlog:
    """Messages that wait until the backend is ready, in order."""

    __slots__ = ("_messages", "size")

    def __init__(self) -> None:
        self._messages: dict[int, Request | Notification] = {}
        self.size = 0  # bytes, roughly

    def put(self, id: int, message: Request | Notification) -> None:
        """Add a message, under an id by which it can be removed."""
        self._messages[id] = message
        self.size += _size_of(message)

    def __contains__(self, id: object) -> bool:
        return id in self._messages

    def __len__(self) -> int:
        return len(self._messages)

    def pop_first(self) -> tuple[int, Request | Notification] | None:
        """Remove the message that has waited longest; return it with its id."""
        for id, message in self._messages.items():
            self.remove(id)
            return id, message
        return None

    def remove(self, id: int) -> bool:
        """Remove a message; return False where it does not wait here."""
        message = self._messages.pop(id, None)
        if message is None:
            return False
        self.size -= _size_of(message)
        return True

    def pop_all(self) -> list[Request | Notification]:
        """Remove all messages and return them."""
        messages, self._messages = self._messages, {}
        self.size = 0
        return list(messages.values())


ENVELOPE_SIZE = 64  # bytes of a frame beside what it carries, roughly


def _size_of(message: Request | Notification) -> int:
    params = message.params
    return ENVELOPE_SIZE + (len(params.text) if isinstance(params, RawJson) else 0)
