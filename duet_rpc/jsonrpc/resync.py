"""Finding the next header section in bytes of which nothing is known.

A section is found by its `Content-Length:`. In valid JSON that text can only stand inside a
string, and a string closes with a quote before its line ends; so a `Content-Length:` with no
quote between it and the line's end is a header and never part of a body. It may stand
anywhere in its line: what is in front of it is the rest of something else.

The section begins at the first of the field lines directly above that line, because one of
them can refuse the frame: by its Content-Type, or by making the section too large. Where
something else ends and the first field begins in one line, there are two signs of it:
`Content-Type:`, outside a string as above, and the end that a broken frame had announced.

Lines are read as soon as they are whole, and only once. What a line is depends on it alone,
so that the result is the same however the input is cut.
"""

from __future__ import annotations

import re

from duet_rpc.jsonrpc.limits import HEADER_MAX

MARK = b"content-length:"
TYPE_MARK = re.compile(rb"content-type[ \t]*:")
FIELD = re.compile(rb"[ \t\r\v\f]*[!#$%&'*+.^_`|~0-9A-Za-z-]+[ \t]*:")
ESCAPED = re.compile(rb"\\.")

# What is left of the beginning of a line that is too long to keep.
FIELD_STUB = b"x:"
OTHER_STUB = b"\0\0"

# The search goes through the buffer in windows that grow, so that finding a header costs what
# lies before it and not what lies behind it.
WINDOW_MIN = 256
WINDOW_MAX = 8 * HEADER_MAX


class HeaderSearch:
    """Looks for a header section in a buffer that grows at its end.

    All positions are indexes into that buffer. `section` is negative where the section's
    beginning has been discarded, which is done once it is too large.
    """

    __slots__ = ("_first", "_scan", "line", "mark", "section", "size")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Look from the beginning of the buffer on."""
        self.section = 0  # where the field lines directly above `line` begin
        self.line = 0  # the first line that is not read yet
        self._scan = 0  # from `line` to here there is no newline
        self._first = True  # `line` may begin with the rest of something else
        self.mark = 0  # when found: where Content-Length begins in `line`
        self.size = 0  # and how large the section is, up to the end of that line

    def find(self, buffer: bytearray, seen: int, stop: int) -> bool:
        """Return whether there is a header; `seen` is where a broken frame should have ended."""
        window = WINDOW_MIN
        while self._scan < stop:
            limit = min(self._scan + window, stop)
            end = buffer.rfind(b"\n", self._scan, limit) + 1
            if end:
                lines = bytes(buffer[self.line : end]).lower()
                if self._read_lines(lines, seen - self.line):
                    return True
            self._scan = limit
            window = min(4 * window, WINDOW_MAX)
        return False

    def discard(self, buffer: bytearray, seen: int) -> int:
        """Return how many bytes at the beginning of the buffer are needed no more."""
        held = len(buffer)
        size = max(self.section if held - self.section <= HEADER_MAX else self.line, 0)
        if held - self.line > 2 * HEADER_MAX:
            # The end of the line is enough to find what may begin there.
            size = held - HEADER_MAX - len(FIELD_STUB)
            rest = size + len(FIELD_STUB)
            is_field = match_field(buffer, self.line, held)
            if not is_field or self.section == self.line:
                self.section = size  # no fields directly above
            if self.line <= seen < rest and match_field(buffer, seen, held):
                is_field, self._first = True, False
            buffer[size:rest] = FIELD_STUB if is_field else OTHER_STUB
            self.line = size
        self.section -= size
        self.line -= size
        self._scan -= size
        return size

    def _read_lines(self, lines: bytes, seen: int) -> bool:
        """Read whole lines, in lower case; return whether one of them has Content-Length."""
        at = lines.find(MARK)
        while at >= 0:
            begin = lines.rfind(b"\n", 0, at) + 1
            end = lines.find(b"\n", at)
            mark = lines.rfind(MARK, max(begin, end - HEADER_MAX), end)
            if mark >= 0 and lines.find(b'"', mark, end) < 0:
                section = self._find_section(lines, begin, seen)
                if section == begin or not match_field(lines, begin, end):
                    section = begin = mark
                self.size = end + 1 - section
                self.section = self.line + section
                self.mark = self.line + mark
                self.line += begin
                return True
            at = lines.find(MARK, end)
        self.section = self.line + self._find_section(lines, len(lines), seen)
        self.line += len(lines)
        self._first = False
        return False

    def _find_section(self, lines: bytes, end: int, seen: int) -> int:
        """Return where the field lines begin that reach up to here."""
        at = end
        while at > 0:
            if end - at > HEADER_MAX:
                return at  # too large, wherever it begins
            begin = lines.rfind(b"\n", 0, at - 1) + 1
            field = find_field(lines, begin, at - 1, seen, self._first and begin == 0)
            if field != begin:
                return at if field < 0 else field
            at = begin
        return self.section - self.line


def match_field(lines: bytes | bytearray, begin: int, end: int) -> bool:
    """Return whether a line that begins here is a field."""
    return FIELD.match(lines, begin, min(end, begin + HEADER_MAX)) is not None


def find_field(lines: bytes, begin: int, end: int, seen: int, first: bool) -> int:
    """Return where in a line without a header's Content-Length a field begins, or -1."""
    tail = max(begin, end - HEADER_MAX)
    if lines.find(MARK, tail, end) >= 0:
        return -1
    announced = begin <= seen < end and match_field(lines, seen, end)
    if announced and TYPE_MARK.match(lines, seen, end):
        return seen
    whole = match_field(lines, begin, end)
    if whole and not first:
        return begin
    if announced and seen < tail:
        return seen  # too large, whatever its end looks like
    found = find_type(lines, tail, end)
    if found >= 0:
        return found
    if announced:
        return seen
    return begin if whole else -1


def find_type(lines: bytes, begin: int, end: int) -> int:
    """Return where the first Content-Type outside a string begins, or -1.

    Its value may have quotes, in pairs. From inside a string their number is odd.
    """
    found, quotes = -1, 0
    for mark in reversed(list(TYPE_MARK.finditer(lines, begin, end))):
        quotes += ESCAPED.sub(b"", lines[mark.end() : end]).count(b'"')
        end = mark.start()
        if quotes % 2 == 0:
            found = end
    return found
