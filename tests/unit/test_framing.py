"""The decoder: bytes in, frames and faults out, the same however they are cut."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duet_rpc.jsonrpc.content_length import ContentLengthDecoder, State
from duet_rpc.jsonrpc.errors import Fault
from duet_rpc.jsonrpc.framing import encode_content_length
from duet_rpc.jsonrpc.limits import BODY_MAX, HEADER_MAX, PEEK
from duet_rpc.jsonrpc.messages import InvalidMessage, Request
from duet_rpc.jsonrpc.reader import MessageReader
from tests.hostile import (
    AFTER_LOSS,
    AT_END,
    BAD_LENGTHS,
    GOOD,
    PLAIN,
    ROWS,
    VERSION,
    Row,
    check,
    decode,
    headed,
    length,
    pieces_of,
)
from tests.support import frame

SMALL = [row for row in ROWS if len(row.data) < 20_000]


def good(row: Row) -> Row:
    return Row(row.name, row.data + GOOD, [*row.expected, *check_good])


check_good = AT_END[-2].expected[-1:]


def test_the_table_knows_its_own_lengths() -> None:
    assert len(VERSION) == 43


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_hostile_input_never_costs_the_next_frame(row: Row) -> None:
    check([good(row)], decode([good(row).data]))


@pytest.mark.parametrize("row", SMALL, ids=lambda row: row.name)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_the_answer_does_not_depend_on_the_pieces(row: Row, size: int) -> None:
    check([good(row)], decode(pieces_of(good(row).data, size)))


@pytest.mark.parametrize("row", AFTER_LOSS, ids=lambda row: row.name)
def test_a_header_found_again_is_read_from_its_start(row: Row) -> None:
    data = good(row).data
    for size in (len(data), 1, 2, 7, 64):
        check([good(row)], decode(pieces_of(data, size)))


@pytest.mark.parametrize("row", AT_END, ids=lambda row: row.name)
@pytest.mark.parametrize("size", [1, 5, 100_000])
def test_the_end_of_input_is_one_fault_at_most(row: Row, size: int) -> None:
    check([row], decode(pieces_of(row.data, size), end=True))


def test_all_rows_in_a_row_are_answered() -> None:
    rows = [good(row) for row in ROWS]
    data = b"".join(row.data for row in rows)
    check(rows, decode(pieces_of(data, 64 * 1024)))


FRAGMENTS = st.sampled_from(
    [
        GOOD,
        GOOD[:-3],
        b"Content-Length: 43\r\n",
        b"content-length:5\n\n",
        b"Content-Length: 99999999\r\n\r\n",
        b"Content-Type: text/plain\r\n",
        b"\r\n",
        b"\n",
        b"garbage",
        b'"',
        b"{",
        b"Content-Le",
        b"X" * 5000,
        VERSION.encode(),
    ]
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(FRAGMENTS, st.binary(max_size=40)), max_size=12), st.randoms())
def test_chunking_never_changes_the_replies(parts: list[bytes], chance: random.Random) -> None:
    # The empty line ends a header that may be open: two lengths in one are a fault.
    prefix = b"".join(parts) + b"\n\n"
    data = prefix + GOOD
    whole = decode([data], end=True)
    assert whole == decode(pieces_of(data, 1), end=True)
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(5))
    edges = [0, *cuts, len(data)]
    assert whole == decode([data[a:b] for a, b in zip(edges, edges[1:])], end=True)
    # What a refused header announces is discarded by count, whatever it is.
    reader = MessageReader()
    reader.feed(prefix)
    while reader.next() is not None:
        pass
    decoder = reader._decoder
    assert isinstance(decoder, ContentLengthDecoder)
    if decoder._state is not State.REFUSED_BODY:
        assert whole[-1] == {"jsonrpc": "2.0", "id": "good", "result": 0}


def test_a_reply_has_the_one_header_that_emacs_wants() -> None:
    assert encode_content_length("é".encode()) == b"Content-Length: 2\r\n\r\n\xc3\xa9"


def test_a_body_may_have_exactly_the_maximum_size() -> None:
    decoder = ContentLengthDecoder()
    decoder.feed(frame(b" " * BODY_MAX))
    taken = decoder.next()
    assert isinstance(taken, bytes)
    assert len(taken) == BODY_MAX
    decoder.feed(b"Content-Length: %d\r\n\r\n" % (BODY_MAX + 1))
    fault = decoder.next()
    assert isinstance(fault, Fault)
    assert fault.error.data == {"reason": "oversize"}


def test_discarding_a_gigabyte_costs_no_memory() -> None:
    decoder = ContentLengthDecoder()
    decoder.feed(b"Content-Length: 1000000000\r\n\r\n")
    assert isinstance(decoder.next(), Fault)
    piece = b'{"a": "b"}, ' * 5000
    tracemalloc.start()
    for _ in range(1_000_000_000 // len(piece)):
        decoder.feed(piece)
        assert decoder.next() is None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    decoder.feed(GOOD)
    assert decoder.next() == GOOD.partition(b"\r\n\r\n")[2]


def test_a_large_body_is_copied_only_a_few_times() -> None:
    # Counted in bytes, not in seconds: every buffer that is made shows in the peak.
    data = frame(b"x" * (BODY_MAX - 1))
    pieces = pieces_of(data, 64 * 1024)
    decoder = ContentLengthDecoder()
    tracemalloc.start()
    for piece in pieces[:-1]:
        decoder.feed(piece)
        assert decoder.next() is None
    decoder.feed(pieces[-1])
    body = decoder.next()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(body, bytes)
    assert len(body) == BODY_MAX - 1
    assert peak < 2.6 * BODY_MAX


def test_a_lost_decoder_holds_at_most_one_header() -> None:
    decoder = ContentLengthDecoder()
    decoder.feed(b"garbage\n")
    assert isinstance(decoder.next(), Fault)
    decoder.feed(b"Content-Length: ")
    for _ in range(3 * HEADER_MAX):
        decoder.feed(b"123")
        assert decoder.next() is None
        assert len(decoder._buffer) <= 2 * HEADER_MAX


@pytest.mark.parametrize("line", [b"a: b\n", b"a: b", b"{", b"}\n", b"\n"], ids=repr)
def test_a_lost_decoder_keeps_no_endless_header_lines(line: bytes) -> None:
    decoder = ContentLengthDecoder()
    decoder.feed(b"garbage\n")
    assert isinstance(decoder.next(), Fault)
    for _ in range(20):
        decoder.feed(line * 2000)
        assert decoder.next() is None
        assert len(decoder._buffer) <= 2 * HEADER_MAX


def test_a_dropped_header_is_not_completed_by_its_rest() -> None:
    decoder = ContentLengthDecoder()
    decoder.feed(b"Content-Length: 4")
    assert decoder.next() is None
    assert decoder.partial
    decoder.expire()
    assert not decoder.partial
    decoder.feed(b"3\r\n\r\n" + VERSION.encode())
    assert decoder.next() is None
    decoder.feed(GOOD)
    assert decoder.next() == GOOD.partition(b"\r\n\r\n")[2]


def test_frames_swallowed_behind_a_long_header_are_served_after_all() -> None:
    decoder = ContentLengthDecoder()
    decoder.feed(b"X-Pad: " + b"a" * 2000)
    assert decoder.next() is None
    decoder.feed(b"\r\nContent-Length: %d\r\n\r\n" % (2 * len(GOOD)) + 2 * GOOD)
    assert decoder.next() == 2 * GOOD
    decoder.reject()
    assert [decoder.next() for _ in range(3)] == [*[GOOD.partition(b"\r\n\r\n")[2]] * 2, None]


def test_between_frames_nothing_is_pending() -> None:
    decoder = ContentLengthDecoder()
    assert not decoder.partial
    decoder.feed(b"\r\n\r\n" + GOOD + b"\n")
    assert isinstance(decoder.next(), bytes)
    assert decoder.next() is None
    assert not decoder.partial


def test_an_empty_body_takes_nothing_of_what_follows() -> None:
    decoder = ContentLengthDecoder()
    decoder.feed(b"Content-Length: 0\r\n\r\n" + GOOD)
    assert decoder.next() == b""
    assert decoder.next() == GOOD.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("value", BAD_LENGTHS.values(), ids=list(BAD_LENGTHS))
def test_an_invalid_length_is_never_taken_for_a_number(value: str) -> None:
    decoder = ContentLengthDecoder()
    decoder.feed(length(value))
    fault = decoder.next()
    assert isinstance(fault, Fault)
    assert fault.error.message == "Parse error: Content-Length is not a number"


@pytest.mark.parametrize("size", [10, 100_000])
def test_an_oversized_head_is_kept_after_a_broken_frame(size: int) -> None:
    decoder = ContentLengthDecoder(from_server=True)
    decoder.feed(frame(b"{" * 500) + frame(b" " * size))
    assert decoder.next() == b"{" * 500
    decoder.reject()
    assert decoder.next() == b" " * size
    assert decoder.next() is None
    decoder.feed(b"Content-Length: 99999999\r\n\r\n")
    assert decoder.next() is None
    head = b'{"jsonrpc":"2.0","id":7,'.ljust(PEEK)
    decoder.feed(head)
    fault = decoder.next()
    assert isinstance(fault, Fault)
    assert (fault.error.data, fault.body) == ({"reason": "oversize"}, head)


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b"Content-Le", "input ended inside a header"),
        (b"Content-Length: 43\r\n", "input ended inside a header"),
        (b"Content-Length: 43\r\n\r\n{", "input ended before the announced length"),
    ],
)
def test_where_the_input_ended_is_said(data: bytes, detail: str) -> None:
    decoder = ContentLengthDecoder()
    decoder.feed(data)
    assert decoder.next() is None
    decoder.finish()
    fault = decoder.next()
    assert isinstance(fault, Fault)
    assert fault.error.message == f"Parse error: {detail}"
    assert decoder.next() is None


@pytest.mark.parametrize("size", [500, 5000])
def test_nothing_inside_a_frame_that_never_ended_is_served(size: int) -> None:
    decoder = ContentLengthDecoder()
    decoder.feed(b"Content-Length: %d\r\n\r\n" % size + VERSION.encode() + GOOD)
    assert decoder.next() is None
    decoder.expire()
    assert decoder.next() is None
    assert not decoder.partial
    decoder.feed(GOOD)
    assert decoder.next() == GOOD.partition(b"\r\n\r\n")[2]


def test_a_refused_header_must_end_in_time() -> None:
    decoder = ContentLengthDecoder()
    decoder.feed(b"X: " + b"a" * 9000)
    assert isinstance(decoder.next(), Fault)
    for rest in (b"a" * 100_000, b"\r\nContent-Length: 100\r\n", b"\r\nsome of the body"):
        decoder.feed(rest)
        assert decoder.next() is None
        assert decoder.partial
        assert len(decoder._buffer) <= HEADER_MAX + 1
    decoder.expire()
    decoder.feed(GOOD)
    assert decoder.next() == GOOD.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("late", [b"", b'": 1}', b"ngth: 43\r\n\r\n{}\n"])
def test_after_a_timeout_headers_are_read_from_their_start(late: bytes) -> None:
    for piece in (1, 1000):
        decoder = ContentLengthDecoder()
        decoder.feed(b"Content-Length: 100\r\n\r\n{")
        assert decoder.next() is None
        decoder.expire()
        for chunk in pieces_of(late + headed(PLAIN), piece):
            decoder.feed(chunk)
            event = decoder.next()
        assert isinstance(event, Fault)
        assert event.error.data == {"reason": "unsupported-content-type"}


class Moved(bytearray):
    """A buffer that counts the bytes that are moved where something is inserted in front of them.

    What is deleted at the front moves nothing in CPython.
    """

    bytes = 0

    def __setitem__(self, at: Any, value: Any) -> None:
        before = len(self)
        super().__setitem__(at, value)
        if len(self) != before:
            self.bytes += before


@pytest.mark.parametrize("inner", [b"{x", b"{" + b"x" * 500], ids=len)
def test_broken_frames_in_a_frame_move_nothing(inner: bytes) -> None:
    reader = MessageReader()
    moved = reader._decoder._buffer = Moved()  # type: ignore[attr-defined]
    data = frame(b"{" + frame(inner) * 1000)
    reader.feed(data + GOOD)
    faults = [reader.next() for _ in range(1001)]
    assert all(isinstance(each, InvalidMessage) for each in faults)
    assert isinstance(reader.next(), Request)
    assert moved.bytes <= len(data)


def test_header_lines_without_a_length_time_out() -> None:
    decoder = ContentLengthDecoder()
    decoder.feed(b"garbage\n")
    assert isinstance(decoder.next(), Fault)
    assert not decoder.partial
    decoder.feed(PLAIN.encode() + b"\r\n")
    assert decoder.next() is None
    assert decoder.partial
    decoder.expire()
    assert not decoder.partial
    decoder.feed(GOOD)
    assert decoder.next() == GOOD.partition(b"\r\n\r\n")[2]
