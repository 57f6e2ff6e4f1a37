"""Messages that are passed on: what they carry keeps its text, and faults are the parser's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duet_rpc.gateway.wire import id_in, to_frame
from duet_rpc.jsonrpc.framing import CONTENT_LENGTH, FRAMINGS, LENGTH_PREFIXED, LINES, Framing
from duet_rpc.jsonrpc.jsontext import member, replace, split_array, split_object, without
from duet_rpc.jsonrpc.messages import (
    Failure,
    InvalidMessage,
    Notification,
    Request,
    Success,
    encode,
    read_message,
)
from duet_rpc.jsonrpc.reader import MessageReader
from duet_rpc.jsonrpc.values import ExactNumber, RawJson
from tests.support import frame

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
def test_raw_messages_are_those_that_the_parser_sees(
    members: list[tuple[str, Any]], space: str, ascii_only: bool
) -> None:
    text = write(members, space, ascii_only)
    try:
        body = text.encode()
    except UnicodeEncodeError:
        return
    check_same(body)
    found, end = split_object(text.strip())
    assert end == len(text.strip())
    assert {name: value for name, (value, _, _) in found.items()} == json.loads(text)
    for name, (value, start, stop) in found.items():
        assert json.loads(text.strip()[start:stop]) == value
        assert member(text.strip(), name) == text.strip()[start:stop]


@pytest.mark.parametrize(
    "body",
    [
        '{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":5},"params":[1]}',
        '{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":[5]},"result":1}',
        '{"jsonrpc":"2.0","id":1,"method":"m","params":[2],"result":1}',
        '{"jsonrpc":"2.0","id":1,"method":"m","params":[2],"params":[1]}',
        '{"jsonrpc":"2.0","id":1,"method":"m","x":{"y":1,"params":[2]}}',
        '{"jsonrpc":"2.0","id":1,"method":"m","x":[1,"params"],"params":[2]}',
        '{"jsonrpc":"2.0","id":",\\"params\\":1","method":"m","params":[2]}',
        '{"jsonrpc":"2.0","id":1,"method":"m","params":[2]}}',
        '{"jsonrpc":"2.0","id":1,"method":"m","params":[2],"x":1}',
        '[{"jsonrpc":"2.0","id":1,"method":"m","params":[2]}',
        '{"jsonrpc":"2.0","id":1,"method":"m","params":[2]} \n',
    ],
)
def test_what_looks_like_the_payload_is_not_taken_for_it(body: str) -> None:
    check_same(body.encode())


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_the_same_to_both(body: bytes) -> None:
    check_same(body)


def check_same(body: bytes) -> None:
    """Check that a body is the same message with and without `raw`."""
    plain, found = read_message(body), read_message(body, raw=True)
    if isinstance(plain, list):
        assert isinstance(found, list)
        return
    assert type(found) is type(plain)
    if isinstance(plain, InvalidMessage):
        assert isinstance(found, InvalidMessage)
        assert found.failure.id == plain.failure.id
        # Only where both have found the text to be JSON do they say the same of it.
        assert found.failure.error.code == plain.failure.error.code
    elif isinstance(plain, (Request, Notification)):
        assert isinstance(found, (Request, Notification))
        assert found.method == plain.method
        check_value(found.params, plain.params)
    elif isinstance(plain, Success):
        assert isinstance(found, Success)
        assert found.id == plain.id
        check_value(found.result, plain.result)
    else:
        assert isinstance(found, Failure)
        assert (found.id, found.error.code) == (plain.id, plain.error.code)
        check_value(found.error.data, plain.error.data)


def check_value(found: object, value: object) -> None:
    if isinstance(found, RawJson):
        assert found.value == value
        assert json.loads(found.text) == value
    else:
        assert found is value is None


INSIDE = '{"a":1.0,"b" : 123456789012345678901234567890,"c":"\\ud800","d":1e400}'


@pytest.mark.parametrize(
    "text",
    [
        f'{{"jsonrpc":"2.0","id":1e2,"method":"m","params":{INSIDE}}}',
        f'{{"jsonrpc":"2.0","method":"m","params":{INSIDE}}}',
        f'{{"jsonrpc":"2.0","id":"x","result":{INSIDE}}}',
        f'{{"jsonrpc":"2.0","id":-0,"error":{{"code":1,"message":"m","data":{INSIDE}}}}}',
    ],
)
def test_what_a_message_carries_keeps_its_text(text: str) -> None:
    message = read_message(text.encode(), raw=True)
    assert isinstance(message, (Request, Notification, Success, Failure))
    assert encode(message).decode() == text


def test_a_failure_has_no_further_member() -> None:
    error = '{"message":"m","x":1,"data" : 1.0,"code":1}'
    message = read_message(f'{{"jsonrpc":"2.0","id":1,"error":{error}}}'.encode(), raw=True)
    assert isinstance(message, Failure)
    written = '{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":1.0}}'
    assert encode(message).decode() == written


def test_members_are_replaced_removed_and_split() -> None:
    text = '{ "a" : {"b":1.0, "c":[1.0 , 2]},"d":"\\u0061"}'
    assert replace(text, ("a", "b"), '"x"') == '{ "a" : {"b":"x", "c":[1.0 , 2]},"d":"\\u0061"}'
    assert member(text, "nothing") is None
    assert list(split_array(member(member(text, "a") or "", "c") or "")) == ["1.0", "2"]
    assert list(split_array("[1,[2,3],4]")) == ["1", "[2,3]", "4"]
    assert list(split_array("[ ]")) == []
    assert without(text, "a") == '{"d":"\\u0061"}'
    assert without('{"a":1.0,"b":2, "c":3}', "b") == '{"a":1.0,"c":3}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"id":1}', (True, 1)), ('{"id":0}', (True, 0)), ('{"id":null}', (True, None)),
        ('{"id":1.0}', (True, ExactNumber("1.0"))), ('{"id":-0}', (True, ExactNumber("-0"))),
        ('{"id":1e400}', (True, ExactNumber("1e400"))), ('{"id":"\\u0061"}', (True, "a")),
        ('{"id":true}', (False, True)), ('{"id":{}}', (False, {})), ("{}", (False, None)),
        ("[]", (False, None)),
    ],
)  # fmt: skip
def test_an_id_in_params_keeps_its_spelling(text: str, expected: tuple[bool, object]) -> None:
    found = id_in(RawJson(text, json.loads(text)), "id")
    assert found == expected
    assert type(found[1]) is type(expected[1])


@pytest.mark.parametrize("framing", FRAMINGS.values(), ids=str)
def test_a_lines_frame_is_always_one_line(framing: Framing) -> None:
    data = to_frame(Success(1, RawJson("[\n1,\r2]", None)), framing)
    if framing is LINES:
        assert data == b'{"jsonrpc":"2.0","id":1,"result":[ 1, 2]}\n'
    else:
        assert b"[\n1,\r2]" in data


GOOD = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":1.0}}'


@given(st.data())
def test_the_messages_are_the_same_however_the_bytes_are_cut(data: st.DataObject) -> None:
    framing = data.draw(st.sampled_from(list(FRAMINGS.values())))
    bodies = data.draw(st.lists(st.sampled_from([GOOD, b"{nonsense", b'{"result":1}']), max_size=6))
    stream = b"".join(map(framing.encode, bodies))
    whole = read(framing, [framing.encode(body) for body in bodies])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)]) if a < b]
    assert read(framing, chunks) == whole
    assert whole.count(Request("m", RawJson('{"x":1.0}', None), 1)) == bodies.count(GOOD)


def read(framing: Framing, chunks: list[bytes]) -> list[object]:
    """Read as the gateway reads its client."""
    reader, found = MessageReader(framing, raw=True), list[object]()
    for chunk in chunks:
        reader.feed(chunk)
        message = reader.next()
        while message is not None:
            is_invalid = isinstance(message, InvalidMessage)
            found.append(message.failure if is_invalid else message)  # type: ignore[union-attr]
            message = reader.next()
    return found


REPLY = b'{"jsonrpc":"2.0","id":1,"result":[]}'


def test_only_a_server_may_name_another_content_type() -> None:
    data = frame(REPLY, "Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n")
    for from_server in (True, False):
        reader = MessageReader(CONTENT_LENGTH, raw=True, from_server=from_server)
        reader.feed(data)
        message = reader.next()
        assert isinstance(message, Success if from_server else InvalidMessage)


@pytest.mark.parametrize("off", [-1, 1, 10, 40])
def test_a_length_that_is_off_is_noticed(off: int) -> None:
    reader = MessageReader(CONTENT_LENGTH, raw=True, from_server=True)
    reader.feed(b"Content-Length: %d\r\n\r\n" % (len(REPLY) + off) + REPLY)
    message = reader.next()
    assert isinstance(message, InvalidMessage) if off < 0 else message is None
    assert reader.partial == (off > 0)


@pytest.mark.parametrize("framing", [CONTENT_LENGTH, LENGTH_PREFIXED, LINES])
def test_between_messages_no_frame_is_partial(framing: Framing) -> None:
    reader = MessageReader(framing, raw=True)
    data = framing.encode(REPLY)
    for chunks in ([data], [data[:30], data[30:]], [framing.encode(b"{"), data]):
        for chunk in chunks:
            reader.feed(chunk)
            while reader.next() is not None:
                pass
        assert not reader.partial
    reader.feed(data[:30])
    assert reader.next() is None
    assert reader.partial
