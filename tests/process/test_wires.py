"""The other framings and batches: the same promises in another form."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duet_rpc import __version__
from duet_rpc.jsonrpc.errors import Fault
from duet_rpc.jsonrpc.framing import FRAMINGS, guess_framing
from duet_rpc.jsonrpc.length_prefixed import LengthPrefixedDecoder
from duet_rpc.jsonrpc.limits import BODY_MAX, PEEK
from duet_rpc.jsonrpc.lines import LinesDecoder
from tests.hostile import (
    GOOD,
    OVERSIZE,
    PARSE,
    ROWS,
    VERSION,
    Answer,
    Error,
    Row,
    check,
    decode,
    pieces_of,
)
from tests.invariants import FAULTS
from tests.machine import wait_until_computing
from tests.support import SOURCE, TAKE, TOP, WITH_METHODS, daemon, run
from tests.unit import test_fuzz

GOOD_BODY = GOOD.partition(b"\r\n\r\n")[2]
MIB = 1024 * 1024


def prefixed(body: bytes | str) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    return len(data).to_bytes(4, "big") + data + b"\n"


def line(body: bytes | str) -> bytes:
    return (body.encode() if isinstance(body, str) else body) + b"\n"


WRITE: dict[str, Callable[[bytes | str], bytes]] = {"length-prefixed": prefixed, "lines": line}


def bodies() -> list[Row]:
    """Take the rows of the table that are about a body and nothing else."""
    found = []
    for row in ROWS:
        head, blank, body = row.data.partition(b"\r\n\r\n")
        plain = head == b"Content-Length: %d" % len(body)
        if blank and plain and b"\n" not in body and 0 < len(body) <= BODY_MAX and body.strip():
            found.append(Row(row.name, body, row.expected))
    assert len(found) > 35
    return found


PREFIXED_ROWS = [
    Row("the form of the contract",
        b'\x00\x00\x00\x2f{"jsonrpc":"2.0","method":"system.ping","id":1}\n', [Answer(1)]),
    Row("no newline after the payload", prefixed(VERSION)[:-1], [Error(-32700, 7)]),
    Row("something else than a newline", prefixed(VERSION)[:-1] + b"x", [Error(-32700, 7)]),
    Row("too long by 3", (46).to_bytes(4, "big") + VERSION.encode() + b"\n", [Error(-32700, 7)]),
    Row("too long by 30", (73).to_bytes(4, "big") + VERSION.encode() + b"\n", [Error(-32700, 7)]),
    Row("too short by 3", (40).to_bytes(4, "big") + VERSION.encode() + b"\n", [Error(-32700, 7)]),
    Row("too short, up to a newline of the text's own",
        (20).to_bytes(4, "big") + b'{"jsonrpc":"2.0",   \n  "id":7}\n', [PARSE]),
    Row("length zero", b"\x00\x00\x00\x00\n", [PARSE]),
    Row("oversize", prefixed(b"x" * (BODY_MAX + 1)), [OVERSIZE]),
    Row("oversize of 64 MB, of zeros", prefixed(bytes(64 * MIB)), [OVERSIZE]),
    Row("the largest", prefixed(b" " * (BODY_MAX - 43) + VERSION.encode()), [Answer(7)]),
]  # fmt: skip

LINES_ROWS = [
    Row("CRLF", VERSION.encode() + b"\r\n", [Answer(7)]),
    Row("blank lines", b"\n\r\n \t \n" + line(VERSION) + b"\n", [Answer(7)]),
    Row("a line of what only looks blank", b"\x0b\x0c\n", [PARSE]),
    Row("garbage", b"hello\n", [PARSE]),
    Row("binary garbage", b"\x00\xff\x1b\n", [PARSE]),
    Row("two on a line", line(VERSION + VERSION), [Error(-32700, 7)]),
    Row("a header", b"Content-Length: 43\r\n\r\n" + line(VERSION), [PARSE, Answer(7)]),
    Row("cut in half by a newline", line(VERSION[:20] + "\n" + VERSION[20:]), [PARSE, PARSE]),
    Row("oversize", line(b"x" * (BODY_MAX + 1)), [OVERSIZE]),
    Row("oversize of 64 MB", line(b"x" * 64 * MIB), [OVERSIZE]),
    Row("oversize, its end in a later piece", line(b"x" * (BODY_MAX + 70_000)), [OVERSIZE]),
    Row("the largest", line(b" " * (BODY_MAX - 43) + VERSION.encode()), [Answer(7)]),
    Row("the largest, with CRLF", b" " * (BODY_MAX - 43) + VERSION.encode() + b"\r\n", [Answer(7)]),
]

AT_END = {
    "length-prefixed": [
        Row("nothing", b"", []),
        Row("in the length", b"\x00\x00", [PARSE]),
        Row("in the payload", prefixed(VERSION)[:-3], [Error(-32700, 7)]),
        Row("before the newline", prefixed(VERSION)[:-1], [Error(-32700, 7)]),
        Row("a frame swallowed",
            b"\x00\x00\x0f\xff" + VERSION.encode() + b"\n" + prefixed(GOOD_BODY),
            [Error(-32700, 7), Answer("good")]),
        Row("a frame swallowed, right behind the length",
            b"\x00\x00\x0f\xff" + prefixed(GOOD_BODY), [PARSE, Answer("good")]),
        Row("in an oversized payload", b"\x7f\xff\xff\xff{", [OVERSIZE]),
    ],
    "lines": [
        Row("nothing", b"", []),
        Row("a last line without its end", VERSION.encode(), [Answer(7)]),
        Row("half a line", VERSION.encode()[:-1], [Error(-32700, 7)]),
        Row("blanks", b"  ", []),
        Row("in an oversized line", b"x" * (BODY_MAX + 2), [OVERSIZE]),
    ],
}  # fmt: skip

TABLE = [
    *((name, Row(row.name, write(row.data), row.expected))
      for name, write in WRITE.items() for row in bodies()),
    *(("length-prefixed", row) for row in PREFIXED_ROWS),
    *(("lines", row) for row in LINES_ROWS),
]  # fmt: skip
IDS = [f"{name}: {row.name}" for name, row in TABLE]


def test_every_framing_is_in_every_table_of_the_tests() -> None:
    # Those of content-length are in tests/hostile.py.
    assert {*WRITE, "content-length"} == {*AT_END, "content-length"} == set(FRAMINGS)
    assert set(TAKE) == set(FAULTS) == set(test_fuzz.NASTY) == set(FRAMINGS)
    assert set(FRAMINGS) < set(test_fuzz.FRAGMENTS)


@pytest.mark.parametrize(("framing", "row"), TABLE, ids=IDS)
def test_hostile_input_never_costs_the_next_frame(framing: str, row: Row) -> None:
    data = row.data + WRITE[framing](GOOD_BODY)
    expected = [Row(row.name, b"", [*row.expected, Answer("good")])]
    check(expected, decode(pieces_of(data, 64 * 1024), framing=FRAMINGS[framing]))
    if len(data) < 20_000:
        for size in (1, 2, 7):
            check(expected, decode(pieces_of(data, size), framing=FRAMINGS[framing]))


@pytest.mark.parametrize("framing", WRITE)
def test_the_end_of_input(framing: str) -> None:
    for row in AT_END[framing]:
        for size in (1, 5, 1 << 20):
            if len(row.data) < 1000 or size > 1000:
                replies = decode(pieces_of(row.data, size), True, FRAMINGS[framing])
                check([row], replies)


FRAGMENTS = st.sampled_from(
    [b"\x00", b"\x00\x00\x00\x05", b"\n", b"\r\n", b"{", VERSION.encode(), prefixed(VERSION),
     line(VERSION), b"garbage", b"\x00\x00\x00\x2b"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@pytest.mark.parametrize("framing", WRITE)
@given(st.lists(st.one_of(FRAGMENTS, st.binary(max_size=20)), max_size=10), st.randoms())
def test_any_bytes_give_the_same_in_any_pieces(
    framing: str, parts: list[bytes], chance: Any
) -> None:
    data = b"".join(parts)
    whole = decode([data], True, FRAMINGS[framing])
    assert whole == decode(pieces_of(data, 1), True, FRAMINGS[framing])
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(3))
    edges = [0, *cuts, len(data)]
    pieces = [data[a:b] for a, b in zip(edges, edges[1:])]
    assert whole == decode(pieces, True, FRAMINGS[framing])


@pytest.mark.parametrize("decoder", [LinesDecoder, LengthPrefixedDecoder])
def test_an_oversized_frame_is_never_held(decoder: type) -> None:
    it = decoder()
    it.feed(b"\x3f\xff\xff\xff" if decoder is LengthPrefixedDecoder else b"")
    piece = b'{"a": "b"}, ' * 5000
    faults = 0
    for _ in range(1_000_000_000 // len(piece)):
        it.feed(piece)
        event = it.next()
        faults += isinstance(event, Fault)
        assert len(it._buffer) <= BODY_MAX + 2 * len(piece)
    assert faults == 1
    assert len(it._buffer) < 2 * len(piece)


@pytest.mark.parametrize("framing", FRAMINGS)
def test_the_head_of_an_oversized_server_frame_is_kept(framing: str) -> None:
    body = b'{"jsonrpc":"2.0","id":7,"result":"'.ljust(BODY_MAX + 1, b"x")
    data = FRAMINGS[framing].encode(body)[:-1]
    before = data.index(body[:PEEK])
    # Lines are known to be oversized by their size alone.
    small = before + 2 * PEEK
    for size in (1, 7, len(data)):
        decoder = FRAMINGS[framing].decoder(from_server=True)
        pieces = [*pieces_of(data[:small], size), data[small:]]
        faults, fed = list[Any](), 0
        for piece in pieces:
            decoder.feed(piece)
            fed += len(piece)
            event = decoder.next()
            assert event is None or fed >= before + PEEK, "it was waited for"
            faults += [event] if event is not None else []
        assert [(each.error.data, each.body) for each in faults] == [
            ({"reason": "oversize"}, body[:PEEK])
        ]
    # A client is told at once.
    decoder = FRAMINGS[framing].decoder()
    decoder.feed(data if framing == "lines" else data[:before])
    fault = decoder.next()
    assert isinstance(fault, Fault)
    assert (fault.error.data, fault.body) == ({"reason": "oversize"}, b"")


@pytest.mark.parametrize("framing", FRAMINGS)
def test_an_oversized_frame_cut_short_is_still_a_fault(framing: str) -> None:
    decoder = FRAMINGS[framing].decoder(from_server=True)
    data = FRAMINGS[framing].encode(b"x" * (BODY_MAX + 1))
    decoder.feed(data if framing == "lines" else data[:50])
    decoder.finish()
    fault = decoder.next()
    assert isinstance(fault, Fault)
    assert fault.error.data == {"reason": "oversize"}
    assert decoder.next() is None


@pytest.mark.parametrize(
    "text", [b"\tat line 1\n", b" x\n", b"warning: x\n", b"\xff\xff\xff\xff\n"]
)
def test_text_of_a_server_is_no_length(text: bytes) -> None:
    decoder = LengthPrefixedDecoder(from_server=True)
    decoder.feed(text + prefixed(VERSION))
    assert isinstance(decoder.next(), Fault)
    assert decoder.next() == VERSION.encode()
    # A client's is one, and skipped by count.
    decoder = LengthPrefixedDecoder()
    decoder.feed(text + prefixed(VERSION))
    assert isinstance(decoder.next(), Fault)
    assert decoder.next() is None
    assert decoder.partial


@pytest.mark.parametrize(
    ("first", "framing"),
    [
        (b"\x00\x00\x00\x2f", "length-prefixed"),
        (b"{", "lines"),
        (b"[", "lines"),
        (b"\n\r\n{", "lines"),
        (b"Content-Length", "content-length"),
        (b"x", "content-length"),
    ],
)
def test_the_first_byte_tells_the_framing(first: bytes, framing: str) -> None:
    assert guess_framing(first) is FRAMINGS[framing]


def test_nothing_inside_a_frame_that_never_ended_is_served() -> None:
    decoder = LengthPrefixedDecoder()
    decoder.feed(b"\x00\x00\x0f\xff" + prefixed(VERSION))
    assert decoder.next() is None
    decoder.expire()
    assert decoder.next() is None
    decoder.feed(prefixed(VERSION))
    assert decoder.next() == VERSION.encode()


def test_half_a_line_end_does_not_count_as_content() -> None:
    decoder = LinesDecoder()
    decoder.feed(b" " * (BODY_MAX - 43) + VERSION.encode() + b"\r")
    assert decoder.next() is None
    decoder.feed(b"\n")
    assert decoder.next() == b" " * (BODY_MAX - 43) + VERSION.encode()


def test_frames_behind_an_oversized_payload_are_served() -> None:
    decoder = LengthPrefixedDecoder()
    decoder.feed(prefixed(b"x" * (BODY_MAX + 1)) + prefixed(VERSION))
    assert isinstance(decoder.next(), Fault)
    assert decoder.next() == VERSION.encode()


def test_an_oversized_payload_has_ended_when_its_newline_has_come() -> None:
    decoder = LengthPrefixedDecoder()
    data = prefixed(b"x" * (BODY_MAX + 1))
    decoder.feed(data[:-1])
    assert isinstance(decoder.next(), Fault)
    assert decoder.next() is None
    assert decoder.partial
    decoder.feed(data[-1:])
    assert not decoder.partial


def test_what_is_dropped_is_not_held() -> None:
    decoder = LengthPrefixedDecoder()
    decoder.feed(b"\0\0\0\2{}no newline")
    assert isinstance(decoder.next(), Fault)
    for _ in range(100):
        decoder.feed(b"x" * 10_000)
        assert decoder.next() is None
    assert len(decoder._buffer) <= 10_000
    decoder.feed(prefixed(VERSION))
    assert decoder.next() == VERSION.encode()


def test_unicode_line_separators_are_escaped() -> None:
    assert FRAMINGS["lines"].encode('"a\u2028b\u2029c"'.encode()) == b'"a\\u2028b\\u2029c"\n'


# The real process.


def call(id: object, method: str = "version", params: object = None) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


@pytest.mark.parametrize("framing", WRITE)
@pytest.mark.parametrize("flag", ["the framing", "auto"])
def test_the_six_methods_over_the_wire(framing: str, flag: str) -> None:
    write = WRITE[framing]
    word = framing if flag != "auto" else "auto"
    with daemon([*SOURCE, "rpc", "--framing", word], framing=framing) as client:
        data = b"".join(
            write(call(n, name)) for n, name in enumerate(["initialize", "listMethods", "version"])
        )
        replies = client.exchange(data, 3)
        assert replies[2]["result"] == {"version": __version__}
        assert len(replies[1]["result"]) == 6
        (level,) = client.exchange(write(call(4, "setLogLevel", ["debug"])), 1)
        assert level["result"]["success"] is True
        (bye,) = client.exchange(write(call(5, "shutdown")), 1)
        assert bye["result"] == {"message": "Shutting down gracefully"}
        assert client.wait()[0] == 0


@pytest.mark.parametrize(("framing", "row"), TABLE, ids=IDS)
def test_the_process_answers_the_next_good_request(framing: str, row: Row) -> None:
    with daemon([*SOURCE, "rpc", f"--framing={framing}"], framing=framing) as client:
        expected = [*row.expected, Answer("good")]
        replies = client.exchange(row.data + WRITE[framing](GOOD_BODY), len(expected))
        if row.name == "the form of the contract":
            assert replies[0]["error"]["code"] == -32601
            return
        check([Row(row.name, b"", expected)], replies)


@pytest.mark.parametrize("framing", WRITE)
def test_the_end_of_input_ends_the_process(framing: str) -> None:
    with daemon([*SOURCE, "rpc", "--framing", framing], framing=framing) as client:
        client.exchange(WRITE[framing](VERSION), 1)
        client.close_input()
        assert client.wait()[0] == 0


@pytest.mark.parametrize("framing", WRITE)
def test_a_signal_ends_the_process(framing: str) -> None:
    with daemon([*SOURCE, "rpc", "--framing", framing], framing=framing) as client:
        client.exchange(WRITE[framing](VERSION), 1)
        client.signal(signal.SIGTERM)
        assert client.wait()[0] == 0


@pytest.mark.parametrize("framing", WRITE)
def test_a_frame_that_never_ends_is_dropped(framing: str) -> None:
    with daemon([*WITH_METHODS, "0.3", framing], framing=framing) as client:
        client.exchange(WRITE[framing](VERSION), 1)
        client.send(WRITE[framing](VERSION)[:20])
        assert client.silent_for(1.5)
        (reply,) = client.exchange(WRITE[framing](GOOD_BODY), 1)
        assert reply["result"] == {"version": __version__}
        client.close_input()
        client.wait()
        assert client.process.stderr is not None
        assert client.process.stderr.read().count(b"a frame was not complete after 0.3 s") == 1


@pytest.mark.parametrize("framing", WRITE)
def test_cancel_and_progress_over_the_wire(framing: str) -> None:
    write = WRITE[framing]
    with daemon([*WITH_METHODS, "30", framing], framing=framing) as client:
        params = {"count": 2, "_meta": {"progressToken": "t"}}
        client.send(write(call(1, "steps", params)))
        messages = [json.loads(client.receive_raw()) for _ in range(3)]
        assert [each.get("method") for each in messages] == ["$/progress", "$/progress", None]
        client.send(write(call(2, "give_up")))
        wait_until_computing(client.process.pid)
        note = json.dumps({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 2}})
        (reply,) = client.exchange(write(note), 1)
        assert reply["error"]["code"] == -32800


def test_a_line_never_has_a_line_inside() -> None:
    with daemon([*WITH_METHODS, "30", "lines"], framing="lines") as client:
        client.send(line(call("a\nb", "give", ["unicode"])))
        raw = client.receive_raw()
    assert len(raw.decode().splitlines()) == 1
    assert json.loads(raw)["result"] == "日本語 ✓ 😀 \u2028"
    assert json.loads(raw)["id"] == "a\nb"


# Batches.


def batch(text: str, *flags: str) -> tuple[list[Any], int, str]:
    """Send one text by lines; return what comes back."""
    import subprocess

    done = subprocess.run(
        [*SOURCE, "rpc", "--framing=lines", "--batch", *flags],
        input=text.encode() + b"\n" + GOOD_BODY + b"\n",
        capture_output=True,
        cwd=TOP,
        timeout=30,
        check=False,
    )
    assert b"Traceback" not in done.stderr
    return (
        [json.loads(each) for each in done.stdout.splitlines()],
        done.returncode,
        done.stderr.decode(),
    )


V = {"version": __version__}


def test_a_batch_is_answered_in_order_without_its_notifications() -> None:
    text = (
        '[{"jsonrpc":"2.0","id":1.0,"method":"version"}, {"jsonrpc":"2.0","method":"version"} ,\t'
        '{"jsonrpc":"2.0","id":"b","method":"nope"},1,[],{"id":3},'
        '{"jsonrpc":"2.0","id":1e2,"method":"version"}]'
    )
    replies, code, _ = batch(text)
    assert code == 0
    answers = replies[0]
    assert [each["id"] for each in answers] == [1.0, "b", None, None, 3, 100.0]
    assert [each.get("error", {}).get("code") for each in answers] == [
        None, -32601, -32600, -32600, -32600, None,
    ]  # fmt: skip
    assert replies[1]["id"] == "good"


def test_ids_in_a_batch_are_exact() -> None:
    import subprocess

    done = subprocess.run(
        [*SOURCE, "rpc", "--framing=lines", "--batch"],
        input=b'[{"jsonrpc":"2.0","id":1e2,"method":"version"},{"jsonrpc":"2.0","id":-0,"method":"x"}]\n',
        capture_output=True,
        cwd=TOP,
        timeout=30,
        check=True,
    )
    assert b'"id":1e2,' in done.stdout
    assert b'"id":-0,' in done.stdout


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("[]", [-32600]),
        ("[" + ",".join(["1"] * 1001) + "]", [-32600]),
        ('[{"jsonrpc":"2.0","method":"version"}]', []),
        ('[{"jsonrpc":"2.0","id":1,"result":2}]', []),
        ("[1", [-32700]),
    ],
)
def test_odd_batches(text: str, codes: list[int]) -> None:
    replies, code, _ = batch(text)
    assert code == 0
    assert [each["error"]["code"] for each in replies[:-1]] == codes
    assert replies[-1]["id"] == "good"


def test_a_thousand_elements_are_a_batch() -> None:
    text = "[" + ",".join(call(n) for n in range(1000)) + "]"
    replies, _, _ = batch(text)
    assert [each["id"] for each in replies[0]] == list(range(1000))


def test_nothing_behind_a_shutdown_in_a_batch_is_served() -> None:
    replies, code, _ = batch(f"[{call(1)},{call(2, 'shutdown')},{call(3)}]")
    assert code == 0
    assert [[each["id"] for each in replies[0]]] == [[1, 2]]
    assert len(replies) == 1


def cancel(id: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": id}})


@pytest.mark.parametrize(
    "how",
    [
        cancel(2) + "\n" + cancel(1),
        f"[{cancel(2)},{cancel(1)}]",
    ],
    ids=["by messages", "by a batch"],
)
def test_the_requests_of_a_batch_can_be_cancelled(how: str) -> None:
    with daemon([*WITH_METHODS, "30", "lines", "batch"], framing="lines") as client:
        client.exchange(line(call(0)), 1)  # it has started
        client.send(line(f"[{call(1, 'give_up')},{call(2, 'give_up')},{call(3)}]"))
        wait_until_computing(client.process.pid)
        client.send(line(how))
        answers = json.loads(client.receive_raw())
    assert [each.get("error", {}).get("code") for each in answers] == [-32800, -32800, None]


def test_a_request_in_a_batch_that_waits_can_be_cancelled() -> None:
    with daemon([*WITH_METHODS, "30", "lines", "batch"], framing="lines") as client:
        client.exchange(line(call(0)), 1)  # it has started
        client.send(line(call(1, "give_up")) + line(f"[{call(2, 'give_up')},{call(3)}]"))
        wait_until_computing(client.process.pid)
        client.send(line(cancel(2)) + line(cancel(1)))
        assert client.receive()["error"]["code"] == -32800
        answers = json.loads(client.receive_raw())
    assert [each.get("error", {}).get("code") for each in answers] == [-32800, None]


def test_without_the_flag_there_are_no_batches() -> None:
    _, replies, _ = run(b"Content-Length: 2\r\n\r\n[]")
    assert replies[0]["error"]["message"] == "Batch requests not supported"


@pytest.mark.parametrize(
    "words", [["rpc", "--framing", "morse"], ["call", "version", "--batch"], ["rpc", "--framing"]]
)
def test_wrong_words_are_a_usage_error(words: list[str]) -> None:
    code, _, err = run(b"", [*SOURCE, *words])
    assert code == 2
    assert "usage:" in err
