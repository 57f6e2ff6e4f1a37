"""Bytes to frames and back, without I/O: one interface, three framings.

A decoder is fed pieces as they arrive and asked for what they add up to: a frame (its
body, as bytes), a `Fault`, or None for "need more". It never raises, and the same bytes
give the same answers however they were cut.

What makes it more than a loop is that a fault does not end the connection. After a fault
whose frame has no known end a decoder is *lost*: it drops bytes, silently, up to where a
frame must begin. How that is known is said where each of the three lives: `content_length`,
`length_prefixed`, `lines`.

Going back costs time, and a frame in which the next begins, in which the next begins, must
not cost quadratic time. So bytes that were part of a broken frame once are *seen*, and a
frame that begins among them is broken as soon as the beginning of another shows inside it.

A server is read a little differently from a client (`from_server`). A client is told at once
that its request is oversized; of a server's oversized answer the first bytes are waited for
and handed out with the fault, for in them, most likely, stands whose answer it is. And text
on a server's stdout is no length of a gigabyte to be skipped.
"""

from __future__ import annotations

from duet_rpc.jsonrpc.content_length import ContentLengthDecoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from duet_rpc.jsonrpc.errors import Fault

    class Decoder(Protocol):
        """What the three have in common."""

        def feed(self, data: bytes) -> None:
            """Take one piece of input."""

        def next(self) -> bytes | bytearray | Fault | None:
            """Return the next frame or fault, or None where more bytes are needed."""

        def reject(self) -> None:
            """Take note that the frame just handed out held no JSON."""

        def reserve(self, large: int, make_room: Callable[[int], None]) -> None:
            """Take all memory for a body at once, if so much has come and is still to come."""

        def take_back(self, most: int) -> bytes | None:
            """Give back what has come of a frame of which nothing is read yet.

            It may be nothing. None: something is read, or it is more than so many bytes.
            """

        def expire(self) -> None:
            """Drop the frame that did not arrive in time."""

        def finish(self) -> None:
            """Take note that no more will come; `next` then says what that cut off."""

        @property
        def partial(self) -> bool:
            """True inside a frame, where the rest must come in time."""


def encode_content_length(body: bytes) -> bytes:
    """Make one frame. jsonrpc.el wants exactly this header, and nothing else in it."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def encode_length_prefixed(body: bytes) -> bytes:
    """Make one frame: the length in four bytes, the body, a newline that is not counted."""
    return len(body).to_bytes(4, "big") + body + b"\n"


def encode_line(body: bytes) -> bytes:
    """Make one line. Compact JSON has no raw newline; what others take for one is escaped."""
    return body.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029") + b"\n"


class Framing:
    """How frames are told apart on the way in and made on the way out."""

    __slots__ = ("decoder", "encode", "form")

    def __init__(
        self, form: str, decoder: Callable[..., Decoder], encode: Callable[[bytes], bytes]
    ) -> None:
        self.form = form  # how a person is told what to type
        self.decoder = decoder  # takes `from_server`
        self.encode = encode


# The start of a daemon that Emacs has started does without the other two.


def _length_prefixed(from_server: bool = False) -> Decoder:
    from duet_rpc.jsonrpc.length_prefixed import LengthPrefixedDecoder

    return LengthPrefixedDecoder(from_server)


def _lines(from_server: bool = False) -> Decoder:
    from duet_rpc.jsonrpc.lines import LinesDecoder

    return LinesDecoder(from_server)


CONTENT_LENGTH = Framing(
    "each after a Content-Length header", ContentLengthDecoder, encode_content_length
)
LENGTH_PREFIXED = Framing(
    "each after its length in four bytes", _length_prefixed, encode_length_prefixed
)
LINES = Framing("one a line", _lines, encode_line)

FRAMINGS = {
    "content-length": CONTENT_LENGTH,
    "length-prefixed": LENGTH_PREFIXED,
    "lines": LINES,
}


def guess_framing(first: bytes) -> Framing:
    """Tell the framing by the first byte that is not a line's end."""
    byte = first.lstrip(b"\r\n")[:1]
    if byte == b"\0":
        return LENGTH_PREFIXED
    return LINES if byte in (b"{", b"[") else CONTENT_LENGTH
