"""LSP's framing: `Content-Length: N`, an empty line, N bytes.

The decoder is in one of the states below, and `next` runs the step of the state it is in
until that gives a frame or a fault, or needs more bytes. What is in the buffer begins where
the state began: at the first line of a header section, at the first byte of a body.

Once lost, the decoder resynchronizes at the next header section that holds
`Content-Length:`; `resync.py` says how that is found.

A frame whose body is not JSON is searched for the next header, because its length may have
been wrong. That must not cost quadratic time: bytes that were part of a broken frame are
*seen*, and a frame that begins among them is broken as soon as another header shows inside
it.
"""

from __future__ import annotations

import re
from enum import Enum

from duet_rpc.jsonrpc.content_type import refuse_content_type
from duet_rpc.jsonrpc.errors import HEADER_TOO_LARGE, Error, Fault, oversize
from duet_rpc.jsonrpc.limits import BODY_MAX, HEADER_MAX, PEEK
from duet_rpc.jsonrpc.resync import HeaderSearch

DIGITS_MAX = len(str(BODY_MAX))

LENGTH = b"content-length"
TYPE = b"content-type"

# What nearly every client writes. A frame that begins so and is whole is read in one step,
# without the states: 0.7 us instead of 1.7 on CPython 3.11.
USUAL_HEADER = re.compile(rb"Content-Length: ([0-9]{1,7})\r\n\r\n")

FIELD_LINES = re.compile(rb"(?:[ \t\r\v\f]*[^\s][^\n]*\n)*")
LENGTH_LINES = re.compile(
    rb"^[ \t\r\v\f]*content-length[ \t]*:[^\n]*", re.IGNORECASE | re.MULTILINE
)

FIELD_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+[ \t]*:")


class State(Enum):
    """Where in a frame the buffer begins."""

    HEADER = "in a header section, or between frames"
    BODY = "in a body whose length is known"
    REFUSED_HEADER = "in a header section that is too large"
    REFUSED_BODY = "in the body behind it"
    LOST = "nowhere known: looking for the next header"


HEADER, BODY, REFUSED_HEADER, REFUSED_BODY, LOST = State


class ContentLengthDecoder:
    """Turns chunks of bytes into frames and faults."""

    __slots__ = (
        "_buffer", "_finished", "_from_server", "_length", "_line", "_refusal", "_returned",
        "_scan", "_search", "_seen", "_state",
    )  # fmt: skip

    def __init__(self, from_server: bool = False) -> None:
        self._from_server = from_server
        self._buffer = bytearray()
        # The size of the body that `next` returned last. It stays in the buffer until the next
        # call, because `reject` could not put it back without moving all that is behind it.
        self._returned = 0
        self._seen = -1  # a header that ends here or before begins inside a broken frame
        self._search = HeaderSearch()  # for LOST, and for a body inside a broken frame
        self._finished = False
        self._enter(HEADER)

    def _enter(self, state: State) -> None:
        """Go to a state; the only place where it changes."""
        self._state = state
        self._scan = 0  # there is no newline before here
        if state is BODY or state is LOST:
            self._search.restart()
        if state is HEADER or state is LOST:
            self._line = 0  # where the line being read begins
            self._length: int | None = None  # what Content-Length said
            self._refusal: Error | None = None  # what is wrong with Content-Type

    def feed(self, chunk: bytes) -> None:
        """Add a chunk of input."""
        self._buffer += chunk

    def next(self) -> bytes | Fault | None:
        """Return the next frame's body or a fault, or None where more bytes are needed."""
        if self._returned:
            self._drop(self._returned)
            self._returned = 0
        if self._state is HEADER:
            if not self._buffer:
                return None
            body = self._read_usual()
            if body is not None:
                return body
        while True:
            state = self._state
            event = self._step(state)
            if event is not None or self._state is state:
                return event

    def _read_usual(self) -> bytes | None:
        """Return the body of a frame that is whole and has the usual header, or None."""
        buffer = self._buffer
        usual = USUAL_HEADER.match(buffer) if self._seen < 0 and not self._scan else None
        if usual is None:
            return None
        start = usual.end()
        end = start + int(usual[1])
        if not end <= len(buffer) <= BODY_MAX:
            return None
        body = bytes(buffer[start:end])
        del buffer[:start]
        self._returned = end - start
        return body

    def _step(self, state: State) -> bytes | Fault | None:
        if state is HEADER:
            return self._read_header()
        if state is BODY:
            return self._read_body()
        if state is LOST:
            return self._resynchronize()
        return self._skip_header() if state is REFUSED_HEADER else self._skip_body()

    def reject(self) -> None:
        """Go back into the frame that `next` returned last: its body is not JSON.

        Its length may have been wrong: too long, and it holds the head of the next frame;
        too short, and its rest is still to come. Searching from its beginning finds the
        next frame in both cases.
        """
        self._seen = max(self._seen, self._returned)
        self._returned = 0
        self._enter(LOST)

    def expire(self) -> None:
        """Discard the frame that did not arrive in time, and all that arrived of it."""
        self._drop(len(self._buffer))
        self._returned = 0
        self._enter(LOST)

    def finish(self) -> None:
        """Note that no more will come; `next` then tells what that cut off."""
        self._finished = True

    @property
    def partial(self) -> bool:
        """True inside a frame, where the rest must come in time."""
        if self._state is LOST:
            return self._search.section < self._search.line
        return len(self._buffer) > self._returned or self._state is not HEADER

    def _drop(self, size: int) -> None:
        del self._buffer[:size]
        self._seen -= size

    def _lose(self, at: int) -> None:
        """Look for the next header from this index on."""
        self._drop(at)
        self._enter(LOST)

    # HEADER

    def _read_header(self) -> Fault | None:
        buffer = self._buffer
        while True:
            newline = buffer.find(b"\n", self._scan)
            if (newline + 1 or len(buffer)) > HEADER_MAX:
                return self._refuse_header()
            if newline < 0:
                self._scan = len(buffer)
                return self._cut_off_header()
            start, end = self._line, newline + 1
            self._line = self._scan = end
            line = bytes(buffer[start:newline]).strip()
            if line:
                fault = self._read_field(line, start, end)
                if fault is not None:
                    return fault
            elif start == 0:  # an empty line between frames
                self._drop(end)
                self._line = self._scan = 0
            else:
                return self._end_header(end)

    def _read_field(self, line: bytes, start: int, end: int) -> Fault | None:
        if FIELD_NAME.match(line) is None:
            self._lose(start)
            return Fault(Error.parse_error("expected a Content-Length header"))
        name, _, value = line.partition(b":")
        name, value = name.rstrip().lower(), value.strip()
        if name == LENGTH:
            length = read_length(value)
            if length is None:
                self._lose(self._buffer.index(b":", start))
                return Fault(Error.parse_error("Content-Length is not a number"))
            if self._length not in (None, length):
                self._lose(end)
                return Fault(Error.parse_error("two Content-Length headers differ"))
            self._length = length
        elif name == TYPE and self._refusal is None:
            self._refusal = refuse_content_type(value)
        return None

    def _end_header(self, end: int) -> Fault | None:
        """Leave the header section, which ends here."""
        if self._length is None:
            self._lose(0)
            return Fault(Error.parse_error("Content-Length is missing"))
        if self._length > BODY_MAX and not self._from_server:
            self._lose(end)
            return oversize()
        self._drop(end)
        self._enter(BODY)
        return None

    def _refuse_header(self) -> Fault:
        """Refuse a header section that is too large, and its frame with it."""
        start = self._line
        is_field = FIELD_NAME.match(self._buffer, start, HEADER_MAX + 1) is not None
        if start or is_field:
            self._drop(start)
            self._enter(REFUSED_HEADER)
        else:
            self._lose(1)  # garbage; a later line may begin the next frame
        return header_too_large()

    def _cut_off_header(self) -> Fault | None:
        if not self._finished or not self._buffer:
            return None
        self._lose(len(self._buffer))
        return Fault(Error.parse_error("input ended inside a header"))

    # BODY

    def _read_body(self) -> bytes | Fault | None:
        length = self._length or 0
        if length > BODY_MAX:
            return self._read_oversized()
        if self._seen >= 0:
            stop = min(length, len(self._buffer))
            if self._search.find(self._buffer, self._seen, stop):
                # The body holds the next frame's header: go on there.
                body = bytes(self._buffer[: self._search.section])
                self._drop_before_section()
                return self._end_body(Error.parse_error("the body holds a header"), body)
        if length > len(self._buffer):
            return self._cut_off_body()
        body = bytes(memoryview(self._buffer)[:length])
        self._returned = length
        return self._end_body(None, body)

    def _end_body(self, error: Error | None, body: bytes) -> bytes | Fault:
        error = self._refusal or error
        self._enter(HEADER)
        return body if error is None else Fault(error, body)

    def _read_oversized(self) -> Fault | None:
        """Wait for the head of a server's oversized message: the id in it names the request."""
        end = PEEK
        if self._seen >= 0:
            end = min(end, self._seen)  # among these bytes nothing is waited for
        elif end > len(self._buffer) and not self._finished:
            return None
        head = bytes(self._buffer[:end])
        self._lose(0)
        return oversize(head)

    def _cut_off_body(self) -> Fault | None:
        if not self._finished:
            return None
        # Frames may lie behind it that a wrong length has swallowed.
        body = bytes(self._buffer)
        self._seen = len(body)
        self._lose(0)
        return Fault(Error.parse_error("input ended before the announced length"), body)

    # REFUSED_HEADER and REFUSED_BODY

    def _skip_header(self) -> Fault | None:
        """Discard lines up to the empty one; a Content-Length among them says what follows."""
        buffer = self._buffer
        # All at once: a section without end may have half a million of lines.
        end = FIELD_LINES.match(buffer).end()  # type: ignore[union-attr] # it matches nothing, too
        for line in {*LENGTH_LINES.findall(buffer, 0, end)}:
            if len(line) > HEADER_MAX:
                continue
            length = read_length(line.partition(b":")[2].strip())
            conflict = length is None or self._length not in (None, length)
            self._length = BODY_MAX + 1 if conflict else length
        self._drop(end)
        newline = buffer.find(b"\n")
        if newline < 0:
            # Of a line that is too long to count, enough is kept to know it by.
            del buffer[HEADER_MAX + 1 :]
            return None
        self._drop(newline + 1)
        known = self._length is not None and self._length <= BODY_MAX
        self._enter(REFUSED_BODY if known else LOST)
        return None

    def _skip_body(self) -> Fault | None:
        skipped = min(self._length or 0, len(self._buffer))
        self._drop(skipped)
        self._length = (self._length or 0) - skipped
        if not self._length:
            self._enter(LOST)  # its length may be wrong, and one frame gets one reply
        return None

    # LOST

    def _resynchronize(self) -> Fault | None:
        """Drop bytes up to the next header section that holds Content-Length."""
        search = self._search
        if not search.find(self._buffer, self._seen, len(self._buffer)):
            self._drop(search.discard(self._buffer, self._seen))
            return None
        if search.size > HEADER_MAX:
            self._drop(search.mark)
            self._enter(REFUSED_HEADER)
            return header_too_large()
        self._drop_before_section()
        self._enter(HEADER)
        return None

    def _drop_before_section(self) -> None:
        """Drop what is not part of the section that was found."""
        search = self._search
        # The rest of something else may stand between the field lines and Content-Length. The
        # lines are moved over it, because what comes behind may be megabytes.
        rest = search.mark - search.line
        section = search.section + rest
        self._buffer[section : search.mark] = self._buffer[search.section : search.line]
        self._drop(section)


def header_too_large() -> Fault:
    """Return the fault that a header section over the limit is."""
    detail = f"header larger than {HEADER_MAX} bytes"
    return Fault(Error.invalid_request(detail, HEADER_TOO_LARGE))


def read_length(value: bytes) -> int | None:
    """Return the number that a Content-Length gives; one too large for any body as such."""
    if not value.isdigit():
        return None
    digits = value.lstrip(b"0") or b"0"
    # Digits without end are not converted: that would take quadratic time.
    return int(digits) if len(digits) <= DIGITS_MAX else BODY_MAX + 1
