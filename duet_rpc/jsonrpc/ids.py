"""Whose request is it: ids of the one who asked, and ids that the one who is asked sees.

An original id is the JSON text that it came as, so that `1`, `"1"` and `1.0` are three
ids; as keys of a dict the values themselves would be one or two. Each step is a single
operation on a dict, so that threads may share a remapper without a lock.
"""

from __future__ import annotations

from itertools import count


class InFlight(Exception):
    """The asker has not had its answer to an earlier request of this id."""


LONGEST = 18
"""Digits of an id of ours. Converting one of many thousands is refused, or takes its time."""


def read_own(id: str | None) -> int:
    """Read an id that may be one of ours; 0, which none is, where it can't be."""
    return int(id) if id is not None and id.isdigit() and len(id) <= LONGEST else 0


class Remapper:
    """The requests in flight in one direction."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._pending: dict[int, tuple[str, str, str | None]] = {}
        self._taken: dict[tuple[str | None, str], int] = {}

    def fresh(self) -> int:
        """Return an id for a request of our own."""
        return next(self._numbers)

    def remap(self, original: str, backend: str, asker: str | None = None) -> int:
        """Take a request in; return its id, unique and from 1 up.

        `asker` tells apart those who choose their ids without knowing of each other.
        """
        id = next(self._numbers)
        if self._taken.setdefault((asker, original), id) != id:
            raise InFlight(original)
        self._pending[id] = (original, backend, asker)
        return id

    def restore(self, id: int) -> tuple[str, str]:
        """Let a request go: its original id and its backend, once; then KeyError."""
        original, backend, asker = self._pending.pop(id)
        del self._taken[asker, original]
        return original, backend

    def find(self, original: str, asker: str | None = None) -> int | None:
        """Return the id of a request in flight."""
        return self._taken.get((asker, original))

    @property
    def pending_count(self) -> int:
        """How many requests are in flight."""
        return len(self._pending)
