"""The leanest Python loop that can answer: a limit that the daemon is measured against.

It checks nothing. Run it as `python -I -S bench/peers/lean.py`; with the word `msgspec`
behind it, where that is installed, it is the limit for who uses that.
"""

import os
import sys

if "msgspec" in sys.argv:
    from msgspec.json import decode
else:
    from json import loads as decode

buffer = b""
while True:
    piece = os.read(0, 65536)
    if not piece:
        break
    buffer += piece
    while True:
        head, blank, rest = buffer.partition(b"\r\n\r\n")
        if not blank:
            break
        length = int(head[15:])
        if len(rest) < length:  # a long one: read the rest of it without looking again
            pieces = [rest]
            missing = length - len(rest)
            while missing:
                pieces.append(os.read(0, min(missing, 65536)))
                missing -= len(pieces[-1])
            rest = b"".join(pieces)
        request = decode(rest[:length])
        buffer = rest[length:]
        reply = b'{"jsonrpc":"2.0","id":%d,"result":{"version":"0.1.0"}}' % request["id"]
        os.write(1, b"Content-Length: %d\r\n\r\n%b" % (len(reply), reply))
