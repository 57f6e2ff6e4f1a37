"""Envelopes: what is inside a message keeps its text, and faults are those of the parser."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duet_rpc.jsonrpc.envelope import (
    Envelope,
    EnvelopeReader,
    encode_request,
    encode_result,
    error_of,
    id_in,
    member,
    one_line,
    open_envelope,
    replace,
    split_array,
    split_object,
    without,
)
from duet_rpc.jsonrpc.framing import CONTENT_LENGTH, LENGTH_PREFIXED, LINES, Framing
from duet_rpc.jsonrpc.messages import (
    Failure,
    Request,
    Response,
    encode_failure,
    encode_success,
    parse,
)
from tests.hostile import AT_END, GOOD, ROWS, Answer, Row, check, pieces_of
from tests.support import frame, load

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
TOP = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "x"])
MEMBERS = st.lists(st.tuples(TOP, st.sampled_from(["2.0", "a/b", 1, None, [], {}]) | JSON))
SPACES = st.sampled_from(["", " ", "\n", "\t \r\n"])


def write(members: list[tuple[str, Any]], space: str, ascii_only: bool) -> str:
    pairs = [
        f"{json.dumps(key)}{space}:{space}{json.dumps(value, ensure_ascii=ascii_only)}"
        for key, value in members
    ]
    return space + "{" + space + f"{space},{space}".join(pairs) + space + "}" + space


@given(MEMBERS, SPACES, st.booleans())
def test_it_sees_what_the_parser_sees(
    members: list[tuple[str, Any]], space: str, ascii_only: bool
) -> None:
    text = write(members, space, ascii_only)
    try:
        body = text.encode()
    except UnicodeEncodeError:
        return
    same(body)
    found, end = split_object(text.strip())
    assert end == len(text.strip())
    assert {name: value for name, (value, _, _) in found.items()} == json.loads(text)
    for name, (value, start, stop) in found.items():
        assert json.loads(text.strip()[start:stop]) == value
        assert member(text.strip(), name) == text.strip()[start:stop]


def same(body: bytes) -> None:
    """Check that the two readers agree about a body."""
    expected, found = parse(body), open_envelope(body)
    if isinstance(expected, Failure):
        assert isinstance(found, Failure)
        assert (found.id, found.code, found.message) == (
            expected.id, expected.code, expected.message,
        )  # fmt: skip
        return
    assert isinstance(found, Envelope)
    if isinstance(expected, Request):
        assert (found.method, found.id) == (expected.method, expected.id)
        assert found.value("params") == expected.params
        assert found.params is None or json.loads(found.params) == expected.params
    else:
        assert isinstance(expected, Response)
        assert found.method is None
        assert found.id == expected.id


@given(st.binary() | st.text().map(str.encode))
def test_it_never_raises(body: bytes) -> None:
    same(body)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"{}", b"[]", b'{"a"', b'{"a":', b'{"a":1', b'{"a":1,', b'{"a":1,}', b"{]}",
        b'{"a":1}x', b'{"a" 1}', b'{a:1}', b'{"id":1,"id":2,"jsonrpc":"2.0","method":"m"}',
        b'{"jsonrpc":"2.0","id":01,"method":"m","params":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":NaN}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":3}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{},"params":[]}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","result":1}',
        b'{"jsonrpc":"2.0","id":1,"params":{}}',
        b'{"jsonrpc":"2.0","id":{},"method":"m","params":{}}',
        b'{"jsonrpc":"2.0","id":{},"result":1}', b'{"id":true,"error":1}',
        b'{"jsonrpc":"1.0","id":1,"method":"m","params":{}}',
        b'{"id":1,"method":"m","params":{}}', b'{"method":"m","jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","id":"\\u0061","method":"\\u006d","params":null}',
        b'{"jsonrpc":"2.0","id":"\xc3\xa9","method":"m","params":null}',
        b'{"jsonrpc":"2.0","id":-0,"method":"m"}', b'{"jsonrpc":"2.0","id":1e400,"method":"m"}',
        b'{"jsonrpc":"2.0",\x0c"id":1,"method":"m","params":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":\x0b{}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{}}\x0c', b'{"id":1,"result":1}\x0b',
        b'{"id":1,"method":"m","result":1}',
        b'{"jsonrpc":"2.0","method":"m","a\nb":1}', b'{"result":1,"a\tb":1}',
        b"\xff", b'{"a":' + b"[" * 100_000, b"\xef\xbb\xbf{}",
        b'{"jsonrpc":"2.0","method":"m"}x', b'{"jsonrpc":"2.0","method":"m"} \r\n',
    ],
)  # fmt: skip
def test_known_hard_ones(body: bytes) -> None:
    same(body)


def test_what_is_inside_keeps_its_text() -> None:
    inside = '{"a":1.0,"b" : 123456789012345678901234567890,"c":"\\ud800","d":1e400}'
    for text in (
        f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{inside}}}',
        f'{{ "params" : {inside} , "x":1, "method":"m","jsonrpc":"2.0" }}',
    ):
        envelope = open_envelope(text.encode())
        assert isinstance(envelope, Envelope)
        assert envelope.params == inside
    params = f'"method":"m","params":{inside}}}'
    assert encode_request("m", inside, 7) == f'{{"jsonrpc":"2.0","id":7,{params}'
    assert encode_request("m", inside) == f'{{"jsonrpc":"2.0",{params}'
    assert encode_result('"x"', inside) == f'{{"jsonrpc":"2.0","id":"x","result":{inside}}}'


def test_members_are_replaced_taken_out_and_split() -> None:
    text = '{ "a" : {"b":1.0, "c":[1.0 , 2]},"d":"\\u0061"}'
    assert replace(text, ("a", "b"), '"x"') == '{ "a" : {"b":"x", "c":[1.0 , 2]},"d":"\\u0061"}'
    assert member(text, "nothing") is None
    assert list(split_array(member(member(text, "a") or "", "c") or "")) == ["1.0", "2"]
    assert list(split_array("[1,[2,3],4]")) == ["1", "[2,3]", "4"]
    assert list(split_array("[ ]")) == []
    assert without(text, "a") == '{"d":"\\u0061"}'
    assert without('{"a":1.0,"b":2, "c":3}', "b") == '{"a":1.0,"c":3}'
    assert id_in(text, "d") == '"a"'
    assert id_in('{"id":1.0}', "id") == "1.0"
    assert id_in("{}", "id") is None
    assert json.loads(one_line('{"a":\r\n"\\n"}')) == {"a": "\n"}
    for text in ("[\n1\n]", "[\r1\r]", "[\n1\r]"):
        assert one_line(text) == "[ 1 ]"


@pytest.mark.parametrize(
    ("response", "error"),
    [
        ('{"result":1}', None),
        ('{"result":1,"error":null}', None),
        ('{"error":{"code":1,"message":"m"}}', '{"code":1,"message":"m"}'),
        ('{"error":{"code" : 1, "message":"m","data" : 1.0}}',
         '{"code" : 1, "message":"m","data" : 1.0}'),
        ('{"error":{"message":"m","x":1,"data":1.0,"code":1}}',
         '{"code":1,"message":"m","data":1.0}'),
        ('{"error":"text"}', ""), ('{"error":{"code":1.5,"message":"m"}}', ""),
        ('{"error":{"code":1}}', ""), ('{"error":{"code":true,"message":"m"}}', ""),
    ],
)  # fmt: skip
def test_errors_have_no_further_member(response: str, error: str | None) -> None:
    envelope = open_envelope(response.encode())
    assert isinstance(envelope, Envelope)
    assert error_of(envelope) == error


@given(st.data())
def test_the_reader_gives_the_same_however_the_bytes_are_cut(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["content-length", "lines", "length-prefixed"]))
    framing: Framing = {"content-length": CONTENT_LENGTH, "lines": LINES,
                        "length-prefixed": LENGTH_PREFIXED}[name]  # fmt: skip
    good = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":1.0}}'
    bodies = data.draw(st.lists(st.sampled_from([good, b"{nonsense", b'{"result":1}']), max_size=6))
    stream = b"".join(map(framing.encode, bodies))
    whole = read(framing, [framing.encode(body) for body in bodies])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)]) if a < b]
    assert read(framing, pieces) == whole
    assert whole.count(("m", "1", '{"x":1.0}')) == bodies.count(good)


def read(framing: Framing, pieces: list[bytes]) -> list[object]:
    """Read as the gateway does."""
    reader, found = EnvelopeReader(framing), list[object]()
    for piece in pieces:
        message: Envelope | Failure | None = reader.take(piece) or reader.next()
        while message is not None:
            if isinstance(message, Failure):
                found.append(message.code)
            else:
                found.append((message.method, message.id, message.params))
            message = reader.next() if reader.more else None
    return found


# What is wrong is answered as the daemon answers it.


def replies_to(pieces: list[bytes], end: bool = False) -> list[dict[str, object]]:
    """Read as the gateway reads its client; return what it would reply."""
    reader, replies = EnvelopeReader(CONTENT_LENGTH), list[dict[str, object]]()

    def reply(message: Envelope | Failure | None) -> None:
        while message is not None:
            if isinstance(message, Failure):
                replies.append(load(encode_failure(message)))
            elif message.method is not None and message.id is not None:
                replies.append(load(encode_success(message.id, b"0")))
            message = reader.next() if reader.more else None

    for piece in pieces:
        reply(reader.take(piece) or reader.next())
    if end:
        reader.finish()
        reply(reader.next())
    return replies


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_hostile_input_costs_its_faults_and_not_the_next_frame(row: Row) -> None:
    expected = [Row(row.name, b"", [*row.expected, Answer("good")])]
    for size in (7, len(row.data) or 1, 1 << 30):
        if size > 7 or len(row.data) < 20_000:
            check(expected, replies_to([*pieces_of(row.data, size), GOOD]))
            check(expected, replies_to(pieces_of(row.data + GOOD, size)))


def test_all_rows_in_a_row_are_answered() -> None:
    rows = [Row(row.name, b"", [*row.expected, Answer("good")]) for row in ROWS]
    data = b"".join(row.data + GOOD for row in ROWS)
    check(rows, replies_to(pieces_of(data, 64 * 1024)))


@pytest.mark.parametrize("row", AT_END, ids=lambda row: row.name)
def test_the_end_of_input_is_one_fault_at_most(row: Row) -> None:
    for size in (1, 1 << 30):
        check([row], replies_to(pieces_of(row.data, size), end=True))


ANSWER = b'{"jsonrpc":"2.0","id":1,"result":[]}'


def test_a_server_may_name_another_content_type_and_a_client_may_not() -> None:
    data = frame(ANSWER, "Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n")
    for from_server in (True, False):
        reader = EnvelopeReader(CONTENT_LENGTH, from_server)
        assert reader.take(data) is None
        message = reader.next()
        assert message is not None
        assert message.id == "1"
        assert isinstance(message, Envelope if from_server else Failure)


@pytest.mark.parametrize("off", [-1, 1, 10, 40])
def test_a_length_that_is_off_is_seen_in_a_piece_that_looks_like_one_frame(off: int) -> None:
    reader = EnvelopeReader(CONTENT_LENGTH, from_server=True)
    assert reader.take(b"Content-Length: %d\r\n\r\n" % (len(ANSWER) + off) + ANSWER) is None
    message = reader.next()
    assert isinstance(message, Failure) if off < 0 else message is None
    assert reader.partial == (off > 0)


@pytest.mark.parametrize("framing", [CONTENT_LENGTH, LENGTH_PREFIXED, LINES])
def test_between_messages_nothing_is_pending(framing: Framing) -> None:
    reader = EnvelopeReader(framing)
    data = framing.encode(ANSWER)
    for pieces in ([data], [data[:30], data[30:]], [framing.encode(b"{"), data]):
        for piece in pieces:
            message = reader.take(piece) or reader.next()
            while message is not None:
                message = reader.next()
        assert not reader.partial
    assert reader.take(data[:30]) is None
    states = [reader.partial]
    assert reader.next() is None
    states.append(reader.partial)
    assert states == [True, True]
