"""The same question again, and again: what is known by heart is answered as if it were read."""

from __future__ import annotations

import json

import pytest

from duet_rpc import __version__
from duet_rpc.protocol.framing import FRAMINGS, Framing
from duet_rpc.protocol.repeat import Repeat
from duet_rpc.server.daemon import OFTEN
from tests.support import SOURCE, daemon, frame

VERSION = json.dumps({"version": __version__}, separators=(",", ":")).encode()


def body(id: object, rest: str = '"method":"version"') -> bytes:
    return f'{{"jsonrpc":"2.0","id":{id},{rest}}}'.encode()


def ask(repeat: Repeat, piece: bytes) -> bytes | None:
    return repeat.answer(piece) if len(piece) == repeat.size else None


@pytest.mark.parametrize("framing", FRAMINGS.values(), ids=list(FRAMINGS))
def test_the_same_frame_with_another_id_has_the_same_reply_with_that_id(framing: Framing) -> None:
    repeat = Repeat()
    assert ask(repeat, framing.encode(body(12))) is None
    repeat.learn(framing.encode(body(12)), "version", VERSION, framing)
    for id in (12, 13, 99):
        reply = framing.encode(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (id, VERSION))
        assert ask(repeat, framing.encode(body(id))) == reply


NEARLY = [
    body(7),  # of another length
    body("02"),
    body('"12"'),
    body("-1"),
    body("1."),
    body("1 "),
    body("１"),  # digits, but none of JSON's
    body(12)[:-1] + b"\0",
    body(12)[:-1] + b" ",
    body(12).replace(b"version", b"Version"),
    body(12).replace(b"2.0", b"2.1"),
    b" " + body(12)[:-1],
    b"",
]


@pytest.mark.parametrize("framing", FRAMINGS.values(), ids=list(FRAMINGS))
@pytest.mark.parametrize("near", NEARLY)
def test_nothing_else_is_taken_for_it(near: bytes, framing: Framing) -> None:
    repeat = Repeat()
    repeat.learn(framing.encode(body(12)), "version", VERSION, framing)
    piece = framing.encode(near)
    assert ask(repeat, piece) is None
    assert ask(repeat, framing.encode(body(12)) + piece) is None
    assert ask(repeat, framing.encode(body(12))[:-1]) is None


@pytest.mark.parametrize(
    "piece",
    [
        frame(body(12)) * 2,
        frame(body(12)) + b"\r\n",
        frame(body(12), "Content-Type: application/vscode-jsonrpc\r\nContent-Length: {}\r\n\r\n"),
        frame(body(12, '"method":"version","id":13')),
        frame(body(12, '"method":"version","\\u0069d":13')),
        frame(b'{"id":12,"jsonrpc":"2.0","method":"version"}'),
        frame(body("012")),
        frame(body('"12"')),
        frame(body(12))[:-1],
        frame(body(12, '"method":"initialize"')),
        frame(body(12, '"method":"version","params":[1]')),
        frame(body(12, '"method":"version","params":1')),
        frame(body(12, '"method":"version",')),
    ],
)
def test_what_is_not_one_plain_frame_is_not_learned(piece: bytes) -> None:
    repeat = Repeat()
    repeat.learn(piece, "version", VERSION, FRAMINGS["content-length"])
    assert ask(repeat, piece) is None


ASKED = [
    *(body(id) for id in range(10, 10 + 2 * OFTEN)),
    *(body(id) for id in (1, 2, 3, 9, 10, 11, 99, 100, "02", "1.0", "1e2", "-1", '"12"', 101, 7)),
    *(body(id, '"method":"initialize"') for id in (1, 2)),
    *(body(id, '"method":"version","params":{}') for id in (1, 2, 3)),
    *(body(id, '"method":"version","params":[]') for id in (4, 5)),
    *(body(id, '"method":"version","params":[1]') for id in (6, 7)),
    *(body(id, '"method":"version","id":3') for id in (1, 2)),
    *(body(id, '"method":"nothing"') for id in (1, 2)),
    body(1)[:-1],
    *(body(id) for id in (1, 2)),
]


def test_asked_one_by_one_or_all_at_once_the_answers_are_the_same() -> None:
    with daemon([*SOURCE, "rpc", "--log-level", "error"]) as client:
        at_once = client.exchange(b"".join(map(frame, ASKED)), len(ASKED))
    with daemon([*SOURCE, "rpc", "--log-level", "error"]) as client:
        one_by_one = [client.exchange(frame(each), 1)[0] for each in ASKED]
    assert one_by_one == at_once
    assert [reply["id"] for reply in one_by_one[: 2 * OFTEN]] == [*range(10, 10 + 2 * OFTEN)]


def test_in_the_middle_of_something_else_it_is_not_taken_for_a_frame() -> None:
    good = frame(body(12))
    with daemon() as client:
        for _ in range(OFTEN + 2):
            client.exchange(good, 1)
        # As the body of another frame, whose head comes first.
        client.send(b"Content-Length: %d\r\n\r\n" % (len(good) + 2))
        assert client.silent_for(0.2)
        client.send(good)
        assert client.silent_for(0.2)
        client.send(b"\r\n")
        # The frame that holds a header is refused; the one inside it is served.
        assert client.receive()["error"]["code"] == -32700
        assert client.receive()["id"] == 12
        assert client.exchange(good, 1)[0]["id"] == 12


def test_each_one_is_in_the_log_at_debug() -> None:
    with daemon() as client:
        for id in range(10, 12 + OFTEN):
            client.exchange(frame(body(id)), 1)
        client.call("setLogLevel", {"level": "debug"}, id=4)
        for id in (50, 60, 70):
            client.exchange(frame(body(id)), 1)
        _, _, log = client.finish()
    served = [line.split("id=")[1].split()[0] for line in log.splitlines() if "served" in line]
    assert served == ["4", "50", "60", "70"]
