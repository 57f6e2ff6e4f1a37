"""Requests in flight, in both directions.

Whoever speaks JSON-RPC owes replies (`Incoming`) and is owed some (`Outgoing`). The server,
the gateway and the terminal client keep their books with these two tables; ids that differ
in their spelling alone (`1` and `1.0`) are different ids.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar

from duet_rpc.jsonrpc.limits import IDS_MAX
from duet_rpc.jsonrpc.values import ExactNumber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from duet_rpc.jsonrpc.messages import Id

T = TypeVar("T")


def length_of(id: Id) -> int:
    """Return how many characters an id keeps in memory, roughly."""
    if isinstance(id, str):
        return len(id)
    return len(id.text) if isinstance(id, ExactNumber) else 1


class Incoming(Generic[T]):
    """Requests that were received and have had no reply, by the id that the asker chose."""

    __slots__ = ("_pending", "_size")

    def __init__(self) -> None:
        self._pending: dict[Id, T] = {}
        self._size = 0  # characters of ids

    def add(self, id: Id, entry: T) -> bool:
        """Add a request; return False where one with this id is in flight, which is kept."""
        if self._pending.setdefault(id, entry) is not entry:
            return False
        self._size += length_of(id)
        return True

    def has_room(self, id: Id) -> bool:
        """Return False where the ids in flight and this one are too long to be kept."""
        return not self._size or self._size + length_of(id) <= IDS_MAX

    def get(self, id: Id) -> T | None:
        """Return the request with this id."""
        return self._pending.get(id)

    def pop(self, id: Id) -> T | None:
        """Remove the request with this id and return it."""
        entry = self._pending.pop(id, None)
        if entry is not None:
            self._size -= length_of(id)
        return entry

    def __len__(self) -> int:
        return len(self._pending)


class Outgoing(Generic[T]):
    """Requests that were sent and have had no reply, by ids of our own."""

    __slots__ = ("_make_id", "_numbers", "_pending")

    def __init__(self, make_id: Callable[[int], Id] = int) -> None:
        self._make_id = make_id
        self._numbers = count(1)
        self._pending: dict[Id, T] = {}

    def add(self, entry: T) -> Id:
        """Add a request; return its id."""
        id = self._make_id(next(self._numbers))
        self._pending[id] = entry
        return id

    def get(self, id: Id) -> T | None:
        """Return the request with this id."""
        return self._pending.get(id)

    def pop(self, id: Id) -> T | None:
        """Remove the request that a reply is for and return it."""
        return self._pending.pop(id, None)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._pending.values()))

    def __len__(self) -> int:
        return len(self._pending)
