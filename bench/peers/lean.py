"""The leanest loop in Python that can answer: it checks nothing.

Run it as `python -I -S bench/peers/lean.py`.
"""

import os
from json import dumps, loads

METHODS = {
    "version": lambda _: {"version": "0.1.0"},
    "count": lambda params: min(params["text"].count(params["word"]), params["limit"]),
    "tally": lambda params: len(params["records"]),
}

buffer = b""
while True:
    chunk = os.read(0, 65536)
    if not chunk:
        break
    buffer += chunk
    while True:
        head, blank, rest = buffer.partition(b"\r\n\r\n")
        if not blank:
            break
        length = int(head[15:])
        if len(rest) < length:  # a long one: read the rest of it without looking again
            chunks = [rest]
            missing = length - len(rest)
            while missing:
                chunks.append(os.read(0, min(missing, 65536)))
                missing -= len(chunks[-1])
            rest = b"".join(chunks)
        request = loads(rest[:length])
        buffer = rest[length:]
        result = METHODS[request["method"]](request["params"])
        reply = dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
        os.write(1, b"Content-Length: %d\r\n\r\n%b" % (len(reply), reply))
