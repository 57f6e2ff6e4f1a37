"""Replies on their way out: in order, several in one system call where they come together."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duet_rpc.jsonrpc.reader import MessageReader
    from duet_rpc.server.stdio import Stdio
    from duet_rpc.server.supervisor import Supervisor

FLUSH_AT = 64 * 1024


class Outbox:
    """Collects replies until there is nothing left to answer, or there are many."""

    def __init__(self, stdio: Stdio, reader: MessageReader, supervisor: Supervisor) -> None:
        self._stdio = stdio
        self.lock = stdio.lock  # for who must know whether something has been sent
        self._reader = reader  # the reply's framing is the request's
        self._supervisor = supervisor
        self._frames: list[bytes] = []
        self._size = 0
        self._batch: list[bytes] | None = None

    def send(self, body: bytes) -> None:
        """Send a reply, with others."""
        if self._batch is not None:
            self._batch.append(body)
            return
        self._frames.append(self._reader.framing.encode(body))
        self._size += len(body)
        if self._size > FLUSH_AT:
            self.flush()

    def send_now(self, body: bytes) -> None:
        """Send a notification at once, from whatever thread."""
        self._stdio.write(self._reader.framing.encode(body), self._supervisor)

    def send_if_possible(self, body: bytes) -> bool:
        """Send a short message unless that would have to wait; return whether it was sent."""
        return self._stdio.write_if_possible(self._reader.framing.encode(body))

    def flush(self) -> None:
        """Write all that was sent."""
        if self._frames:
            data = b"".join(self._frames)
            self._frames.clear()
            self._size = 0
            self._stdio.write(data, self._supervisor)

    @property
    def in_batch(self) -> bool:
        """True while the replies of a batch are collected."""
        return self._batch is not None

    @contextmanager
    def outside_batch(self) -> Iterator[None]:
        """Send replies at once, in the middle of a batch or not."""
        batch, self._batch = self._batch, None
        try:
            yield
        finally:
            self._batch = batch

    def begin_batch(self) -> None:
        """Collect the replies to the messages of a batch."""
        self._batch = []

    def end_batch(self) -> None:
        """Send these replies as one, where there are any."""
        replies, self._batch = self._batch, None
        if replies:
            self.send(b"[" + b",".join(replies) + b"]")
