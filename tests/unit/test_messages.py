"""JSON text to messages and back."""

from __future__ import annotations

import gc
import json
import math
import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duet_rpc.jsonrpc import large, messages
from duet_rpc.jsonrpc.broken import read_id
from duet_rpc.jsonrpc.messages import (
    Batch,
    Failure,
    Request,
    Response,
    encode_success,
    parse,
    same_id,
    to_json,
)
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


def envelope(id: str, rest: str = '"method":"m"') -> bytes:
    return f'{{"jsonrpc":"2.0","id":{id},{rest}}}'.encode()


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("place", ['"id":{},"method":"m"', '"method":"m" , "id" : {} '])
def test_an_id_comes_back_as_it_went_in(id: str, place: str) -> None:
    message = parse(('{"jsonrpc":"2.0",' + place.replace("{}", id) + "}").encode())
    assert isinstance(message, Request)
    assert message.id == id
    assert encode_success(message.id, b"1") == b'{"jsonrpc":"2.0","id":%b,"result":1}' % id.encode()


@pytest.mark.parametrize("id", [*IDS, "9" * 5000])
def test_the_id_of_a_broken_message_is_read(id: str) -> None:
    message = parse(envelope(id, '"params":[NaN, {"id":99}], "more": [1'))
    assert isinstance(message, Failure)
    assert message.code == -32700
    assert message.id == id


def test_an_id_of_letters_beyond_ascii_is_the_same_string() -> None:
    message = parse('{"jsonrpc":"2.0","id":"日本\u2028😀","method":"m"}'.encode())
    assert isinstance(message, Request)
    assert json.loads(message.id or "") == "日本\u2028😀"
    assert (message.id or "").isascii()


def test_without_an_id_it_is_a_notification_and_with_null_a_request() -> None:
    for text, id in ((b'{"jsonrpc":"2.0","method":"m"}', None), (envelope("null"), "null")):
        message = parse(text)
        assert isinstance(message, Request)
        assert message.id == id


def test_of_two_ids_the_last_counts_broken_or_not() -> None:
    whole = parse(b'{"jsonrpc":"2.0","id":1.0,"id":2.0,"method":"m"}')
    assert isinstance(whole, Request)
    assert whole.id == "2.0"
    assert read_id(b'{"id":1.0,"id":2.0,') == "2.0"
    assert read_id(b'{"id":1,"id":[],') is None


@pytest.mark.parametrize("id", ["1", "2", "1.0", '"1"', '"2"', "null"])
def test_ids_are_the_same_in_type_and_value_or_not_at_all(id: str) -> None:
    for other in ("1", "2", "1.0", '"1"', '"2"', "null"):
        assert same_id(id, json.loads(other)) == (id == other)
    assert not same_id(None, None)


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
    assert read_id(text.encode()) is None


@pytest.mark.parametrize("byte", [b"\x80", b"\xc3", b"\xff"])
def test_an_id_with_a_byte_that_is_not_utf_8_is_not_echoed(byte: bytes) -> None:
    assert read_id(b'{"id":"a' + byte + b'","x":') is None


def test_the_id_behind_a_string_with_an_escape_is_read() -> None:
    for value in ('"\\n,x"', '"x\\n,x"', '"\\q,x"', '"\\q"', '"\\q\\",x"', '"\\",\\"id\\":8,"'):
        text = f'{{"a":{value},"id":7,"b":'
        assert read_id(text.encode()) == "7", value


def test_an_escaped_key_is_the_same_key() -> None:
    assert read_id(b'{"\\u0069d":5,"x":') == "5"


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
def test_the_id_of_a_broken_text_is_read_in_one_pass(rest: str) -> None:
    # In a pass for each of its characters this would take hours.
    before = time.monotonic()
    message = parse(f'{{"id":7,"a":{rest}'.encode())
    assert isinstance(message, Failure)
    assert message.id in ("7", "null")
    assert time.monotonic() - before < 20


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_failure(data: bytes) -> None:
    assert isinstance(parse(data), (Request, Response, Failure))


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
    for body in (text.encode(), text.encode()[:-1]):
        message = parse(body)
        if body == text.encode():
            assert isinstance(message, Request)
            assert message.params == [value]
            assert json.loads(to_json(value)) == value
        assert json.loads(getattr(message, "id", None) or "") == id


def test_a_bracket_more_or_less_never_changes_the_id_that_is_read() -> None:
    text = '{"a":[1,{"b":"]}"}],"id":"x","c":[[[]]],"d":{"id":2}}'
    for at in range(text.index('"c"'), len(text)):
        assert read_id(text[:at].encode()) == '"x"'


@pytest.mark.parametrize(
    ("detail", "text"),
    [
        ("nested too deeply", "[" * 100_000),
        ("integer too long", "9" * 4301),
        ("NaN is not JSON", "NaN"),
        ("the body is not UTF-8", b"\xff"),
        ("more than one JSON value", "{} {}"),
        ("no JSON value at character 6", '{"a": }'),
        ("Invalid control character at character 1", '"\n"'),
        ("no JSON value at character 0", "nonsense"),
    ],
)
def test_a_parse_error_says_what_is_wrong_and_shows_nothing_of_the_text(
    detail: str, text: str | bytes
) -> None:
    message = parse(text.encode() if isinstance(text, str) else text)
    assert isinstance(message, Failure)
    assert message.message == f"Parse error: {detail}"


def test_the_longest_integer_is_taken() -> None:
    message = parse(envelope("1", '"method":"m","params":[' + "9" * 4300 + "]"))
    assert isinstance(message, Request)
    assert message.params == [10**4300 - 1]


@pytest.mark.parametrize("limit", ["0", "640", "5000"])
def test_it_is_the_longest_whatever_the_interpreter_says(limit: str) -> None:
    script = """if True:
        from duet_rpc.jsonrpc.messages import parse
        for digits in (600, 4300, 4301):
            print(parse(b'{"id":1,"params":[%b]}' % (b"9" * digits)).message)
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


def test_a_number_too_large_for_a_float_is_json_all_the_same() -> None:
    message = parse(envelope("1", '"method":"m","params":[1e400]'))
    assert isinstance(message, Request)
    assert message.params == [math.inf]


def test_results_are_json_that_emacs_can_read() -> None:
    assert to_json({"a": ["é", 1.5, None, True]}) == '{"a":["é",1.5,null,true]}'.encode()
    assert to_json("a\ud800b") == '"a�b"'.encode()
    assert to_json("\ud83d\ude00") == '"😀"'.encode()
    for bad in (math.nan, [math.inf], {1, 2}, object(), b"bytes"):
        with pytest.raises((ValueError, TypeError)):
            to_json(bad)


def test_a_request_that_differs_in_its_id_alone_is_read_the_same() -> None:
    for rest in ('"method":"m"}', '"method":"m","params":{}}', '"method":"m","params":null}'):
        for id in ("1", "7", "0", "10", "-1", "01", "1.0", '"1"', "null", "1e2", "", "x", "1 "):
            body = f'{{"jsonrpc":"2.0","id":{id},{rest}'.encode()
            spaced = parse(body.replace(b":", b": "))  # the same, never seen like this
            for _ in range(2):
                message = parse(body)
                assert type(message) is type(spaced)
                assert message.id == spaced.id  # type: ignore[union-attr]
                assert isinstance(message, Failure) or message.params == spaced.params  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "second", ['"id":2', '"\\u0069d":2', '"id" :2', '"params":{"id":2}', '"params":{"id":2},"id":3']
)
def test_a_second_id_counts_each_time(second: str) -> None:
    for _ in range(3):
        for first in ("2", "1"):
            message = parse(f'{{"jsonrpc":"2.0","id":{first},"method":"m",{second}}}'.encode())
            assert isinstance(message, Request)
            inside = second.endswith("}")
            assert message.id == (first if inside else second[-1])


def test_params_of_a_known_request_are_its_own() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"own","params":{}}'
    first, second = parse(body), parse(body)
    assert isinstance(first, Request)
    assert isinstance(second, Request)
    assert isinstance(first.params, dict)
    first.params["x"] = 1
    assert second.params == {}


# Large bodies, which msgspec parses where it is installed.

NUMBERS = st.from_regex(r"\A-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][-+]?[0-9]{1,3})?\Z")
SCRAPS = st.lists(
    st.sampled_from(
        [
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            '"',
            "\\",
            "\\u",
            "d800",
            "dc00",
            "00e9",
            "a",
            "é",
            "😀",
            "\x00",
            "\n",
            "\t",
            " ",
            "0",
            "1",
            "-",
            ".",
            "e",
            "1e400",
            "NaN",
            "Infinity",
            "true",
            "null",
            "\ufeff",
            '"a":',
            '"a"',
            "9" * 20,
            "9" * 4301,
        ]
    ),
    max_size=12,
).map("".join)


def same(a: object, b: object) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, float) and isinstance(b, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return a == b


@given(st.one_of(NUMBERS, SCRAPS, st.lists(NUMBERS).map(lambda some: f"[{','.join(some)}]")))
def test_a_large_body_is_read_like_a_small_one(text: str) -> None:
    large.parse_large(b"", False)
    large.accelerate()
    for body in (
        f'{{"jsonrpc":"2.0","id":1,"method":"m","params":[{text}]}}'.encode(),
        f'{{"jsonrpc":"2.0","id":{text},"method":"m"}}'.encode(),
        text.encode(),
    ):
        small, other = messages.parse_text(body, False), large.parse_large(body, False)
        assert type(small) is type(other)
        for name in small.__slots__:
            assert same(getattr(small, name), getattr(other, name))


def test_msgspec_is_what_reads_a_large_body() -> None:
    decode = large._find_accelerator()
    assert decode is not None
    assert decode(b'{"a":[1]}') == {"a": [1]}
    assert decode(b"[") is None


def test_what_is_quicker_is_used_and_has_not_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    body = envelope("7", '"method":"m"')
    made = {"jsonrpc": "2.0", "id": 8, "method": "q"}
    monkeypatch.setattr(large, "_decode", {body: made}.get)
    quick = large.parse_large(body, False)
    assert isinstance(quick, Request)
    assert (quick.method, quick.id) == ("q", "8")
    monkeypatch.setattr(large, "_decode", lambda _: None)
    usual = large.parse_large(body, False)
    assert isinstance(usual, Request)
    assert (usual.method, usual.id) == ("m", "7")


def test_without_msgspec_a_large_body_is_read_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    monkeypatch.setattr(large, "_decode", large._find_accelerator())
    message = parse(envelope("7", '"method":"m","params":["' + "x" * messages.LARGE + '"]'))
    assert isinstance(message, Request)
    assert (message.method, message.id) == ("m", "7")


def test_a_large_array_is_a_batch_where_batches_are_allowed() -> None:
    body = b"[" + envelope("7", '"method":"m"') + b" " * messages.LARGE + b"]"
    assert isinstance(parse(body, batch=True), Batch)
    assert isinstance(parse(body), Failure)


@pytest.mark.parametrize("tail", ["\xff", "\xed\xa0\x80", "\xc0\x80"])
def test_a_large_body_that_is_not_utf_8(tail: str) -> None:
    body = b'{"jsonrpc":"2.0","id":7,"method":"' + tail.encode("latin-1") + b'"}'
    failure = large.parse_large(body, False)
    assert isinstance(failure, Failure)
    assert (failure.code, failure.id) == (-32700, "7")


def test_the_collector_runs_again_after_a_large_body() -> None:
    for body in (b"[" * 2_000_000, b'{"a":"' + b"x" * 2_000_000 + b'"}'):
        parse(body)
        assert gc.isenabled()
