"""One table of hostile inputs. It drives the decoder, the process and the .pyz.

Each row is what a client sends and what it must get for it: `Error`s in order. After
each row a good request is answered; that is the point of the table.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from duet_rpc.jsonrpc.framing import CONTENT_LENGTH, Framing
from duet_rpc.jsonrpc.messages import InvalidMessage, Request, Success, encode
from duet_rpc.jsonrpc.reader import MessageReader
from tests.support import frame, load, request

BATCH = (
    '{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"data":{"reason":"batch-not-supported"}}}'
)
"""What the server, not the reader, says of an array."""

VERSION = '{"jsonrpc":"2.0","id":7,"method":"version"}'
MIB = 1024 * 1024


class Error(NamedTuple):
    """What an error reply must say."""

    code: int
    id: object = None
    reason: str | None = None


class Answer(NamedTuple):
    """A good reply, to the request with this id."""

    id: object


class Row(NamedTuple):
    """One hostile input."""

    name: str
    data: bytes
    expected: list[Error | Answer]


PARSE = Error(-32700)
OVERSIZE = Error(-32600, None, "oversize")
HEADER = Error(-32600, None, "header-too-large")


def length(value: str, body: str = VERSION) -> bytes:
    """One frame with this for its Content-Length."""
    return f"Content-Length: {value}\r\n\r\n{body}".encode()


def typed(value: str, id: object = 7) -> bytes:
    """One frame with this for its Content-Type."""
    return frame(
        f'{{"jsonrpc":"2.0","id":{id},"method":"version"}}',
        f"Content-Length: {{}}\r\nContent-Type: {value}\r\n\r\n",
    )


def headed(*lines: str, end: str = "\r\n") -> bytes:
    """One frame with these header lines in front of its Content-Length."""
    head = [*lines, "Content-Length: {}", ""]
    return frame(VERSION, "".join(line + end for line in head))


def cut(by: int) -> bytes:
    """One frame whose length is off by so many bytes."""
    return length(str(len(VERSION) + by))


BAD_LENGTHS = {
    "no number": "abc",
    "empty": "",
    "negative": "-5",
    "signed": "+43",
    "with an underscore": "4_3",
    "hexadecimal": "0x2b",
    "fraction": "43.0",
    "two words": "43 44",
    "digits of another script": "٤٣",
    "comma list": "43, 43",
}

UNSUPPORTED = Error(-32600, 7, "unsupported-content-type")
CHARSET = Error(-32600, 7, "bad-charset")

PLAIN = "Content-Type: text/plain"

# What makes the decoder lose its place, and what it costs. None ends in an empty line.
LOSSES: dict[str, tuple[bytes, list[Error]]] = {
    "a body that is not JSON": (frame("{nonsense"), [PARSE]),
    "a body that looks like a header's name": (frame("nonsense"), [PARSE]),
    "a body that looks like a header": (frame("a: "), [PARSE]),
    "a body that ends in a newline": (frame("{nonsense\n"), [PARSE]),
    "a body of two lines": (frame("{\nnonsense"), [PARSE]),
    "an empty body": (frame(""), [PARSE]),
    "two bodies that are not JSON": (2 * frame("{nonsense"), [PARSE] * 2),
    "a broken frame in another": (frame(b"{" + frame("{x")), [PARSE] * 2),
    "a broken frame before another's end": (frame(b"{" + frame("{x") + b"z"), [PARSE] * 2),
    "a length too short by 1": (cut(-1), [Error(-32700, 7)]),
    "a length too short for a word": (length("4", "nonsense"), [PARSE]),
    "a length too long by 10": (cut(10), [Error(-32700, 7)]),
    "a length too long by 16": (cut(16), [Error(-32700, 7)]),
    "garbage": (b"hello world\r\n", [PARSE]),
    "garbage without a line's end": (b"\x00\xff garbage }{ ", [PARSE]),
    "oversize": (length("10485761", '{"a": "b"}'), [OVERSIZE]),
    "oversize and a newline": (length("10485761", '{"a": "b"}\n'), [OVERSIZE]),
    "oversize of a long line": (length("10485761", '{"a": "' + "b" * 30_000 + '"}'), [OVERSIZE]),
    "an over-long header": (f"Content-Length: 2\r\nX: {'a' * 9000}\r\n\r\n{{}}".encode(), [HEADER]),
    "an over-long header without a length": (f"X: {'a' * 9000}\r\n\r\n".encode(), [HEADER]),
    "9 KiB of garbage": (b"\x01" * 9000 + b"\n", [HEADER]),
    "a refused body that is not JSON": (
        b"Content-Type: a/b\r\n" + frame("{nonsense"),
        [Error(-32600, None, "unsupported-content-type")],
    ),
}  # fmt: skip

# Header sections that refuse their frame, and one that does not.
SECTIONS: dict[str, tuple[bytes, Error | Answer]] = {
    "another media type": (headed(PLAIN), UNSUPPORTED),
    "another media type, lines that end in LF": (headed(PLAIN, end="\n"), UNSUPPORTED),
    "another media type in odd case": (headed("cONTENT-tYPE:text/plain"), UNSUPPORTED),
    "another media type, a space before the colon": (headed("Content-Type : a/b"), UNSUPPORTED),
    "another media type among other lines": (headed("X-A: 1", PLAIN, "X-B:", "C: d"), UNSUPPORTED),
    "another media type and the right one in a parameter": (
        headed("Content-Type: a/b; content-type:application/vscode-jsonrpc"), UNSUPPORTED,
    ),
    "two types, the second right": (
        headed(PLAIN, "Content-Type: application/vscode-jsonrpc"), UNSUPPORTED,
    ),
    "another charset": (
        headed("Content-Type: application/vscode-jsonrpc; charset=utf-16"), CHARSET,
    ),
    "another charset in quotes": (
        headed('Content-Type: application/vscode-jsonrpc; charset="utf-16"'), CHARSET,
    ),
    "too many lines": (headed(*["X-Pad: aaaaaaaaaaaaa"] * 400), HEADER),
    "a type and too many lines": (headed(PLAIN, *["X-Pad: aaaaaaaaaaaaa"] * 400), HEADER),
    "the right type": (
        headed("X-A: 1", 'Content-Type: application/vscode-jsonrpc; charset="utf-8"', "X-B: 2"),
        Answer(7),
    ),
}  # fmt: skip

AFTER_LOSS = [
    *(
        Row(f"{loss}, then {section}", data + frame_, [*costs, reply])
        for loss, (data, costs) in LOSSES.items()
        for section, (frame_, reply) in SECTIONS.items()
    ),
    Row(
        "a body that is not JSON, then a header line too long",
        frame("{nonsense") + headed("X-Pad: " + "a" * 30_000),
        [PARSE, HEADER],
    ),
    Row(
        "garbage, then a header line too long",
        b"garbage\n" + headed("X-Pad: " + "a" * 30_000),
        [PARSE, HEADER],
    ),
    Row(
        "a header too large in a broken frame",
        frame(b"{\n" + headed(*["X-Pad: aaaaaaaaaaaaa"] * 400)),
        [PARSE, HEADER],
    ),
    Row(
        "a refused type in a broken frame",
        frame(b"{\n" + headed(PLAIN)),
        [PARSE, UNSUPPORTED],
    ),
    Row(
        "a refused type in a frame in a broken frame",
        frame(b"{\n" + length("500", "{") + headed(PLAIN)),
        [PARSE, PARSE, UNSUPPORTED],
    ),
    Row(
        "a length too long by a type's line",
        cut(len(PLAIN) + 2) + headed(PLAIN),
        [Error(-32700, 7), UNSUPPORTED],
    ),
    Row(
        "a type, and a length inside another line",
        f"{PLAIN}\nX: {headed().decode()}".encode(),
        [PARSE, UNSUPPORTED],
    ),
    # What is not part of the next header section.
    Row("a type and an empty line", f"}}\n{PLAIN}\n\n".encode() + headed(), [PARSE, Answer(7)]),
    Row("a type and garbage", f"}}\n{PLAIN}\n}}\n".encode() + headed(), [PARSE, Answer(7)]),
    Row("a type, then a brace", f"}}\n{PLAIN}\n}}".encode() + headed(), [PARSE, Answer(7)]),
    Row("a type in a string", f'{{"a": "{PLAIN}"}}\n'.encode() + headed(), [PARSE, Answer(7)]),
    Row(
        "a type in a string in a string",
        frame(r'{"a": "{\"b\": \"' + PLAIN + r'\"}"}}') + b"\n" + headed(),
        [PARSE, Answer(7)],
    ),
    Row(
        "an oversized body with a type in a string, and a newline",
        length("10485761", f'{{"a": "{PLAIN}", "b": 1}}\n') + headed(),
        [OVERSIZE, Answer(7)],
    ),
    Row("field lines", b"}\n" + b"a: b\n" * 1000 + headed(), [PARSE, Answer(7)]),
    Row("a long line of garbage", b"}\n" + b"a" * 30_000 + b"\n" + headed(), [PARSE, Answer(7)]),
]  # fmt: skip

ROWS = [
    # Content-Length.
    *(Row(f"length {name}", length(value), [PARSE]) for name, value in BAD_LENGTHS.items()),
    Row("length missing", f"X-Header: 1\r\n\r\n{VERSION}".encode(), [PARSE]),
    Row("length zero", b"Content-Length: 0\r\n\r\n", [PARSE]),
    Row(
        "two lengths that differ",
        f"Content-Length: 43\r\nContent-Length: 44\r\n\r\n{VERSION}".encode(),
        [PARSE],
    ),
    Row(
        "two lengths that agree",
        f"Content-Length: 43\r\ncontent-length: 043\r\n\r\n{VERSION}".encode(),
        [Answer(7)],
    ),
    # A length that is off.
    Row(
        "a broken frame in which a frame swallows the next",
        frame(b"}" + length("99", '{"id":8,') + frame(VERSION)),
        [PARSE, Error(-32700, 8), Answer(7)],
    ),
    Row(
        "a length that swallows whole frames",
        length(str(30 * len(frame(VERSION))), "") + 30 * frame(VERSION),
        [PARSE, *[Answer(7)] * 30],
    ),
    Row("too long by 1", cut(1), [Error(-32700, 7)]),
    Row("too long by 10", cut(10), [Error(-32700, 7)]),
    Row("too long by 20", cut(20), [Error(-32700, 7)]),
    Row("too long by a header and more", cut(40), [Error(-32700, 7)]),
    Row("too long, twice", cut(15) + cut(15), [Error(-32700, 7)] * 2),
    Row("too short by 1", cut(-1), [Error(-32700, 7)]),
    Row("too short by 18", cut(-18), [Error(-32700, 7)]),
    Row("too short, right behind the id", cut(-20), [PARSE]),
    Row("too short by all but the brace", cut(1 - len(VERSION)), [PARSE]),
    # Garbage.
    Row("garbage line in front", b"hello world\r\n", [PARSE]),
    Row("garbage without a line's end", b"\x00\xff garbage }{ ", [PARSE]),
    Row("garbage that looks like a header's name", b"abc", [PARSE]),
    Row("garbage that is a header", b"X-Ignored: yes\r\n", []),
    Row("garbage after a frame", frame(VERSION) + b"}}}\n\n\n", [Answer(7), PARSE]),
    Row("garbage after a frame that is no request", frame("{}") + b"}}}\n", [Error(-32600), PARSE]),
    Row("unframed JSON", VERSION.encode() + b"\n", [PARSE]),
    Row("half a header", b"Content-Length: 4", [PARSE]),
    Row("an HTTP request", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", [PARSE]),
    Row("a header without a name", b": 5\r\n", [PARSE]),
    Row("empty lines", b"\r\n\n\r\n\n", []),
    Row("9 KiB of garbage without a line's end", b"\x01" * 9000, [HEADER]),
    Row("garbage that ends at the limit", b"\x01" * 8180, [HEADER]),
    Row("garbage with quotes", b'"Content-Length: 5" : {\n', [PARSE]),
    Row("megabytes of garbage lines", b"{garbage}\n" * 300_000, [PARSE]),
    # Headers.
    Row("a header line too long", b"X-Pad: " + b"a" * 9000 + b"\r\n\r\n", [HEADER]),
    Row(
        "a header too large and a length behind it",
        f"X-A: {'a' * 9000}\r\nContent-Length: 43\r\n\r\n{VERSION}".encode(),
        [HEADER],
    ),
    Row(
        "a header too large and a length that is too short",
        f"X-A: {'a' * 9000}\r\nContent-Length: 40\r\n\r\n{VERSION}".encode(),
        [HEADER],
    ),
    Row(
        "a header too large, and a frame inside its body",
        b"Content-Length: 65\r\n" + b"X-Pad: aaaaaaaaaaaaa\r\n" * 400 + b"\r\n" + frame(VERSION),
        [HEADER],
    ),
    Row(
        "a header too large that says nothing of a body",
        b"X-Pad: aaaaaaaaaaaaa\r\n" * 400 + b"\r\n" + frame(VERSION),
        [HEADER, Answer(7)],
    ),
    Row(
        "a header too large with two lengths",
        b"Content-Length: 43\r\n" + b"X: aaaaa\r\n" * 900 + b"Content-Length: 9\r\n\r\n",
        [HEADER],
    ),
    Row(
        "header too large",
        f"Content-Length: 43\r\nX-Pad: {'a' * 9000}\r\n\r\n{VERSION}".encode(),
        [HEADER],
    ),
    Row(
        "header too large in many lines",
        b"Content-Length: 43\r\n" + b"X-Pad: aaaaaaaaaaaaa\r\n" * 800 + b"\r\n" + VERSION.encode(),
        [HEADER],
    ),
    # Oversize.
    Row("oversize announced only", b"Content-Length: 10485761\r\n\r\n", [OVERSIZE]),
    Row("absurd length", f"Content-Length: {'9' * 5000}\r\n\r\n".encode(), [OVERSIZE]),
    Row(
        "oversize with its payload",
        frame(b'{"jsonrpc":"2.0","id":1,"method":"version","params":"' + b"x" * 64 * MIB + b'"}'),
        [OVERSIZE],
    ),
    Row(
        "oversize with headers in its strings",
        frame(b'{"text":"' + b'a\\r\\nContent-Length: 5\\r\\n\\r\\n", "b": "' * 300_000 + b'"}'),
        [OVERSIZE],
    ),
    # Content-Type.
    Row("another media type", typed("text/plain"), [Error(-32600, 7, "unsupported-content-type")]),
    Row("an empty media type", typed(""), [Error(-32600, 7, "unsupported-content-type")]),
    Row(
        "another charset",
        typed("application/vscode-jsonrpc; charset=latin-1"),
        [Error(-32600, 7, "bad-charset")],
    ),
    Row(
        "another charset after other parameters",
        typed('application/vscode-jsonrpc; a="x;charset=utf-8"; Charset="utf-16"'),
        [Error(-32600, 7, "bad-charset")],
    ),
    Row(
        "another charset with a string for an id",
        typed("application/vscode-jsonrpc; charset=x", '"seven"'),
        [Error(-32600, "seven", "bad-charset")],
    ),
    Row(
        "another media type and a length that swallows the next header",
        b"Content-Length: 43\r\nContent-Type: text/plain\r\n\r\n",
        [Error(-32600, None, "unsupported-content-type")],
    ),
    Row(
        "another media type round nothing",
        b"Content-Type: a/b\r\nContent-Length: 0\r\n\r\n",
        [Error(-32600, None, "unsupported-content-type")],
    ),
    Row(
        "another media type round no JSON",
        frame("{", "Content-Type: a/b\r\nContent-Length: {}\r\n\r\n"),
        [Error(-32600, None, "unsupported-content-type")],
    ),
    Row(
        "another media type and a length that swallows the next header, in a broken frame",
        frame(
            f"Content-Length: 80\r\nContent-Type: a/b\r\n\r\n{VERSION}".encode() + frame(VERSION)
        ),
        [PARSE, Error(-32600, 7, "unsupported-content-type"), Answer(7)],
    ),
    # What is not JSON.
    Row("NaN", frame('{"jsonrpc":"2.0","id":7,"method":"x","params":[NaN]}'), [Error(-32700, 7)]),
    Row("Infinity behind", frame('{"params":[-Infinity],"id":7}'), [Error(-32700, 7)]),
    Row("a byte-order mark", frame(b"\xef\xbb\xbf" + VERSION.encode()), [Error(-32700, 7)]),
    Row("UTF-16", frame(VERSION.encode("utf-16")), [PARSE]),
    Row("UTF-16 without a mark", frame(VERSION.encode("utf-16-le")), [PARSE]),
    Row("invalid UTF-8", frame(b'{"id":7,"method":"\xff"}'), [Error(-32700, 7)]),
    Row("a surrogate as UTF-8", frame(b'{"id":7,"method":"\xed\xa0\x80"}'), [Error(-32700, 7)]),
    Row("an overlong slash", frame(b'{"id":"\xc0\xaf","method":"x"}'), [PARSE]),
    Row("100,000 brackets", frame("[" * 100_000), [PARSE]),
    Row(
        "100,000 brackets in front of the id",
        frame('{"params":' + "[" * 100_000 + "]" * 100_000 + ',"id":7}'),
        [Error(-32700, 7)],
    ),
    Row("100,000 braces", frame('{"id":7,"a":' + '{"a":' * 100_000), [Error(-32700, 7)]),
    Row(
        "an integer of 5,000 digits",
        frame('{"jsonrpc":"2.0","id":7,"method":"version","params":[' + "9" * 5000 + "]}"),
        [Error(-32700, 7)],
    ),
    Row("cut off", frame('{"jsonrpc":"2.0","id":7,"meth'), [Error(-32700, 7)]),
    Row("cut off in the id", frame('{"jsonrpc":"2.0","id":7'), [PARSE]),
    Row("two values", frame(VERSION + VERSION), [Error(-32700, 7)]),
    Row("a comma too many", frame('{"id":7,"method":"x",}'), [Error(-32700, 7)]),
    Row("single quotes", frame("{'id':7}"), [PARSE]),
    Row("a raw newline in a string", frame('{"id":7,"method":"a\nb"}'), [Error(-32700, 7)]),
    Row("a bad escape in the id", frame(r'{"id":"\q","method":"x"}'), [PARSE]),
    Row("only spaces", frame("   "), [PARSE]),
    # What is JSON but no message.
    Row("an array", frame("[" + VERSION + "]"), [Error(-32600, None, "batch-not-supported")]),
    Row("an empty array", frame("[]"), [Error(-32600, None, "batch-not-supported")]),
    Row("a number", frame("42"), [Error(-32600)]),
    Row("a string", frame('"version"'), [Error(-32600)]),
    Row("null", frame("null"), [Error(-32600)]),
    Row("an empty object", frame("{}"), [Error(-32600)]),
    Row("no version", frame('{"id":7,"method":"version"}'), [Error(-32600, 7)]),
    Row("version 1.0", frame('{"jsonrpc":"1.0","id":7,"method":"version"}'), [Error(-32600, 7)]),
    Row("version as number", frame('{"jsonrpc":2.0,"id":7,"method":"x"}'), [Error(-32600, 7)]),
    Row("no method", frame('{"jsonrpc":"2.0","id":7}'), [Error(-32600, 7)]),
    Row("method null", frame('{"jsonrpc":"2.0","id":7,"method":null}'), [Error(-32600, 7)]),
    Row("method a number, no id", frame('{"jsonrpc":"2.0","method":1}'), [Error(-32600)]),
    Row(
        "params a string",
        frame('{"jsonrpc":"2.0","id":7,"method":"version","params":"x"}'),
        [Error(-32600, 7)],
    ),
    Row(
        "params false",
        frame('{"jsonrpc":"2.0","id":7,"method":"version","params":false}'),
        [Error(-32600, 7)],
    ),
    *(
        Row(
            f"id {id}",
            frame(f'{{"jsonrpc":"2.0","id":{id},"method":"version"}}'),
            [Error(-32600, None, "invalid-id-type")],
        )
        for id in ("{}", "[1]", "true", "false")
    ),
    Row("a response", frame('{"jsonrpc":"2.0","id":7,"result":1}'), []),
    Row("an error response", frame('{"jsonrpc":"2.0","id":null,"error":{"code":1}}'), []),
    Row("a response with an absurd id", frame('{"jsonrpc":"2.0","id":{},"result":1}'), []),
    Row(
        "a reply with a result and an error",
        frame('{"jsonrpc":"2.0","id":7,"result":1,"error":{"code":1,"message":"x"}}'),
        [Error(-32600, 7)],
    ),
    Row("a reply of version 1.0", frame('{"id":7,"jsonrpc":"1.0","result":1}'), [Error(-32600, 7)]),
    Row("a reply without a version", frame('{"id":7,"result":1,"error":null}'), [Error(-32600, 7)]),
    # What is unusual and good.
    Row(
        "a request with a result",
        frame('{"jsonrpc":"2.0","id":"x","method":"version","result":1}'),
        [Answer("x")],
    ),
    Row("lines that end in LF", f"Content-Length: 43\n\n{VERSION}".encode(), [Answer(7)]),
    Row("odd case and spaces", f"cOnTeNt-LENGTH:\t 43 \r\n\r\n{VERSION}".encode(), [Answer(7)]),
    Row("no space", f"Content-Length:43\r\n\r\n{VERSION}".encode(), [Answer(7)]),
    Row("leading zeros", length("00000000000000000043"), [Answer(7)]),
    Row(
        "unknown headers",
        f"X-A: Content-Length: 5\r\nContent-Length: 43\r\nX-B:\r\n\r\n{VERSION}".encode(),
        [Answer(7)],
    ),
    Row("type", typed("Application/VSCode-JSONRPC"), [Answer(7)]),
    Row("charset", typed("application/vscode-jsonrpc; charset=utf-8"), [Answer(7)]),
    Row("old charset", typed("application/vscode-jsonrpc;charset=utf8"), [Answer(7)]),
    Row("loud charset", typed('application/vscode-jsonrpc; a=b ;CHARSET="UTF-8"; c'), [Answer(7)]),
    Row("quoted", typed('application/vscode-jsonrpc; a="x; charset=latin-1"'), [Answer(7)]),
    Row("spaces", typed('application/vscode-jsonrpc ; charset = "utf-8" ; a = b'), [Answer(7)]),
    Row("space round JSON", frame(f" \t\r\n{VERSION}\n"), [Answer(7)]),
    Row(
        "a header at the limit",
        f"Content-Length: 43\r\nX: {'a' * (8192 - 20 - 3 - 2 - 2)}\r\n\r\n{VERSION}".encode(),
        [Answer(7)],
    ),
    Row(
        "a header beyond the limit by one",
        f"Content-Length: 43\r\nX: {'a' * (8193 - 20 - 3 - 2 - 2)}\r\n\r\n{VERSION}".encode(),
        [HEADER],
    ),
]

GOOD = request("good")

# What the end of input does: no good request can follow, but one may be swallowed.
AT_END = [
    Row("nothing", b"", []),
    Row("in a header's name", b"Content-Le", [PARSE]),
    Row("in a header", b"Content-Length: 43\r\n", [PARSE]),
    Row("before the body", b"Content-Length: 43\r\n\r\n", [PARSE]),
    Row("in the body", length("43", VERSION[:-1]), [Error(-32700, 7)]),
    Row("in the body, before the id", length("43", VERSION[:18]), [PARSE]),
    Row("behind a frame", frame(VERSION), [Answer(7)]),
    Row("behind garbage", b"garbage", [PARSE]),
    Row("behind a frame that is lost", b"garbage\nmore", [PARSE]),
    Row("behind oversize", b"Content-Length: 99999999\r\n\r\n{}", [OVERSIZE]),
    Row("a frame swallowed", length("9999") + GOOD, [Error(-32700, 7), Answer("good")]),
    Row(
        "a frame swallowed and one cut off",
        length("9999") + GOOD + GOOD[:-1],
        [Error(-32700, 7), Answer("good"), Error(-32700, "good")],
    ),
]


def check(rows: list[Row], replies: list[dict[str, object]]) -> None:
    """Compare replies, each row's and a good one after it, with the table."""
    expected: list[tuple[str, Error | Answer]] = []
    for row in rows:
        expected += [(row.name, each) for each in row.expected]
    got: list[Error | Answer] = []
    for reply in replies:
        error = reply.get("error")
        if isinstance(error, dict):
            reason = error.get("data", {}).get("reason")
            got.append(Error(error["code"], reply["id"], reason))
        else:
            got.append(Answer(reply["id"]))
    for (name, wanted), given in zip(expected, got):
        assert wanted == given, name
    assert len(got) == len(expected)


def decode(
    pieces: list[bytes], end: bool = False, framing: Framing = CONTENT_LENGTH
) -> list[dict[str, object]]:
    """Read messages as the daemon does; return what it would reply."""
    reader = MessageReader(framing)
    replies: list[dict[str, object]] = []

    def drain() -> None:
        while True:
            message = reader.next()
            if message is None:
                return
            if isinstance(message, list):
                replies.append(json.loads(BATCH))
            elif isinstance(message, InvalidMessage):
                if not message.is_reply:
                    replies.append(load(encode(message.failure)))
            elif isinstance(message, Request):
                replies.append(load(encode(Success(message.id, 0))))

    for piece in pieces:
        reader.feed(piece)
        drain()
    if end:
        reader.finish()
        drain()
    return replies


def pieces_of(data: bytes, size: int) -> list[bytes]:
    """Cut bytes into pieces."""
    return [data[at : at + size] for at in range(0, len(data), size)]
