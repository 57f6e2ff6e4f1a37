"""What holds for the decoder of every framing, whatever bytes come and however they are cut.

1. It never raises. What it gives are frames and faults, at most one for each byte fed,
   and after `finish` it comes to an end.
2. It never holds more than one header section, one body and one piece of input.
3. The same bytes give the same frames and faults, however they are cut.
4. Its time grows with the bytes, not with their square.
5. After any prefix a good frame is answered. What that costs, and what it needs first:

   - Content-Length: at most one fault. First, where the prefix ends inside a frame, the rest
     of it must come or its time must run out (`expire`). Once is enough, unless what that
     frame had swallowed ends in a header section which has given a length already, or a type
     that is refused: the good frame's header would belong to it, and the frame be lost. Its
     time must run out too.
   - Length-prefixed: no fault. First, where the prefix ends inside a frame (and four bytes
     of garbage announce one), the rest must come or its time must run out; twice is enough.
   - Lines: no fault beyond that of the line which the prefix left open, and that line must
     end first, or its time run out.

The caps are made small here, so that chance finds their edges. Both hypothesis
(`test_fuzz.py`) and atheris (`fuzz/`) call `check`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Union

from duet_rpc.jsonrpc import content_length, length_prefixed, lines
from duet_rpc.jsonrpc.content_length import ContentLengthDecoder
from duet_rpc.jsonrpc.envelope import Envelope, EnvelopeReader
from duet_rpc.jsonrpc.framing import FRAMINGS
from duet_rpc.jsonrpc.messages import Batch, Failure, Request
from duet_rpc.jsonrpc.reader import Reader

BODY = 300
HEADER = 96
SMALL = {
    "BODY_MAX": BODY, "HEADER_MAX": HEADER, "DIGITS_MAX": len(str(BODY)),
    "WINDOW_MIN": 20, "WINDOW_MAX": 2 * HEADER, "PEEK": 60,
}  # fmt: skip

GOOD = b'{"jsonrpc":"2.0","id":"good","method":"version"}'

SERVER = "server "
"""In front of a framing's name: what a server says, read as the gateway reads it."""

TIMEOUTS = {"content-length": 1, "length-prefixed": 2, "lines": 1}
"""How often a decoder must be told that time is up before a good frame is safe."""

FAULTS = {"content-length": 1, "length-prefixed": 0, "lines": 0}
"""How many faults may still come in front of it then."""


class ServerReader:
    """The gateway's reader, with the face of the daemon's."""

    def __init__(self, name: str) -> None:
        self._reader = EnvelopeReader(FRAMINGS[name], from_server=True)
        self._decoder = self._reader._decoder
        self._first: Envelope | None = None
        self.expire = self._reader.expire
        self.finish = self._reader.finish

    def feed(self, data: bytes) -> None:
        """Take one piece of input."""
        self._first = self._reader.take(data)

    @property
    def partial(self) -> bool:
        """True inside a frame."""
        return self._reader.partial

    def next(self) -> Envelope | Failure | None:
        """Return the next message, or None."""
        first, self._first = self._first, None
        return first or self._reader.next()


AnyReader = Union[Reader, ServerReader]


@contextmanager
def small_limits() -> Iterator[None]:
    """Make the caps small."""
    before = [
        (module, name, getattr(module, name))
        for module in (content_length, length_prefixed, lines)
        for name in SMALL
        if hasattr(module, name)
    ]
    assert {name for _, name, _ in before} == set(SMALL)
    try:
        for module, name, _ in before:
            setattr(module, name, SMALL[name])
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def take(reader: AnyReader, most: int) -> list[object]:
    """Take all messages that there are, as values that can be compared."""
    found: list[object] = []
    while True:
        message = reader.next()
        if message is None:
            return found
        found.append(describe(message))
        assert len(found) <= most, "more messages than bytes"


def describe(message: object) -> object:
    """Turn a message into a value."""
    if isinstance(message, Failure):
        return (message.id, message.code, message.message, repr(message.data))
    if isinstance(message, Request):
        return (message.method, repr(message.params), message.id)
    if isinstance(message, Envelope):
        return (message.method, str(message.value("params")), message.id)
    if isinstance(message, Batch):
        return [describe(each) for each in message.messages]
    return message.__class__.__name__


def read(
    name: str, pieces: list[bytes], end: bool = True, again: bool = False
) -> tuple[AnyReader, list[object]]:
    """Feed pieces, and take what they add up to.

    Perhaps with what has come before once more, and as if all but the smallest were large.
    """
    reader: AnyReader = Reader(FRAMINGS.get(name), batch=True)
    if name.startswith(SERVER):
        reader = ServerReader(name.removeprefix(SERVER))
    found: list[object] = []
    fed = 0
    for piece in pieces:
        if again and isinstance(reader, Reader):
            piece = (reader.take_back(BODY) or b"") + piece
            reader.reserve(5, lambda _: None)
        reader.feed(piece)
        fed += len(piece)
        found += take(reader, fed + 1)
        held = len(reader._decoder._buffer)  # type: ignore[attr-defined]
        assert held <= HEADER + BODY + len(piece) + 5, "it holds more than the caps"
    if end:
        reader.finish()
        found += take(reader, fed + 1)
        assert reader.next() is None
    assert len(found) <= fed + 1
    return reader, found


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Cut bytes at some places."""
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in zip(edges, edges[1:])]


def check(name: str, data: bytes, places: list[int]) -> None:
    """Check all that is said above, except time, for one input."""
    with small_limits():
        _, whole = read(name, [data])
        assert read(name, cut(data, places))[1] == whole
        assert read(name, cut(data, places), again=True)[1] == whole
        assert read(name, [data[at : at + 1] for at in range(len(data))])[1] == whole
        if name.removeprefix(SERVER) in TIMEOUTS:
            check_recovery(name, data, places)


def check_recovery(name: str, data: bytes, places: list[int]) -> None:
    """Check that a good frame behind it is answered."""
    reader, _ = read(name, cut(data, places), end=False)
    name = name.removeprefix(SERVER)
    for count in range(2):
        if reader.partial and (count < TIMEOUTS[name] or spoilt(reader)):
            reader.expire()
            take(reader, len(data) + 1)
    if name == "lines":
        reader.feed(b"\n")
        assert len(take(reader, 1)) <= 1
    reader.feed(FRAMINGS[name].encode(GOOD))
    events = take(reader, len(data) + 100)
    assert events[-1:] == [("version", "None", '"good"')]
    assert len(events) - 1 <= FAULTS[name]


def spoilt(reader: AnyReader) -> bool:
    """Return True inside a header section that would spoil the frame it became part of."""
    decoder = reader._decoder
    if not isinstance(decoder, ContentLengthDecoder) or decoder._head < 0:
        return False
    return decoder._length >= 0 or decoder._refusal is not None
