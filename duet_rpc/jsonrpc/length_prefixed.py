"""Four bytes of length, the body, a newline that is not counted.

Once lost, the decoder resynchronizes at the next zero byte: the prefix of every frame that
is not oversized begins with one, and valid JSON holds none. What is said in
`content_length` about bytes that were *seen* in a broken frame holds here too.
"""

from __future__ import annotations

from enum import Enum

from duet_rpc.jsonrpc.errors import Error, Fault, oversize
from duet_rpc.jsonrpc.limits import BODY_MAX, PEEK

TEXT = ord("\t")  # the lowest byte of a text; as the first of a length it means 150 MB
NEWLINE = ord("\n")


class State(Enum):
    """What the buffer begins with."""

    FRAME = "a length"
    OVERSIZED = "the rest of a body that is too large"
    LOST = "nothing known: looking for a zero byte"


class LengthPrefixedDecoder:
    """Turns chunks of bytes into frames and faults."""

    __slots__ = ("_buffer", "_finished", "_from_server", "_scan", "_seen", "_skip", "_state")

    def __init__(self, from_server: bool = False) -> None:
        self._from_server = from_server
        self._buffer = bytearray()
        self._scan = 0  # no zero byte lies between the body's beginning and here
        self._seen = 0  # a frame that begins before here begins inside a broken one
        self._skip = 0  # bytes of an oversized body, and its newline, still to come
        self._state = State.FRAME
        self._finished = False

    def feed(self, chunk: bytes) -> None:
        """Add a chunk of input."""
        if self._state is State.OVERSIZED:
            skipped = min(self._skip, len(chunk))
            self._skip -= skipped
            chunk = chunk[skipped:]
            if not self._skip:
                self._state = State.FRAME
        self._buffer += chunk

    def next(self) -> bytes | Fault | None:
        """Return the next frame's body or a fault, or None where more bytes are needed."""
        buffer = self._buffer
        if self._state is State.LOST:
            zero = buffer.find(0)
            self._drop(len(buffer) if zero < 0 else zero)
            if zero < 0:
                return None
            self._state = State.FRAME
        if len(buffer) < 4:
            return self._cut_off()
        length = int.from_bytes(buffer[:4], "big")
        end = 4 + length
        if length > BODY_MAX:
            return self._read_oversized(end)
        if self._seen > 0:
            zero = buffer.find(0, max(4, self._scan), end)
            if zero >= 0:
                body = bytes(buffer[4:zero])
                self._lose(zero)
                return Fault(Error.parse_error("a zero byte in the payload"), body)
            self._scan = len(buffer)
        if end >= len(buffer):
            return self._cut_off()
        body = bytes(memoryview(buffer)[4:end])
        if buffer[end] != NEWLINE:
            self._seen = max(self._seen, end)
            self._lose(4)
            return Fault(Error.parse_error("no newline after the payload"), body)
        self._drop(end + 1)
        return body

    def _read_oversized(self, end: int) -> Fault | None:
        buffer, head = self._buffer, b""
        if self._from_server:
            if buffer[0] >= TEXT:
                self._lose(0)
                return Fault(Error.parse_error("expected a length"))
            known = 4 + PEEK
            if self._seen > 0:
                known = min(known, self._seen)  # among these bytes nothing is waited for
            elif known > len(buffer) and not self._finished:
                return None
            head = bytes(buffer[4:known])
        dropped = min(end + 1, len(buffer))
        self._drop(dropped)
        self._skip = end + 1 - dropped
        if self._skip:
            self._state = State.OVERSIZED
        return oversize(head)

    def reject(self) -> None:
        """Resynchronize: the frame that `next` returned last is not JSON.

        Its newline stood where it should, so the length is believed; but where it was one
        of the text's own, what follows is the rest and not a prefix.
        """
        self._state = State.LOST

    def expire(self) -> None:
        """Discard the frame that did not arrive in time, and all that arrived of it."""
        self._skip = 0
        self._lose(len(self._buffer))

    def finish(self) -> None:
        """Note that no more will come; `next` then tells what that cut off."""
        self._finished = True

    def _drop(self, size: int) -> None:
        del self._buffer[:size]
        self._seen -= size
        self._scan = 0

    def _lose(self, at: int) -> None:
        self._drop(at)
        self._state = State.LOST

    def _cut_off(self) -> Fault | None:
        if not self._finished or not self._buffer:
            return None
        body = bytes(self._buffer[4:])
        self._seen = len(self._buffer)
        self._lose(min(4, len(self._buffer)))
        return Fault(Error.parse_error("input ended before the announced length"), body)

    @property
    def partial(self) -> bool:
        """True inside a frame, where the rest must come in time."""
        return self._state is State.OVERSIZED or (self._state is State.FRAME and bool(self._buffer))
