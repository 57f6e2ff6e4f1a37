"""Exact id remapping: the ids of those who ask, and the ids that those who are asked see.

Each step is a single operation on a dict, so that threads may share a remapper without a
lock.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duet_rpc.jsonrpc.messages import Id


class IdRemapper:
    """Gives each request an id of its own, and gives the original back once.

    >>> ids = IdRemapper()
    >>> ids.remap("a", "pylsp"), ids.remap("a", "time")
    (1, 2)
    >>> ids.restore(2), ids.restore(2)
    (('a', 'time'), None)
    >>> ids.pending_count()
    1
    """

    __slots__ = ("_numbers", "_pending")

    def __init__(self) -> None:
        self._numbers = count(1)
        self._pending: dict[int, tuple[Id, str]] = {}

    def remap(self, id: Id, backend: str) -> int:
        """Return the id under which a request goes to a backend, unique and from 1 up."""
        fresh = next(self._numbers)
        self._pending[fresh] = (id, backend)
        return fresh

    def fresh(self) -> int:
        """Return an id for a request of one's own; nothing is restored from it."""
        return next(self._numbers)

    def restore(self, gateway_id: int) -> tuple[Id, str] | None:
        """Return the original id and the backend, once; then None."""
        return self._pending.pop(gateway_id, None)

    def pending_count(self) -> int:
        """Return how many requests are in flight."""
        return len(self._pending)
