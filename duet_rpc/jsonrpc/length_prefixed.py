"""Four bytes of length, the body, a newline that is not counted.

Once lost, it goes on at the next zero byte. The prefix of every frame that is not oversized
begins with one, and valid JSON holds none.
"""

from __future__ import annotations

from duet_rpc.jsonrpc.errors import PARSE_ERROR, Fault, oversize
from duet_rpc.jsonrpc.limits import BODY_MAX, PEEK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = ord("\t")  # the lowest byte of a text; as the first of a length it means 150 MB
NEWLINE = ord("\n")


class LengthPrefixedDecoder:
    """Four bytes of length, big-endian; the body; one newline that is not counted."""

    __slots__ = (
        "_at", "_buffer", "_finished", "_from_server", "_lost", "_scan", "_seen", "_skip"
    )  # fmt: skip

    def __init__(self, from_server: bool = False) -> None:
        self._from_server = from_server
        self._buffer = bytearray()
        self._at = 0  # where the unread bytes begin
        self._scan = 0  # no zero byte lies between the payload's beginning and here
        self._seen = 0  # a frame that begins before here begins inside a broken one
        self._skip = 0  # bytes of an oversized payload, and its newline, still to come
        self._lost = False
        self._finished = False

    def feed(self, data: bytes) -> None:
        """Take one piece of input."""
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        del self._buffer[: self._at]
        self._scan -= self._at
        self._seen -= self._at
        self._at = 0
        self._buffer += data[skipped:] if skipped else data

    def next(self) -> bytes | bytearray | Fault | None:
        """Return the next frame or fault, or None where more bytes are needed."""
        buffer = self._buffer
        if self._lost:
            zero = buffer.find(0, self._at)
            if zero < 0:
                self._at = len(buffer)
                return None
            self._at = zero
            self._lost = False
        body = self._at + 4
        if body > len(buffer):
            return self._cut_off()
        length = int.from_bytes(buffer[self._at : body], "big")
        end = body + length
        if length > BODY_MAX:
            return self._read_oversized(body, end)
        if self._at < self._seen:
            zero = buffer.find(0, max(body, self._scan), end)
            if zero >= 0:
                self._lose(zero)
                return Fault(PARSE_ERROR, "a zero byte in the payload", body=buffer[body:zero])
            self._scan = len(buffer)
        if end >= len(buffer):
            return self._cut_off()
        if buffer[end] != NEWLINE:
            self._seen = max(self._seen, end)
            self._lose(body)
            return Fault(PARSE_ERROR, "no newline after the payload", body=buffer[body:end])
        self._at = self._scan = end + 1
        return buffer[body:end]

    def _read_oversized(self, body: int, end: int) -> Fault | None:
        buffer, head = self._buffer, b""
        if self._from_server:
            if buffer[self._at] >= TEXT:
                self._lose(self._at)
                return Fault(PARSE_ERROR, "expected a length")
            known = body + PEEK
            if self._at < self._seen:
                known = min(known, self._seen)  # among these bytes nothing is waited for
            elif known > len(buffer) and not self._finished:
                return None
            head = bytes(buffer[body:known])
        self._at = min(end + 1, len(buffer))
        self._skip = end + 1 - self._at
        return oversize(head)

    def reject(self) -> None:
        """Take note that the frame just handed out held no JSON.

        Its newline stood where it should, so the length is believed; but where it was one
        of the text's own, what follows is the rest and not a prefix.
        """
        self._lost = True

    def reserve(self, large: int, make_room: Callable[[int], None]) -> None:
        """Leave a large frame to grow as it comes."""

    def take_back(self, most: int) -> bytes | None:
        """Give back what has come of a frame of which nothing is read yet."""
        if self._lost or self._skip or self._at < self._seen:
            return None
        if len(self._buffer) - self._at > most:
            return None
        rest = bytes(self._buffer[self._at :])
        self._buffer.clear()
        self._at = self._scan = self._seen = 0
        return rest

    def expire(self) -> None:
        """Drop the frame that did not arrive in time."""
        # What took its length from garbage must not go on eating good frames.
        self._skip = 0
        self._seen = len(self._buffer)
        self._lose(min(self._at + 4, len(self._buffer)))

    def finish(self) -> None:
        """Take note that no more will come; `next` then says what that cut off."""
        self._finished = True

    def _lose(self, at: int) -> None:
        self._at = self._scan = at
        self._lost = True

    def _cut_off(self) -> Fault | None:
        if not self._finished or self._at == len(self._buffer):
            return None
        body = self._buffer[self._at + 4 :]
        self._seen = len(self._buffer)
        self._lose(min(self._at + 4, len(self._buffer)))
        return Fault(PARSE_ERROR, "input ended before the announced length", body=body)

    @property
    def partial(self) -> bool:
        """True inside a frame, where the rest must come in time."""
        return not self._lost and (self._at < len(self._buffer) or self._skip > 0)
