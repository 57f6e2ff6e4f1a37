"""One JSON text a line. Once lost, it goes on at the next line."""

from __future__ import annotations

from duet_rpc.jsonrpc.errors import Fault, oversize
from duet_rpc.jsonrpc.limits import BODY_MAX, PEEK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class LinesDecoder:
    """One JSON text a line; LF or CRLF; the last line may lack its end."""

    __slots__ = ("_buffer", "_finished", "_peek", "_scan", "_skipping")

    def __init__(self, from_server: bool = False) -> None:
        self._peek = PEEK if from_server else 0
        self._buffer = bytearray()
        self._scan = 0  # no line ends before here
        self._skipping = False  # the rest of a line that is too long
        self._finished = False

    def feed(self, data: bytes) -> None:
        """Take one piece of input."""
        self._buffer += data

    def next(self) -> bytes | bytearray | Fault | None:
        """Return the next frame or fault, or None where more bytes are needed."""
        buffer = self._buffer
        while True:
            newline = buffer.find(b"\n", self._scan)
            if newline < 0 and not (self._finished and buffer):
                self._scan = len(buffer)
                # A carriage return may be the first half of the line's end.
                if self._scan - buffer.endswith(b"\r") > BODY_MAX and not self._skipping:
                    self._skipping = True
                    return oversize(buffer[: self._peek])
                if self._skipping:
                    self._drop(self._scan)
                return None
            end = newline if newline >= 0 else len(buffer)
            line = buffer[: end - 1 if buffer[end - 1 : end] == b"\r" else end]
            skipped = self._skipping
            self._drop(end + 1)
            self._skipping = False
            if skipped or not line.strip(b" \t"):
                continue
            return oversize(line[: self._peek]) if len(line) > BODY_MAX else line

    def _drop(self, end: int) -> None:
        del self._buffer[:end]
        self._scan = 0

    def reject(self) -> None:
        """Take note that the frame just handed out held no JSON: the next line is the next."""

    def reserve(self, large: int, make_room: Callable[[int], None]) -> None:
        """Leave a large frame to grow as it comes."""

    def take_back(self, most: int) -> bytes | None:
        """Give back what has come of a frame of which nothing is read yet."""
        if self._skipping or len(self._buffer) > most:
            return None
        rest = bytes(self._buffer)
        self._drop(len(rest))
        return rest

    def expire(self) -> None:
        """Drop the frame that did not arrive in time."""
        self._drop(len(self._buffer))

    def finish(self) -> None:
        """Take note that no more will come: what is there is the last line."""
        self._finished = True

    @property
    def partial(self) -> bool:
        """True inside a frame, where the rest must come in time."""
        return bool(self._buffer) and not self._skipping
