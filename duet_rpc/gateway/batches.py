"""Arrays of messages from the client: their replies go out together, in one array.

The requests of an array go to different servers, so their replies come at different times
and in any order; the array waits for the last of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

from duet_rpc.jsonrpc.errors import REQUEST_FAILED, Error
from duet_rpc.jsonrpc.limits import BODY_MAX
from duet_rpc.jsonrpc.messages import Failure, Success
from duet_rpc.jsonrpc.values import RawJson

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.jsonrpc.messages import Id, Message

Reply = Union[Success, Failure]

TOO_LARGE = Error.of(REQUEST_FAILED, f"the replies to this batch are larger than {BODY_MAX} bytes")


class Batch:
    """The replies to one array, each in the place of its request."""

    __slots__ = ("places", "size", "waiting")

    def __init__(self) -> None:
        self.places: list[Reply | None] = []
        self.waiting = 1  # replies to come; one for the array that is still being handled
        self.size = 0  # bytes of results, roughly

    def put(self, place: int, reply: Reply) -> None:
        """Put a reply in its place, or an error where there are too many bytes already."""
        if isinstance(reply, Success) and isinstance(reply.result, RawJson):
            self.size += len(reply.result.text)
            if self.size > BODY_MAX:
                reply = Failure(reply.id, TOO_LARGE)
        self.places[place] = reply


class Batches:
    """The arrays whose replies have not all come."""

    def __init__(self, send: Callable[[list[Message]], None]) -> None:
        self._send = send
        self._waiting: dict[Id, tuple[Batch, int]] = {}  # and the place of the reply

    def __contains__(self, id: Id) -> bool:
        return id in self._waiting

    def expect(self, batch: Batch, id: Id) -> None:
        """Put the next reply with this id into a batch."""
        self._waiting[id] = (batch, len(batch.places))
        batch.places.append(None)
        batch.waiting += 1

    def add(self, batch: Batch, reply: Reply) -> None:
        """Add a reply of our own to a batch."""
        batch.places.append(None)
        batch.put(len(batch.places) - 1, reply)

    def take(self, reply: Reply) -> bool:
        """Take a reply that belongs to a batch; return False for any other."""
        found = self._waiting.pop(reply.id, None)
        if found is None:
            return False
        batch, place = found
        batch.put(place, reply)
        self.count_down(batch)
        return True

    def drop(self, id: Id) -> None:
        """Wait no longer for a reply: its request was cancelled."""
        found = self._waiting.pop(id, None)
        if found is not None:
            self.count_down(found[0])

    def count_down(self, batch: Batch) -> None:
        """Note that one reply less is to come; send the array after the last."""
        batch.waiting -= 1
        if not batch.waiting:
            replies: list[Message] = [each for each in batch.places if each is not None]
            if replies:
                self._send(replies)
