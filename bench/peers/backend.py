"""A server to stand behind a gateway: it does as little as a server can.

Run it as `python -I -S bench/peers/backend.py`. It answers `initialize` as a language
server does, `hold` not before `release`, and everything else with fixed replies.
"""

import json
import os

ITEM = {
    "label": "count_words",
    "kind": 3,
    "detail": "def count_words(text: str) -> int",
    "sortText": "a0042",
    "textEdit": {
        "newText": "count_words",
        "range": {"start": {"line": 41, "character": 4}, "end": {"line": 41, "character": 7}},
    },
}

CAPABILITIES = {"hoverProvider": True, "completionProvider": {"triggerCharacters": ["."]}}

RESULTS = {
    "initialize": {"capabilities": CAPABILITIES},
    "textDocument/hover": {"contents": "count_words(text: str) -> int"},
    "textDocument/completion": {"isIncomplete": False, "items": [ITEM] * 100},
}
REPLIES = {
    name: json.dumps(value, separators=(",", ":")).encode() for name, value in RESULTS.items()
}

held = []


def reply(id: int, result: bytes) -> bytes:
    """Make one reply, in its frame."""
    body = b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (id, result)
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def write(data: bytes) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(1, data) :]


buffer = b""
while True:
    piece = os.read(0, 65536)
    if not piece:
        break
    buffer += piece
    while True:
        head, blank, rest = buffer.partition(b"\r\n\r\n")
        length = int(head[15:]) if blank else 0
        if not blank or len(rest) < length:
            break
        message = json.loads(rest[:length])
        buffer = rest[length:]
        method = message.get("method")
        if method == "hold":
            held.append(message["id"])
        elif method == "release":
            write(b"".join(reply(id, b"null") for id in held))
            held.clear()
        elif "id" in message:
            write(reply(message["id"], REPLIES.get(method, b"null")))
