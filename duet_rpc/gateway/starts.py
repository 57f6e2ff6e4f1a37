"""Starts processes one at a time.

To start one takes some milliseconds, in which nothing else is done; hundreds of backends
may be wanted at once. So the loop has a turn between any two starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.gateway.loop import Loop


class StartQueue:
    """Functions that each start a process, called in order, one in each turn of the loop."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiting: dict[Callable[[], object], None] = {}

    def add(self, start: Callable[[], object]) -> None:
        """Call a function when it is its turn; one that waits already is not added again."""
        if not self._waiting:
            self._loop.call_soon(self._run_next)
        self._waiting[start] = None

    def remove(self, start: Callable[[], object]) -> None:
        """Do not call a function, where it waits."""
        self._waiting.pop(start, None)

    def _run_next(self) -> None:
        start = next(iter(self._waiting), None)
        if start is None:
            return
        del self._waiting[start]
        start()
        if self._waiting:
            self._loop.call_soon(self._run_next)
