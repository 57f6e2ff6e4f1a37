r"""Bytes to frames and back, without I/O: one interface, three framings.

A decoder is fed chunks as they arrive and asked for what they add up to: a frame (its body,
as bytes), a `Fault`, or None for "need more". It never raises, and the same bytes give the
same answers however they were cut.

A fault does not end the connection. After a fault whose frame has no known end a decoder
is lost: it drops bytes, silently, up to where a frame must begin. How that is known is
said where each decoder lives: `content_length`, `length_prefixed`, `lines`.

A server is read a little differently from a client (`from_server`). A client is told at once
that its request is oversized; of a server's oversized reply the first bytes are waited for
and returned with the fault, because they most likely hold the id of the request it answers.
And text on a server's stdout is not taken for a length of a gigabyte.

    >>> decoder = CONTENT_LENGTH.decoder()
    >>> decoder.feed(b"Content-Length: 2\r\n\r\n{")
    >>> decoder.next() is None
    True
    >>> decoder.feed(b"}")
    >>> decoder.next()
    b'{}'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.content_length import ContentLengthDecoder
from duet_rpc.jsonrpc.length_prefixed import LengthPrefixedDecoder
from duet_rpc.jsonrpc.lines import LinesDecoder

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from duet_rpc.jsonrpc.errors import Fault

    class Decoder(Protocol):
        """What the three decoders have in common."""

        def feed(self, chunk: bytes) -> None:
            """Add a chunk of input."""

        def next(self) -> bytes | Fault | None:
            """Return the next frame's body or a fault, or None where more bytes are needed."""

        def reject(self) -> None:
            """Resynchronize: the frame that `next` returned last is not JSON."""

        def expire(self) -> None:
            """Discard the frame that did not arrive in time, and all that arrived of it."""

        def finish(self) -> None:
            """Note that no more will come; `next` then tells what that cut off."""

        @property
        def partial(self) -> bool:
            """True inside a frame, where the rest must come in time."""


def encode_content_length(body: bytes) -> bytes:
    """Return one frame. jsonrpc.el wants exactly this header, and nothing else in it."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def encode_length_prefixed(body: bytes) -> bytes:
    """Return one frame: the length in four bytes, the body, a newline that is not counted."""
    return len(body).to_bytes(4, "big") + body + b"\n"


def encode_line(body: bytes) -> bytes:
    """Return one line. Compact JSON has no raw newline; what others take for one is escaped."""
    return body.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029") + b"\n"


class Framing:
    """How frames are told apart on the way in and made on the way out."""

    __slots__ = ("decoder", "encode", "name")

    def __init__(
        self,
        name: str,
        decoder: Callable[..., Decoder],
        encode: Callable[[bytes], bytes],
    ) -> None:
        self.name = name
        self.decoder = decoder  # takes `from_server`
        self.encode = encode

    def __repr__(self) -> str:
        return f"<Framing {self.name}>"


CONTENT_LENGTH = Framing(
    "content-length",
    ContentLengthDecoder,
    encode_content_length,
)
LENGTH_PREFIXED = Framing(
    "length-prefixed",
    LengthPrefixedDecoder,
    encode_length_prefixed,
)
LINES = Framing("lines", LinesDecoder, encode_line)

FRAMINGS = {each.name: each for each in (CONTENT_LENGTH, LENGTH_PREFIXED, LINES)}


def guess_framing(first: bytes) -> Framing:
    """Tell the framing by the first byte that is not part of a line's end."""
    byte = first.lstrip(b"\r\n")[:1]
    if byte == b"\0":
        return LENGTH_PREFIXED
    return LINES if byte in (b"{", b"[") else CONTENT_LENGTH
