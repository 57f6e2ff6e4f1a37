"""A server to put behind a gateway: it does as little as a language server can.

Run it as `python -I -S bench/peers/backend.py`. It answers `initialize`, and everything else as
if it were `textDocument/hover`.
"""

import json
import os


def answer(method: str, params: dict) -> object:
    """Return the result of one request."""
    if method == "initialize":
        return {"capabilities": {"hoverProvider": True}}
    place = params["position"]
    return {"contents": f"line {place['line']}, " * (1 + place["character"] % 9)}


buffer = b""
while True:
    chunk = os.read(0, 65536)
    if not chunk:
        break
    buffer += chunk
    while True:
        head, blank, rest = buffer.partition(b"\r\n\r\n")
        length = int(head[15:]) if blank else 0
        if not blank or len(rest) < length:
            break
        message = json.loads(rest[:length])
        buffer = rest[length:]
        if "id" in message:
            result = answer(message["method"], message["params"])
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
            os.write(1, b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
