"""The requests that a backend owes a reply to, and the frames that wait for its handshake."""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Union

from duet_rpc.gateway.loop import Deadline
from duet_rpc.jsonrpc.messages import Failure, Success

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.gateway.loop import Loop
    from duet_rpc.jsonrpc.messages import Id

Outcome = Union[Success, Failure]
"""How a request ended; the id in it is not that of the client."""


class Call:
    """A request that was sent to a backend, or waits to be sent."""

    __slots__ = ("deadline", "method", "receive", "tokens")

    def __init__(self, method: str, receive: Callable[[Outcome], None]) -> None:
        self.method = method
        self.receive = receive  # called once, with its outcome
        self.tokens: tuple[str, ...] = ()  # for progress, as the backend sees them
        self.deadline = inf


class PendingRequests:
    """Requests without a reply, the one with the nearest deadline first."""

    def __init__(self, loop: Loop, timeout: float, on_timeout: Callable[[], object]) -> None:
        self._timeout = timeout
        self._calls: dict[Id, Call] = {}
        self._deadline = Deadline(loop, on_timeout)
        self.tokens: dict[str, tuple[str, int]] = {}  # the client's token as text, the request

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, id: Id) -> bool:
        return id in self._calls

    def add(self, id: int, call: Call, timed: bool = True) -> None:
        """Add a request; its time begins now, unless something else limits it."""
        self._calls[id] = call
        if timed:
            self._set_deadline(call)

    def _set_deadline(self, call: Call) -> None:
        call.deadline = monotonic() + self._timeout
        if self._deadline.when is None:
            self._deadline.set(call.deadline)

    def pop(self, id: Id) -> Call | None:
        """Remove a request and its tokens, and return it."""
        call = self._calls.pop(id, None)
        if call is not None:
            for token in call.tokens:
                del self.tokens[token]
        return call

    def extend(self, id: int) -> None:
        """Let a request's time begin again: there was progress."""
        call = self._calls.pop(id)
        self._calls[id] = call  # now the one with the farthest deadline
        self._set_deadline(call)

    def only(self) -> Id:
        """Return the id of the request where there is exactly one, else None."""
        return next(iter(self._calls)) if len(self._calls) == 1 else None

    def pop_expired(self) -> tuple[int, Call] | None:
        """Remove a request whose time is over and return it; None sets the next deadline."""
        for id, call in self._calls.items():
            if call.deadline == inf:
                continue
            if call.deadline > monotonic():
                self._deadline.set(call.deadline)
                return None
            self.pop(id)
            assert isinstance(id, int)  # noqa: S101 - for the type checker
            return id, call
        return None

    def pop_all(self) -> list[Call]:
        """Remove all requests and return them."""
        calls, self._calls = self._calls, {}
        self.tokens.clear()
        self._deadline.when = None
        return list(calls.values())


class Backlog:
    """Frames that wait until the backend is ready, in order."""

    __slots__ = ("_frames", "size")

    def __init__(self) -> None:
        self._frames: dict[int, bytes] = {}
        self.size = 0  # bytes

    def put(self, id: int, frame: bytes) -> None:
        """Add a frame, under an id by which it can be removed."""
        self._frames[id] = frame
        self.size += len(frame)

    def remove(self, id: int) -> bool:
        """Remove a frame; return False where it does not wait here."""
        frame = self._frames.pop(id, None)
        if frame is None:
            return False
        self.size -= len(frame)
        return True

    def pop_all(self) -> list[bytes]:
        """Remove all frames and return them."""
        frames, self._frames = self._frames, {}
        self.size = 0
        return list(frames.values())
