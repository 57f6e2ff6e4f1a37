"""One JSON text a line. After an oversized line it goes on at the next line."""

from __future__ import annotations

from enum import Enum

from duet_rpc.jsonrpc.errors import Fault, oversize
from duet_rpc.jsonrpc.limits import BODY_MAX, PEEK


class State(Enum):
    """What the buffer holds."""

    LINE = "the beginning of a line"
    OVERSIZED = "the rest of a line that is too long"


class LinesDecoder:
    """Turns chunks of bytes into lines; LF or CRLF; the last line may lack its end."""

    __slots__ = ("_buffer", "_finished", "_peek", "_scan", "_state")

    def __init__(self, from_server: bool = False) -> None:
        self._peek = PEEK if from_server else 0
        self._buffer = bytearray()
        self._scan = 0  # no line ends before here
        self._state = State.LINE
        self._finished = False

    def feed(self, chunk: bytes) -> None:
        """Add a chunk of input."""
        self._buffer += chunk

    def next(self) -> bytes | Fault | None:
        """Return the next line or a fault, or None where more bytes are needed."""
        buffer = self._buffer
        while True:
            newline = buffer.find(b"\n", self._scan)
            if newline < 0 and not (self._finished and buffer):
                return self._wait()
            end = newline if newline >= 0 else len(buffer)
            line = bytes(buffer[: end - 1 if buffer[end - 1 : end] == b"\r" else end])
            self._drop(end + 1)
            skipped, self._state = self._state is State.OVERSIZED, State.LINE
            if skipped or not line.strip(b" \t"):
                continue
            return oversize(line[: self._peek]) if len(line) > BODY_MAX else line

    def _wait(self) -> Fault | None:
        self._scan = len(self._buffer)
        if self._state is State.OVERSIZED:
            self._drop(self._scan)
        # A carriage return may be the first half of the line's end.
        elif self._scan - self._buffer.endswith(b"\r") > BODY_MAX:
            self._state = State.OVERSIZED
            return oversize(self._buffer[: self._peek])
        return None

    def _drop(self, end: int) -> None:
        del self._buffer[:end]
        self._scan = 0

    def reject(self) -> None:
        """Do nothing: where a line is not JSON, the next line is the next frame."""

    def expire(self) -> None:
        """Discard the line that did not arrive in time."""
        self._drop(len(self._buffer))

    def finish(self) -> None:
        """Note that no more will come: what is in the buffer is the last line."""
        self._finished = True

    @property
    def partial(self) -> bool:
        """True inside a line, where the rest must come in time."""
        return bool(self._buffer) and self._state is State.LINE
