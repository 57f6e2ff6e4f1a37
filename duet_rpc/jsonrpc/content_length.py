"""LSP's framing: `Content-Length: N`, an empty line, N bytes.

Once lost, it goes on at the next line that holds `Content-Length:`. In valid JSON that
text can only stand inside a string, and a string closes with a quote before its line ends;
so a `Content-Length:` with no quote between it and the line's end is a header and never a
piece of a body.
"""

from __future__ import annotations

from duet_rpc.jsonrpc.errors import (
    HEADER_TOO_LARGE,
    INVALID_REQUEST,
    PARSE_ERROR,
    Fault,
    oversize,
)
from duet_rpc.jsonrpc.limits import BODY_MAX, HEADER_MAX, PEEK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BytesIO

DIGITS_MAX = len(str(BODY_MAX))

LENGTH = b"content-length"
TYPE = b"content-type"
MARK = LENGTH + b":"
USUAL = b"Content-Length: "
USUAL_MAX = len(USUAL) + DIGITS_MAX + 4

# The search for a header goes through the buffer in windows that grow, so that finding it
# costs what lies before it and not what lies behind it.
WINDOW_MIN = 256
WINDOW_MAX = 8 * HEADER_MAX

SMALL = 1024

NOT_IN_NAME = (
    frozenset(b'"(),/:;<=>?@[\\]{} \t') | frozenset(range(32)) | frozenset(range(127, 256))
)


class ContentLengthDecoder:
    """LSP's framing: a header section, an empty line, a body of the length it gave."""

    __slots__ = (
        "_at", "_body", "_buffer", "_finished", "_fresh", "_from_server", "_head", "_header",
        "_length", "_lost", "_place", "_refusal", "_scan", "_seen", "_size",
    )  # fmt: skip

    def __init__(self, from_server: bool = False) -> None:
        self._from_server = from_server
        self._buffer: bytes | bytearray = b""
        self._at = 0  # where the unread bytes begin: a header line, or the body
        self._scan = 0  # no line ends between _at and here
        self._body = 0  # where the body of the last frame handed out began
        self._seen = -1  # a header that ends here or before begins inside a broken frame
        self._lost = False
        self._place: BytesIO | None = None  # where a large body comes together
        self._finished = False
        self._header = USUAL + b"0\r\n\r\n"  # of the last usual frame,
        self._size = 0  # and the length that it gave
        self._begin(0)

    def _begin(self, at: int) -> None:
        """Expect a header section here."""
        self._at = self._scan = self._head = at
        is_well = at > self._seen and not self._lost
        self._fresh = at if is_well else -1  # where a frame begins of which nothing is read
        self._length = -1  # what Content-Length said
        self._refusal: tuple[str, str] | None = None  # what is wrong with Content-Type

    # What the shell calls.

    def feed(self, data: bytes) -> None:
        """Take one piece of input."""
        if self._place is not None:
            self._fill(self._place, data)
            return
        if self._at == self._fresh == len(self._buffer):
            # The usual case, a piece that begins with a frame, is not copied.
            self._buffer = data
            self._at = self._scan = self._head = self._fresh = 0
            self._seen = -1
            return
        # A header section is counted from its head, so its lines stay until it is whole.
        gone = self._head if self._head >= 0 else self._at
        if isinstance(self._buffer, bytearray):
            del self._buffer[:gone]
            self._buffer += data
        else:
            rest = self._buffer[gone:]
            # Most likely the end of a burst of small frames, which are read faster from
            # bytes: a third off each. A large frame grows in a bytearray.
            self._buffer = (rest if len(rest) < SMALL else bytearray(rest)) + data
        self._at -= gone
        self._scan -= gone
        self._head -= gone
        self._fresh -= gone
        self._seen -= gone

    def next(self) -> bytes | bytearray | Fault | None:
        """Return the next frame or fault, or None where more bytes are needed."""
        buffer, at = self._buffer, self._at
        if at == self._fresh:
            if at == len(buffer):
                if at > WINDOW_MAX:
                    self._buffer = b""  # a large frame is not kept for nothing
                    self._seen = -1
                    self._begin(0)
                return None
            if buffer.startswith(self._header, at) or self._is_usual(buffer, at):
                start = at + len(self._header)
                end = start + self._size
                if end <= len(buffer):
                    self._body = start
                    self._at = self._scan = self._head = self._fresh = end
                    return buffer[start:end]
                may_wait = self._size < SMALL
            else:
                may_wait = self._header.startswith(bytes(buffer[at : at + USUAL_MAX]))
            if may_wait and not self._finished:
                return None  # and it stays as if nothing had come: see `take_back`
        return self._next_by_steps()

    def _is_usual(self, buffer: bytes | bytearray, at: int) -> bool:
        """Look for one header that stands alone, as nearly all clients write it.

        Its line is not taken apart, and not even looked at where it is the same as that of
        the last frame: three quarters off each of a burst.
        """
        blank = buffer.find(b"\r\n\r\n", at, at + USUAL_MAX)
        if blank < 0 or not buffer.startswith(USUAL, at):
            return False
        digits = buffer[at + len(USUAL) : blank]
        length = int(digits) if digits.isdigit() else -1
        if not 0 <= length <= BODY_MAX:
            return False
        self._header, self._size = bytes(buffer[at : blank + 4]), length
        return True

    def reserve(self, large: int, make_room: Callable[[int], None]) -> None:
        """Take all memory for a body at once, if so much has come and is still to come."""
        come = len(self._buffer) - self._at
        if come < large or self._length - come < large or self._length > BODY_MAX:
            return
        if self._head >= 0 or self._at <= self._seen:
            return
        from io import BytesIO

        make_room(self._length)
        place = BytesIO()
        place.seek(self._length - 1)
        place.write(b"\0")
        place.seek(0)
        place.write(self._buffer[self._at :])
        self._place, self._buffer = place, b""
        self._at = 0
        self._seen = self._fresh = -1

    def _fill(self, place: BytesIO, data: bytes) -> None:
        missing = self._length - place.tell()
        place.write(data[:missing])
        if len(data) >= missing:
            self._place = None
            self._buffer = place.getvalue() + data[missing:]

    def _next_by_steps(self) -> bytes | bytearray | Fault | None:
        self._fresh = -1
        if self._lost and not self._find():
            return None
        if self._head >= 0:
            fault = self._read_header()
            if fault is not None or self._head >= 0:
                return fault or self._cut_off()
        return self._read_body()

    def _read_body(self) -> bytes | bytearray | Fault | None:
        buffer, end = self._buffer, self._at + self._length
        if self._length > BODY_MAX:
            return self._read_oversized()
        if self._at <= self._seen:
            header, self._scan = self._search(self._scan, min(end, len(buffer)))
            if header >= 0:
                return self._swallowed(header)
        if end > len(buffer):
            return self._cut_off()
        if end == len(buffer) and isinstance(buffer, bytearray):
            # It came in pieces, and is handed out uncopied: a tenth off a large one.
            del buffer[: self._at]
            self._seen -= self._at
            self._at, end = 0, len(buffer)
            body: bytes | bytearray = buffer
        else:
            body = buffer[self._at : end]
        self._body = self._at
        refusal = self._refusal
        self._begin(end)
        if refusal is None:
            return body
        reason, detail = refusal
        return Fault(INVALID_REQUEST, detail, reason, body)

    def _read_oversized(self) -> Fault | None:
        at, end = self._at, self._at + PEEK
        if at <= self._seen:
            end = min(end, self._seen)  # among these bytes nothing is waited for
        elif end > len(self._buffer) and not self._finished:
            return None
        head = self._buffer[at:end]
        self._lose(at)
        return oversize(head)

    def _swallowed(self, header: int) -> Fault:
        """Say that a body holds the next frame's header, and go on there."""
        body = self._buffer[self._at : header]
        refusal = self._refusal
        self._begin(header)
        self._body = header
        if refusal is None:
            return Fault(PARSE_ERROR, "the body holds a header", body=body)
        reason, detail = refusal
        return Fault(INVALID_REQUEST, detail, reason, body)

    def reject(self) -> None:
        """Take note that the frame just handed out held no JSON.

        Its length may have been wrong: too long, and it swallowed the head of the next
        frame; too short, and its rest is still to come. Searching from its beginning
        finds the next frame in both cases.
        """
        self._seen = max(self._seen, self._at)
        self._lose(self._body)

    def take_back(self, most: int) -> bytes | None:
        """Give back what has come of a frame of which nothing is read yet."""
        if self._at != self._fresh or len(self._buffer) - self._at > most:
            return None
        rest = bytes(self._buffer[self._at :])
        self._buffer = b""
        self._seen = -1
        self._begin(0)
        return rest

    def expire(self) -> None:
        """Drop the frame that did not arrive in time."""
        self._empty_place()
        if self._at == self._fresh:
            self._next_by_steps()
        # The rest of a header may yet come and must not complete it; in a body there
        # may be a whole frame, swallowed by a length that was too long.
        self._seen = len(self._buffer)
        self._lose(len(self._buffer) if self._head >= 0 else self._at)

    def finish(self) -> None:
        """Take note that no more will come; `next` then says what that cut off."""
        self._empty_place()
        self._finished = True

    def _empty_place(self) -> None:
        if self._place is not None:
            self._buffer = self._place.getvalue()[: self._place.tell()]
            self._place = None

    def _cut_off(self) -> Fault | None:
        if not self._finished or not self.partial:
            return None
        if self._head >= 0:
            self._lose(len(self._buffer))
            return Fault(PARSE_ERROR, "input ended inside a header")
        # Frames may lie behind it, swallowed.
        body = self._buffer[self._at :]
        self._seen = len(self._buffer)
        self._lose(self._at)
        return Fault(PARSE_ERROR, "input ended before the announced length", body=body)

    @property
    def partial(self) -> bool:
        """True inside a frame, where the rest must come in time."""
        return not self._lost and (self._head < self._at or self._at < len(self._buffer))

    # Header lines.

    def _read_header(self) -> Fault | None:
        """Read lines up to the body, where `_head` turns -1; or say what is wrong."""
        buffer = self._buffer
        while True:
            at = self._at
            newline = buffer.find(b"\n", self._scan)
            if (newline + 1 or len(buffer)) - self._head > HEADER_MAX:
                # A line of its own may begin the next frame; the first line can't.
                self._lose(max(at, self._head + 1))
                return Fault(
                    INVALID_REQUEST, f"header larger than {HEADER_MAX} bytes", HEADER_TOO_LARGE
                )
            if newline < 0:
                self._scan = len(buffer)
                return None
            self._at = self._scan = newline + 1
            line = bytes(buffer[at:newline]).strip()
            if line:
                fault = self._read_line(line, at, newline)
                if fault is not None:
                    return fault
            elif at == self._head:
                self._begin(self._at)  # an empty line between frames
            else:
                return self._end_header()

    def _read_line(self, line: bytes, at: int, newline: int) -> Fault | None:
        name, colon, value = line.partition(b":")
        name = name.rstrip().lower()
        if not colon or not name or not NOT_IN_NAME.isdisjoint(name):
            self._lose(at)
            return Fault(PARSE_ERROR, "expected a Content-Length header")
        value = value.strip()
        if name == LENGTH:
            if not value.isdigit():
                self._lose(self._buffer.index(b":", at))
                return Fault(PARSE_ERROR, "Content-Length is not a number")
            digits = value.lstrip(b"0") or b"0"
            # Digits without end are not converted: that would take quadratic time.
            length = int(digits) if len(digits) <= DIGITS_MAX else BODY_MAX + 1
            if self._length not in (-1, length):
                self._lose(newline + 1)
                return Fault(PARSE_ERROR, "two Content-Length headers differ")
            self._length = length
        elif name == TYPE and self._refusal is None:
            from duet_rpc.jsonrpc.content_type import refuse_content_type

            self._refusal = refuse_content_type(value)
        return None

    def _end_header(self) -> Fault | None:
        if self._length < 0:
            self._lose(self._head)
            return Fault(PARSE_ERROR, "Content-Length is missing")
        if self._length > BODY_MAX and not self._from_server:
            self._lose(self._at)
            return oversize()
        self._head = -1
        return None

    # Losing the frame and finding the next.

    def _lose(self, at: int) -> None:
        self._lost = True
        self._begin(at)

    def _find(self) -> bool:
        """Drop bytes up to the next header that holds Content-Length."""
        header, at = self._search(self._at, len(self._buffer))
        self._lost = header < 0
        self._begin(at)
        return header >= 0

    def _search(self, at: int, stop: int) -> tuple[int, int]:
        """Find a header: where it begins, or -1; and where to look on when more has come."""
        size = WINDOW_MIN
        while True:
            window = bytes(self._buffer[at : min(at + size, stop)]).lower()
            last = at + len(window) >= stop
            found, keep = find_header(window)
            at += keep
            if found >= 0 or last:
                return at if found >= 0 else -1, at
            size = min(4 * size, WINDOW_MAX)


def find_header(window: bytes) -> tuple[int, int]:
    """Find a header line in lower-case bytes: where it begins, or -1 and what to keep.

    Of several marks in one line the last counts: what stands before it is the rest of
    something else.
    """
    at = window.find(MARK)
    while at >= 0:
        newline = window.find(b"\n", at)
        mark = window.rfind(MARK, at, newline if newline >= 0 else len(window))
        end = newline if newline >= 0 else len(window)
        if end - mark < HEADER_MAX and window.find(b'"', mark, end) < 0:
            return (mark, mark) if newline >= 0 else (-1, mark)
        if newline < 0:
            break
        at = window.find(MARK, newline)
    return -1, max(0, len(window) - len(MARK) + 1)
