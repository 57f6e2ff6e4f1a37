"""JSON text to messages and back."""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duet_rpc.jsonrpc import (
    Error,
    ErrorCode,
    ExactNumber,
    Failure,
    InvalidMessage,
    Notification,
    RawJson,
    Request,
    Success,
    encode,
    parse,
)
from duet_rpc.jsonrpc.jsontext import dumps, to_utf8
from duet_rpc.jsonrpc.messages import exact_member, read_message
from duet_rpc.jsonrpc.salvage import find_id
from tests.support import TOP

IDS = [
    "1",
    "0",
    "-0",
    "-1",
    "1.0",
    "-0.0",
    "1e2",
    "1E+2",
    "1e400",
    "-1e400",
    "1e-400",
    "9007199254740993",
    "123456789012345678901234567890",
    "0." + "1234567890" * 4,
    '"1"',
    '""',
    '"\\ud800"',
    '"\\ud83d\\ude00"',
    '"a\\"b\\\\c\\u0000"',
    "null",
]


def refuse(body: bytes) -> Failure:
    """Return the reply to what is not a message."""
    with pytest.raises(InvalidMessage) as caught:
        parse(body)
    return caught.value.failure


def envelope(id: str, rest: str = '"method":"m"') -> bytes:
    return f'{{"jsonrpc":"2.0","id":{id},{rest}}}'.encode()


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("place", ['"id":{},"method":"m"', '"method":"m" , "id" : {} '])
def test_an_id_comes_back_as_it_went_in(id: str, place: str, raw: bool) -> None:
    message = read_message(('{"jsonrpc":"2.0",' + place.replace("{}", id) + "}").encode(), raw)
    assert isinstance(message, Request)
    assert encode(Success(message.id, 1)) == b'{"jsonrpc":"2.0","id":%b,"result":1}' % id.encode()


@pytest.mark.parametrize("id", IDS)
def test_the_id_of_a_broken_message_is_read(id: str) -> None:
    failure = refuse(envelope(id, '"params":[NaN, {"id":99}], "more": [1'))
    assert failure.error.code == ErrorCode.PARSE_ERROR
    assert b'"id":%b,' % id.encode() in encode(failure)


def test_an_id_of_letters_beyond_ascii_is_the_same_string() -> None:
    message = parse('{"jsonrpc":"2.0","id":"日本\u2028😀","method":"m"}'.encode())
    assert isinstance(message, Request)
    assert message.id == "日本\u2028😀"
    assert encode(Success(message.id, None)).isascii()


def test_null_is_an_id_and_no_id_is_a_notification() -> None:
    assert parse(b'{"jsonrpc":"2.0","method":"m"}') == Notification("m")
    assert parse(envelope("null")) == Request("m", id=None)
    assert (Notification("m").is_notification, Request("m", id=1).is_notification) == (True, False)
    with pytest.raises(InvalidMessage) as caught:
        parse(envelope("null"), allow_null_id=False)
    assert caught.value.failure.error.data == {"reason": "invalid-id-type"}


def test_of_two_ids_the_last_counts_broken_or_not() -> None:
    whole = parse(b'{"jsonrpc":"2.0","id":1.0,"id":2.0,"method":"m"}')
    assert whole == Request("m", id=ExactNumber("2.0"))
    assert find_id(b'{"id":1.0,"id":2.0,') == "2.0"
    assert find_id(b'{"id":1,"id":[],') is None


def test_numbers_that_are_spelled_differently_are_different_ids() -> None:
    ids = [1, ExactNumber("1.0"), ExactNumber("1e0"), "1", ExactNumber("1e400"),
           ExactNumber("2e400"), 0, ExactNumber("-0"), None]  # fmt: skip
    assert len(dict.fromkeys(ids)) == len(ids)
    for at, id in enumerate(ids):
        assert [Request("m", id=id) == Request("m", id=other) for other in ids] == [
            at == index for index in range(len(ids))
        ]
    assert Request("m", id=1.5).id == 1.5  # which one can say
    assert encode(Success(1.5, 0)) == b'{"jsonrpc":"2.0","id":1.5,"result":0}'


@pytest.mark.parametrize(
    "make",
    [
        lambda: Request("m"),
        lambda: Request(1, id=1),  # type: ignore[arg-type]
        lambda: Request("m", "params", id=1),  # type: ignore[arg-type]
        lambda: Request("m", id=True),
        lambda: Request("m", id=[]),
        lambda: Notification(None),  # type: ignore[arg-type]
        lambda: Success({}, 1),
        lambda: Failure(1, "error"),  # type: ignore[arg-type]
        lambda: Error(True, "m"),
        lambda: Error("1", "m"),  # type: ignore[arg-type]
        lambda: Error(1, None),  # type: ignore[arg-type]
        lambda: Request("m", id=math.nan),
        lambda: ExactNumber("01"),
    ],
)
def test_what_is_not_a_message_can_not_be_built(make: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        make()  # type: ignore[operator]


MESSAGES = [
    Request("m", id=1),
    Request("m", {"a": [1.5, None]}, "x"),
    Notification("m", [1]),
    Success(None, {"a": 1}),
    Failure(ExactNumber("1e400"), Error.invalid_params("a: wrong", {"param": "a"})),
]


@pytest.mark.parametrize("message", MESSAGES, ids=repr)
def test_a_message_survives_the_way_out_and_in(message: Request) -> None:
    assert parse(encode(message)) == message
    assert parse(encode(message).decode()) == message
    assert pickle.loads(pickle.dumps(message)) == message  # noqa: S301
    assert copy.copy(message) == message
    assert eval(repr(message)) == message  # noqa: S307
    with pytest.raises(AttributeError):
        message.method = "other"
    assert parse(encode([message, message])) == [message, message]


def test_messages_are_hashable_where_what_they_carry_is() -> None:
    assert {Notification("m"), Notification("m"), Request("m", id=1)} == {
        Notification("m"), Request("m", id=1),
    }  # fmt: skip


def test_the_standard_errors_have_their_codes_and_words() -> None:
    made = [Error.parse_error(), Error.invalid_request(), Error.method_not_found(),
            Error.invalid_params(), Error.internal_error()]  # fmt: skip
    assert [(each.code, each.message) for each in made] == [
        (code.value, code.message) for code in ErrorCode
    ]
    assert encode(Failure(1, made[0])) == (
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-32700,"message":"Parse error"}}'
    )


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ('"jsonrpc":"1.0","id":1,"result":1', 'jsonrpc must be "2.0"'),
        ('"id":1,"result":1', 'jsonrpc must be "2.0"'),
        ('"jsonrpc":"2.0","id":1,"result":1,"error":null',
         "a reply has a result or an error, not both"),
        ('"jsonrpc":"2.0","result":1', "a reply has an id"),
        ('"jsonrpc":"2.0","id":1,"error":null', "error must be an object"),
        ('"jsonrpc":"2.0","id":1,"error":{"code":1.0,"message":"m"}',
         "an error has an integer for its code and a string for its message"),
        ('"jsonrpc":"2.0","id":1,"error":{"code":1}',
         "an error has an integer for its code and a string for its message"),
        ('"jsonrpc":"2.0","id":1', "method must be a string"),
        ('"jsonrpc":"2.0","id":1,"method":"m","params":1', "params must be an object or an array"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("raw", [False, True])
def test_what_is_wrong_with_a_message_is_said(text: str, detail: str, raw: bool) -> None:
    found = read_message(f"{{{text}}}".encode(), raw)
    assert isinstance(found, InvalidMessage)
    assert found.failure.error.message == f"Invalid Request: {detail}"


def test_an_invalid_message_tells_its_id_and_its_method() -> None:
    for text, id, known, method in (
        ('{"jsonrpc":"1.0","id":7,"method":"m"}', 7, True, "m"),
        ('{"jsonrpc":"1.0","id":null,"method":"m"}', None, True, "m"),
        ('{"jsonrpc":"2.0","id":{},"method":"m"}', None, False, "m"),
        ('{"jsonrpc":"2.0","method":"m","id":7,', 7, True, "m"),
        ('{"jsonrpc":"2.0","method":7}', None, False, None),
        ("garbage", None, False, None),
    ):
        found = read_message(text.encode())
        assert isinstance(found, InvalidMessage)
        assert (found.failure.id, found.id_known, found.method) == (id, known, method), text


@pytest.mark.parametrize(
    "text", ["1.0", "1e400", "-0", "[1.0, 2]", '{"a":1E5}', '"\\ud800"', "9" * 30, " 1", "null "]
)
def test_raw_values_are_written_as_they_came(text: str) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"result":%b}' % text.strip().encode()
    message = read_message(body, raw=True)
    assert isinstance(message, Success)
    assert message.result == RawJson(text.strip(), None)
    assert encode(message) == body
    failed = b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":%b}}' % (
        text.strip().encode()
    )
    message = read_message(failed, raw=True)
    assert isinstance(message, Failure)
    assert message.error.data is None or encode(message) == failed
    call = f'{{"jsonrpc":"2.0","method":"m","params":[{text}]}}'
    notification = read_message(call.encode(), raw=True)
    assert isinstance(notification, Notification)
    assert encode(notification).decode() == call


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_an_invalid_one(data: bytes) -> None:
    plain, raw = read_message(data), read_message(data, raw=True)
    assert type(plain) is type(raw)
    if isinstance(plain, InvalidMessage) and isinstance(raw, InvalidMessage):
        assert plain.failure.id == raw.failure.id


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(JSON, st.integers() | st.text())
def test_values_survive_the_way_in_and_out(value: object, id: object) -> None:
    text = json.dumps({"jsonrpc": "2.0", "id": id, "method": "m", "params": [value]})
    message = parse(text)
    assert isinstance(message, Request)
    assert message.params == [value]
    assert json.loads(dumps(value)) == value
    assert message.id == id
    assert refuse(text.encode()[:-1]).id == id


@pytest.mark.parametrize("text", ["1e400", "1.0", "1e2", "-0", "0", "7", '"a"'])
def test_the_spelling_of_a_number_can_be_kept(text: str) -> None:
    body = f'{{"jsonrpc":"2.0","method":"m","params":{{"id": {text} }}}}'.encode()
    value = json.loads(text)
    found = exact_member(body, ("params", "id"), value)
    assert encode(Success(found, 0)) == b'{"jsonrpc":"2.0","id":%b,"result":0}' % text.encode()


@pytest.mark.parametrize("limit", ["0", "640", "5000"])
def test_it_is_the_longest_whatever_the_interpreter_says(limit: str) -> None:
    script = """if True:
        from duet_rpc.jsonrpc.messages import read_message
        for digits in (600, 4300, 4301):
            text = b'{"id":1,"params":[%b]}' % (b"9" * digits)
            print(read_message(text).failure.error.message)
    """
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONINTMAXSTRDIGITS": limit},
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    )
    taken, refused = 'Invalid Request: jsonrpc must be "2.0"', "Parse error: integer too long"
    longest = refused if limit == "640" and hasattr(sys, "set_int_max_str_digits") else taken
    assert done.stdout.splitlines() == [taken, longest, refused]


def test_results_are_json_that_emacs_can_read() -> None:
    assert dumps({"a": ["é", 1.5, None, True]}) == '{"a":["é",1.5,null,true]}'
    assert to_utf8(dumps("a\ud800b")) == '"a\ufffdb"'.encode()
    assert to_utf8(dumps("\ud83d\ude00")) == '"😀"'.encode()
    circle: list[object] = []
    circle.append(circle)
    for bad in (math.nan, [math.inf], {1, 2}, object(), b"bytes", circle):
        with pytest.raises((ValueError, TypeError)):
            dumps(bad)


@pytest.mark.parametrize(
    "text",
    [
        '{"params":{"id":1},"method":"m"',
        '{"a":"\\"id\\":1,","b"',
        '["id",1]',
        '"id":1,',
        '{"xid":1,',
        '{"id":true,',
        '{"id":01,',
        '{"id":1',
        '{"id":"1',
        '{"id":١,',
        "",
        "{",
        '{"id"',
    ],
)
def test_what_only_looks_like_an_id_is_none(text: str) -> None:
    assert find_id(text.encode()) is None


@pytest.mark.parametrize("byte", [b"\x80", b"\xc3", b"\xff"])
def test_an_id_with_invalid_utf_8_is_not_echoed(byte: bytes) -> None:
    assert find_id(b'{"id":"a' + byte + b'","x":') is None


def test_the_id_behind_a_string_with_an_escape_is_read() -> None:
    for value in ('"\\n,x"', '"x\\n,x"', '"\\q,x"', '"\\q"', '"\\q\\",x"', '"\\",\\"id\\":8,"'):
        text = f'{{"a":{value},"id":7,"b":'
        assert find_id(text.encode()) == "7", value


def test_an_escaped_key_is_the_same_key() -> None:
    assert find_id(b'{"\\u0069d":5,"x":') == "5"


MANY = 500_000


@pytest.mark.parametrize(
    "rest",
    [
        '"' + '\\"' * MANY,
        '"' + "\\\\" * MANY,
        '"\\q' + '\\"' * MANY,
        '"\\q' + "\\\\" * MANY,
        '\\"' * MANY,
        '"' * MANY,
        '"",' * MANY,
        '"id":"' * MANY,
        '"x" ' * MANY,
        '{"' * MANY,
        '{"a":' * MANY,
        "[{" * MANY,
        "," * MANY,
        " " * MANY,
    ],
    ids=lambda rest: rest[:8],
)
def test_a_broken_text_is_searched_once_for_its_id(rest: str) -> None:
    # In a pass for each of its characters this would take hours.
    before = time.monotonic()
    assert refuse(f'{{"id":7,"a":{rest}'.encode()).id in (7, None)
    assert time.monotonic() - before < 20


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def test_unbalanced_brackets_never_change_the_id() -> None:
    text = '{"a":[1,{"b":"]}"}],"id":"x","c":[[[]]],"d":{"id":2}}'
    for at in range(text.index('"c"'), len(text)):
        assert find_id(text[:at].encode()) == '"x"'


@pytest.mark.parametrize(
    ("detail", "text"),
    [
        ("nested too deeply", "[" * 100_000),
        ("integer too long", "9" * 4301),
        ("NaN is not JSON", "NaN"),
        ("the body is not UTF-8", b"\xff"),
        ("more than one JSON value, the second at character 2", "{} {}"),
        ("no JSON value at character 6", '{"a": }'),
        ("Invalid control character at character 1", '"\n"'),
        ("no JSON value at character 0", "nonsense"),
    ],
)
def test_a_parse_error_shows_nothing_of_the_text(detail: str, text: str | bytes) -> None:
    failure = refuse(text.encode() if isinstance(text, str) else text)
    assert failure.error.message == f"Parse error: {detail}"


def test_the_longest_integer_is_taken() -> None:
    message = parse(envelope("1", '"method":"m","params":[' + "9" * 4300 + "]"))
    assert isinstance(message, Request)
    assert message.params == [10**4300 - 1]


def test_a_number_too_large_for_a_float_is_json() -> None:
    message = parse(envelope("1", '"method":"m","params":[1e400]'))
    assert isinstance(message, Request)
    assert message.params == [math.inf]
