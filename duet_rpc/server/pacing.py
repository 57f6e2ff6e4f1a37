"""Reports in quick succession, sent together: progress, and the pieces of a stream.

A method may report 20,000 times a second; a caller gets at most 50 messages. The first report is
sent at once. What comes within the next 20 ms waits, is put together (of progress only the newest
counts, pieces of a stream are joined), and is sent when that time is over, even if the method
does nothing else until then: so a thread sends it. It is started when it is needed first.

What waits is bounded: from some size on the method sends it itself, and then waits, as ever, for a
client that does not read.
"""

from __future__ import annotations

import threading
from _thread import start_new_thread  # `Thread.start` waits for code that a method may replace
from queue import SimpleQueue
from time import monotonic, sleep  # by their names: a method may replace what a module has
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

INTERVAL = 0.02
"""Seconds between two messages of one stream at least."""

WAITING_MAX = 64 * 1024
"""Characters that wait before the method itself sends them."""


class Pacer:
    """The thread that sends what has waited long enough."""

    def __init__(self, hold: Callable[[], AbstractContextManager[None]]) -> None:
        self.hold = hold  # a cancel must not cut a message in half
        self._due: SimpleQueue[Paced] = SimpleQueue()
        self._is_running = False

    def schedule(self, paced: Paced) -> None:
        """Have what waits sent when it is time."""
        self._due.put(paced)
        if not self._is_running:
            self._is_running = True
            start_new_thread(self._run, ())

    def _run(self) -> None:
        while True:
            paced = self._due.get()
            try:
                sleep(max(0.0, paced.next - monotonic()))
                paced.flush_if_due()
            except OSError:  # the client is gone: the loop finds out
                continue


class Paced:
    """One stream of reports."""

    def __init__(
        self, pacer: Pacer, send: Callable[[list[str]], None], only_newest: bool = False
    ) -> None:
        self._pacer = pacer
        self._send = send
        self._only_newest = only_newest
        self._lock = threading.RLock()  # held while sending, so that the order stays
        self._waiting: list[str] = []
        self._size = 0
        self.next = 0.0  # when the next message may be sent

    def add(self, report: str) -> None:
        """Send a report, now or with the next ones."""
        with self._pacer.hold(), self._lock:
            if self._only_newest:
                self._waiting.clear()
            is_first = not self._waiting and not self._size
            self._waiting.append(report)
            self._size += len(report)
            if monotonic() >= self.next or self._is_large():
                self._flush()
            elif is_first:
                self._pacer.schedule(self)

    def _is_large(self) -> bool:
        return self._size > WAITING_MAX and not self._only_newest

    def flush(self) -> None:
        """Send what waits."""
        with self._pacer.hold(), self._lock:
            self._flush()

    def flush_if_due(self) -> None:
        """Send what waits, unless the method itself has sent something since this was scheduled.

        What has come after that was scheduled too, for later.
        """
        with self._pacer.hold(), self._lock:
            if monotonic() >= self.next:
                self._flush()

    def _flush(self) -> None:
        if self._waiting:
            waiting, self._waiting, self._size = self._waiting, [], 0
            try:
                self._send(waiting)
            finally:
                self.next = monotonic() + INTERVAL
