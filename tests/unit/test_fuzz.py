"""The decoders, fed by chance; the invariants stand at the head of `invariants.py`.

`make fuzz` runs the same checks for as long as you like, led by coverage, where atheris
can be installed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duet_rpc.jsonrpc.framing import FRAMINGS, encode_content_length, encode_length_prefixed
from duet_rpc.jsonrpc.messages import read_message
from duet_rpc.jsonrpc.reader import MessageReader
from tests.invariants import BODY, GOOD, HEADER, SERVER, check
from tests.support import shortest

# The same request with other ids, and what is not it.
PLAIN = [b'{"jsonrpc":"2.0","id":%b,"method":"version"}' % id for id in (b"12", b"13", b"7", b"02")]
COMMON = [
    *PLAIN,
    PLAIN[0][:-1] + b"\0",
    PLAIN[0][:22],
    PLAIN[0][24:],
    GOOD,
    GOOD[:-1],
    b"{",
    b'"',
    b"[]",
    b"\n",
    b"\r\n",
    b"\r",
    b" ",
    b"\x00",
    b"x" * 50,
]

FRAGMENTS = {
    "content-length": [
        *map(encode_content_length, PLAIN),
        encode_content_length(PLAIN[0])[:-1] + b"\0",
        encode_content_length(GOOD),
        encode_content_length(GOOD)[:-3],
        encode_content_length(b"[" + GOOD + b"," + GOOD + b"]"),
        b"Content-Length: 48\r\n",
        b"content-length:5\n\n",
        b"CONTENT-LENGTH: 250\r\n\r\n",
        b"Content-Length: 300\r\n\r\n{",
        b"Content-Length: 301\r\n\r\n",
        b"Content-Length: 301\r\n\r\n" + GOOD,
        b"Content-Length: 99999999999999\r\n\r\n",
        b"Content-Length: x\r\n",
        b"Content-Type: text/plain\r\n",
        b"Content-Type: text/plain\r\n" + encode_content_length(GOOD),
        b'Content-Type: "\n',
        b"Content-Length : 48\r\n",
        encode_content_length(b"{nonsense"),
        b"X: y\n",
        b"X: ",
        b"X: " + b"y" * HEADER,
        b"Content-Type: application/vscode-jsonrpc; charset=utf8\r\n",
        b"Content-Le",
        b"Content-Length:",
        b"X: " + b"y" * (HEADER - 10) + b"\r\n",
        b": 5\n",
    ],
    "length-prefixed": [
        *map(encode_length_prefixed, PLAIN),
        encode_length_prefixed(GOOD),
        encode_length_prefixed(GOOD)[:-1],
        encode_length_prefixed(b"x" * 5),
        b"\x00\x00\x00",
        b"\x00\x00\x01\x2c",
        b"\x00\x00\x01\x2d",
        b"\x00\x00\x01\x2d" + GOOD,
        b"\x00\x00\x00\xf0{",
        b"\x7f\xff\xff\xff",
        b"\xff",
    ],
    "lines": [
        GOOD + b"\n",
        GOOD + b"\r\n",
        b"x" * (BODY - 1),
        b"x" * BODY + b"\r",
        b"\n\n",
        b" \t\n",
    ],
}
FRAGMENTS["auto"] = [each for fragments in FRAGMENTS.values() for each in fragments]
ANSWER = b'{"jsonrpc":"2.0","id":1,"result":[]}'
for name in FRAMINGS:
    FRAGMENTS[SERVER + name] = [*FRAGMENTS[name], FRAMINGS[name].encode(ANSWER)]


@pytest.mark.parametrize("name", FRAGMENTS)
def test_the_invariants_hold(name: str) -> None:
    pieces = st.one_of(st.sampled_from([*FRAGMENTS[name], *COMMON]), st.binary(max_size=12))

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(pieces, max_size=12).map(b"".join), st.lists(st.integers(0, 5000), max_size=6))
    def holds(data: bytes, places: list[int]) -> None:
        check(name, data, places)

    holds()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("content-length", b"CONTENT-LENGTH: 250\r\n\r\n" * 2),
        ("content-length", b"}\nX: " + b"y" * 3 * HEADER + encode_content_length(GOOD)),
        ("content-length", b"}\nX: y\nX: " + b"y" * HEADER + encode_content_length(GOOD)),
        ("length-prefixed", (b"\x00\x00\x01," + encode_length_prefixed(GOOD)) * 2),
        (SERVER + "content-length", b"Content-Length: 301\r\n\r\n" * 3),
        (SERVER + "length-prefixed", b"\x00\x00\x01\x2d" * 3),
        ("auto", b"\n" + encode_length_prefixed(GOOD)),
        ("auto", b"\r" * 120 + b"["),
    ],
)
def test_what_was_found_by_chance_stays_found(name: str, data: bytes) -> None:
    check(name, data, [])
    check(name, data[:-1], [])


# Time grows with the bytes: four times the bytes may not cost sixteen times the time.

NASTY: dict[str, list[tuple[str, bytes, bytes]]] = {
    # A name, what stands in front, and what is repeated.
    "content-length": [
        ("bodies that announce more than comes", b"", b"Content-Length: 10000000\r\n\r\n{"),
        ("bodies that reach over many headers", b"", b"Content-Length: 100000\r\n\r\n{"),
        ("bodies that swallow a good frame", b"",
         b"Content-Length: 90000\r\n\r\n" + encode_content_length(GOOD)),
        ("lengths that are too short", b"", b"Content-Length: 5\r\n\r\n{"),
        ("lengths that are no number", b"", b"Content-Length: x\n"),
        ("lengths that differ", b"", b"Content-Length: 1\nContent-Length: 2\n"),
        ("empty lines", b"", b"\n"),
        ("header marks in one line", b"garbage\n", b"Content-Length:"),
        ("header marks in quotes", b"garbage\n", b'Content-Length: "\n'),
        ("refused types", b"", b"Content-Type: a\nContent-Length: 100000\n\n{"),
        ("oversize", b"", b"Content-Length: 99999999\r\n\r\n{}"),
        ("a header without end", b"", b"X: y\n"),
        ("field lines after garbage", b"}\n", b"X: y\n"),
        ("field lines in a broken frame", b"Content-Length: 90000\r\n\r\n", b"X: y\n"),
        ("field lines and lengths", b"}\n", b"X: y\n" * 30 + b"Content-Length: x\n"),
        ("field lines and marks in quotes", b"}\n", b'X: y\nContent-Length: "\n'),
        ("field lines, and lengths inside others", b"}\n", b"X: y\nX: Content-Length: 1\n\n{"),
        ("a field line without end", b"}\nX:", b" y"),
        ("types in one line", b"}\n{", b'Content-Type: "'),
        ("types in one line, in pairs of quotes", b"}\n{", b'Content-Type: ""'),
    ],
    "length-prefixed": [
        ("payloads that announce more than comes", b"", b"\x00\x9f\xff\xff"),
        ("payloads that reach over many prefixes", b"", b"\x00\x00\xff\xff"),
        ("zeros", b"", b"\x00"),
        ("payloads without a newline", b"", b"\x00\x00\x00\x01"),
        ("payloads of newlines", b"", b"\x00\x00\x00\x02\n\n\n"),
    ],
    "lines": [
        ("empty lines", b"", b"\n"),
        ("broken lines", b"", b"{\n"),
        ("a line without end", b"", b"x"),
        ("carriage returns", b"", b"\r"),
    ],
}  # fmt: skip

BROKEN_TEXTS: list[tuple[str, bytes, bytes]] = [
    ("escaped quotes in a string without end", b'{"a":"', b'\\"'),
    ("backslashes in a string without end", b'{"a":"', b"\\"),
    ("a key without end", b'{"', b'\\"'),
    ("brackets", b'{"a":', b"["),
    ("objects", b"", b'{"a":'),
    ("members", b"{", b'"a":1,'),
    ("ids", b"{", b'"id":1,'),
    ("strings", b'{"a":[', b'"x" '),
    ("digits", b'{"id":', b"1"),
    ("spaces", b'{"id"', b" "),
    ("surrogates", b'{"id":"', b"\\ud800"),
    ("bytes that are not UTF-8", b'{"id":"', b"\xff"),
]


TOO_LONG = 20.0
"""Seconds for the largest of these inputs. It takes two; quadratic time would be an hour."""


def seconds(work: Callable[[bytes], object], data: bytes) -> float:
    """Return how long some work takes, in processor time."""
    start = time.process_time()
    work(data)
    return time.process_time() - start


def check_cost(work: Callable[[bytes], object], front: bytes, again: bytes, size: int) -> None:
    small = front + again * (size // len(again))
    large = front + again * (4 * size // len(again))
    few = min(seconds(work, small), seconds(work, small))
    limit = 10 * few + 0.05
    many = shortest(lambda: seconds(work, large), limit)
    assert many < limit, f"{size} bytes: {few:.3f} s; four times as many: {many:.3f} s"


def drain(name: str, piece: int) -> Callable[[bytes], None]:
    """Return what reads all of some bytes, with a timeout at the end and then no more."""

    def work(data: bytes) -> None:
        reader = MessageReader(FRAMINGS[name])
        until = time.process_time() + TOO_LONG
        for at in range(0, len(data), piece):
            reader.feed(data[at : at + piece])
            while reader.next() is not None:
                assert time.process_time() < until
        for step in (reader.expire, reader.finish):
            step()
            while reader.next() is not None:
                assert time.process_time() < until

    return work


@pytest.mark.parametrize("piece", [1, 1 << 30], ids=["bytes", "one piece"])
@pytest.mark.parametrize(
    ("name", "nasty"),
    [(name, each) for name, rows in NASTY.items() for each in rows],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_the_worst_input_takes_linear_time(
    name: str, nasty: tuple[str, bytes, bytes], piece: int
) -> None:
    check_cost(drain(name, piece), nasty[1], nasty[2], 6_000 if piece == 1 else 200_000)


@pytest.mark.parametrize("text", BROKEN_TEXTS, ids=lambda text: text[0])
def test_the_worst_text_takes_linear_time(text: tuple[str, bytes, bytes]) -> None:
    check_cost(read_message, text[1], text[2], 30_000)


@pytest.mark.parametrize(
    ("name", "again"),
    [
        ("content-length", b"Content-Length: 9000000\r\n\r\n{" + b"." * 100),
        ("length-prefixed", b"\x00\x9f\xff\xff" + b"." * 100),
    ],
    ids=["content-length", "length-prefixed"],
)
def test_ten_megabytes_of_nested_frames_are_read_in_seconds(name: str, again: bytes) -> None:
    drain(name, 65536)(again * (11_000_000 // len(again)))
