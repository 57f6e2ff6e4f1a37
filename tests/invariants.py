"""What holds for the decoder of every framing, whatever bytes come and however they are cut.

1. It never raises. What it gives are frames and faults, at most one for each byte fed,
   and after `finish` it comes to an end.
2. It never holds more than one header section, one body and one piece of input.
3. The same bytes give the same frames and faults, however they are cut.
4. Its time grows with the bytes, not with their square.
5. After any prefix a good frame is answered. What that costs, and what it needs first:

   Where the prefix ends inside a frame, the rest must come or its time must run out
   (`expire`). Then a good frame costs no fault, except that with Content-Length garbage that
   began a header section is one, and with lines the line that the prefix left open must end.

The caps are made small here, so that chance finds their edges. Both hypothesis
(`test_fuzz.py`) and atheris (`fuzz/`) call `check`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from duet_rpc.jsonrpc import content_length, length_prefixed, lines, resync
from duet_rpc.jsonrpc.framing import FRAMINGS
from duet_rpc.jsonrpc.messages import InvalidMessage
from duet_rpc.jsonrpc.reader import MessageReader

BODY = 300
HEADER = 96
SMALL = {
    "BODY_MAX": BODY, "HEADER_MAX": HEADER, "DIGITS_MAX": len(str(BODY)),
    "WINDOW_MIN": 20, "WINDOW_MAX": 2 * HEADER, "PEEK": 60,
}  # fmt: skip

GOOD = b'{"jsonrpc":"2.0","id":"good","method":"version"}'

SERVER = "server "
"""In front of a framing's name: what a server says, read as the gateway reads it."""

FAULTS = {"content-length": 1, "length-prefixed": 0, "lines": 0}
"""How many faults may come in front of it then."""


def make_reader(name: str) -> MessageReader:
    """Make the daemon's reader of this framing, or the gateway's."""
    if name.startswith(SERVER):
        return MessageReader(FRAMINGS[name.removeprefix(SERVER)], raw=True, from_server=True)
    return MessageReader(FRAMINGS.get(name))


@contextmanager
def small_limits() -> Iterator[None]:
    """Make the caps small."""
    before = [
        (module, name, getattr(module, name))
        for module in (content_length, resync, length_prefixed, lines)
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


def take(reader: MessageReader, most: int) -> list[object]:
    """Take all messages that there are, as values that can be compared."""
    found: list[object] = []
    while True:
        message = reader.next()
        if message is None:
            return found
        found.append(describe(message))
        assert len(found) <= most, "more messages than bytes"


def describe(message: object) -> object:
    """Turn a message into a value that can be compared."""
    if isinstance(message, InvalidMessage):
        return (message.failure, message.id_known, message.method)
    if isinstance(message, list):
        return [describe(each) for each in message]
    return message


def read(name: str, pieces: list[bytes], end: bool = True) -> tuple[MessageReader, list[object]]:
    """Feed pieces, and take what they add up to."""
    reader = make_reader(name)
    found: list[object] = []
    fed = 0
    for piece in pieces:
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
        assert read(name, [data[at : at + 1] for at in range(len(data))])[1] == whole
        if name.removeprefix(SERVER) in FAULTS:
            check_recovery(name, data, places)


def check_recovery(name: str, data: bytes, places: list[int]) -> None:
    """Check that a good frame behind it is answered."""
    reader, _ = read(name, cut(data, places), end=False)
    name = name.removeprefix(SERVER)
    if reader.partial:
        reader.expire()
        assert take(reader, 1) == [], "something inside a frame that was discarded"
        assert not reader.partial
    if name == "lines":
        reader.feed(b"\n")
        assert len(take(reader, 1)) <= 1
    reader.feed(FRAMINGS[name].encode(GOOD))
    events = take(reader, len(data) + 100)
    assert getattr(events[-1], "id", None) == "good"
    assert len(events) - 1 <= FAULTS[name]
