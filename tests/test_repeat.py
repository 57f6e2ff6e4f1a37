"""The same question again, and again: what is known by heart is answered as if it were read."""

from __future__ import annotations

import json
import threading
import time

import pytest

from duet_rpc import __version__
from duet_rpc.protocol.framing import FRAMINGS, Framing
from duet_rpc.protocol.repeat import Repeat
from duet_rpc.server.daemon import OFTEN
from tests.support import SOURCE, WITH_METHODS, daemon, frame

VERSION = json.dumps({"version": __version__}, separators=(",", ":")).encode()


def body(id: object, rest: str = '"method":"version"') -> bytes:
    return f'{{"jsonrpc":"2.0","id":{id},{rest}}}'.encode()


NOTHING = (b"", 0)


def ask(repeat: Repeat, data: bytes) -> tuple[bytes, int]:
    return repeat.answer(data) if 0 < repeat.size <= len(data) else NOTHING


def reply(id: object, framing: Framing) -> bytes:
    return framing.encode(f'{{"jsonrpc":"2.0","id":{id},"result":{VERSION.decode()}}}'.encode())


@pytest.mark.parametrize("framing", FRAMINGS.values(), ids=list(FRAMINGS))
def test_the_same_frame_with_another_id_has_the_same_reply_with_that_id(framing: Framing) -> None:
    repeat = Repeat()
    assert ask(repeat, framing.encode(body(12))) == NOTHING
    repeat.learn(framing.encode(body(12)), "version", VERSION, framing)
    for id in (12, 13, 99):
        data = framing.encode(body(id))
        assert ask(repeat, data) == (reply(id, framing), len(data))


@pytest.mark.parametrize("framing", FRAMINGS.values(), ids=list(FRAMINGS))
def test_many_of_them_at_once_have_a_reply_each_and_in_order(framing: Framing) -> None:
    repeat = Repeat()
    ids = [34, 12, 99, 12, 10]
    data = b"".join(framing.encode(body(id)) for id in ids)
    repeat.learn(data, "version", VERSION, framing)
    replies = b"".join(reply(id, framing) for id in ids)
    for part in (0, 1, len(data) // len(ids) - 1):
        assert ask(repeat, data + data[:part]) == (replies, len(data))


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
    good = framing.encode(body(12))
    assert ask(repeat, piece) == NOTHING
    assert ask(repeat, good[:-1]) == NOTHING
    for before, behind in ((0, 1), (0, 3), (1, 1), (2, 2), (3, 1)):
        replies, end = ask(repeat, good * before + piece + good * behind)
        assert (replies, end) == NOTHING
    replies, end = ask(repeat, good * 3 + piece)
    # What is shorter is left behind them.
    assert (end, len(replies) // len(reply(12, framing))) in ((0, 0), (len(good) * 3, 3))
    assert end == 0 or len(piece) < len(good)


@pytest.mark.parametrize("framing", FRAMINGS.values(), ids=list(FRAMINGS))
def test_ids_that_have_the_right_length_only_together_are_not_taken_for_them(
    framing: Framing,
) -> None:
    repeat = Repeat()
    good = framing.encode(body(12))
    repeat.learn(good, "version", VERSION, framing)
    wrong = good.replace(b":12,", b":1,") + good.replace(b":12,", b":123,")
    assert len(wrong) == 2 * len(good)
    assert ask(repeat, good + wrong + good) == NOTHING


@pytest.mark.parametrize(
    "piece",
    [
        b"\r\n" + frame(body(12)),
        b"Content-Length: 7\r\n" + frame(body(12)),
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
    assert repeat.size == 0


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
        again = client.exchange(b"".join(map(frame, ASKED)), len(ASKED))
    assert one_by_one == at_once == again
    assert [reply["id"] for reply in one_by_one[: 2 * OFTEN]] == [*range(10, 10 + 2 * OFTEN)]


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("size", [50, 1000, 4099, 1_000_000])
def test_a_burst_cut_anywhere_is_answered_in_order(framing: str, size: int) -> None:
    # Ids of several widths, one that is odd here and there, and another method.
    ids: list[object] = [*range(980, 2000), 5, *range(2000, 2400), "x", *range(9_900, 10_100)]
    bodies = [body(json.dumps(id)) for id in ids]
    bodies[700:700] = [body(json.dumps("other"), '"method":"initialize"')]
    data = b"".join(map(FRAMINGS[framing].encode, bodies))
    with daemon([*SOURCE, "rpc", "--framing", framing], framing=framing) as client:
        replies = []
        for at in range(0, len(data), size):
            client.send(data[at : at + size])
            if size < 5000:
                time.sleep(0.0005)  # so that it is read in these pieces, most likely
        replies = [client.receive()["id"] for _ in bodies]
        code, more, _ = client.finish()
    assert replies == [*ids[:700], "other", *ids[700:]]
    assert (code, more) == (0, [])


def test_half_a_frame_behind_a_burst_has_its_own_time() -> None:
    # One second each; every piece ends in half a frame, for longer than that.
    pieces, each = 7, 40
    data = frame(body(12)) * (pieces * each)
    size = len(frame(body(12))) * each
    shift = len(frame(body(12))) // 2
    with daemon([*WITH_METHODS, "1.0"]) as client:
        client.call("setLogLevel", {"level": "info"})
        for at in range(pieces):
            client.send(data[max(0, at * size - shift) : (at + 1) * size - shift])
            time.sleep(0.3)
        time.sleep(1.2)
        client.send(data[-shift:])  # too late: the rest of a frame that was dropped
        client.send(frame(body(77)))
        replies = [client.receive()["id"] for _ in range(pieces * each)]
        assert replies == [12] * (pieces * each - 1) + [77]
        _, _, log = client.finish()
    assert log.count("was not complete") == 1


def test_replies_to_a_burst_that_nobody_reads_keep_their_order() -> None:
    # More than two pipes hold: it is stuck in the middle, and looks at what comes meanwhile.
    with daemon() as client:
        for id in range(OFTEN + 2):
            client.exchange(frame(body(10 + id)), 1)
        ids = [*range(10_000, 14_000)]
        client.exchange(frame(body(10_000)), 1)
        sender = threading.Thread(
            target=client.send, args=(b"".join(frame(body(id)) for id in ids),)
        )
        sender.start()
        time.sleep(0.5)
        assert [client.receive()["id"] for _ in ids] == ids
        sender.join()


def test_what_comes_while_replies_to_a_whole_burst_are_stuck_is_answered_behind_them() -> None:
    ids = [*range(1000, 1900)]
    burst = b"".join(frame(body(id)) for id in ids)
    assert len(burst) < 65536, "it must be read in one piece"
    with daemon() as client:
        for _ in range(OFTEN + 2):
            client.exchange(frame(body(1000)), 1)
        time.sleep(0.5)  # or it would have other reasons to look once more
        client.send(burst)
        time.sleep(0.2)
        client.send(frame(body(7, '"method":"initialize"')))
        time.sleep(0.2)  # it has been read by then
        assert [client.receive()["id"] for _ in range(901)] == [*ids, 7]


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
