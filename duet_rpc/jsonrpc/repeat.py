"""The same question again: what was asked last, what the answer was, and where the id stood.

A client that asks once more for what never changes sends the same bytes, but for the id.
They were read and found right once, so what is left to look at is the ids: a quarter off a
round trip, and four fifths off each of a burst, where all are looked at together.
"""

from __future__ import annotations

from duet_rpc.jsonrpc.messages import Request, encode_success, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from duet_rpc.jsonrpc.framing import Framing

BEFORE_ID = b'{"jsonrpc":"2.0","id":'
ZERO = ord("0")


class Repeat:
    """The last frame of its kind and its reply, without their ids."""

    __slots__ = (
        "_begin", "_between", "_between_replies", "_end", "_head", "_reply_head", "_reply_tail",
        "_tail", "size",
    )  # fmt: skip

    def __init__(self) -> None:
        self.size = 0  # of that frame; none was learned yet

    def learn(self, data: bytes, method: str, result: bytes, framing: Framing) -> None:
        """Take the first frame of some input, where it calls this method without params."""
        decoder = framing.decoder()
        decoder.feed(data)
        body = decoder.next()
        if not isinstance(body, (bytes, bytearray)):
            return
        frame = framing.encode(bytes(body))
        id, _, rest = body.removeprefix(BEFORE_ID).partition(b",")
        # Nothing in it may mean more than it seems to: no header beside the length, no second
        # id, however it is spelt.
        if not data.startswith(frame) or not id.isdigit() or b'"id"' in rest or b"\\" in rest:
            return
        message = parse(body)
        if not isinstance(message, Request) or message.method != method or message.params:
            return
        self._begin = frame.index(BEFORE_ID) + len(BEFORE_ID)
        self._end = self._begin + len(id)
        self._head, self._tail = frame[: self._begin], frame[self._end :]
        self._between = self._tail + self._head
        reply = framing.encode(encode_success(id.decode(), result))
        before, mark, self._reply_tail = reply.partition(b'"id":' + id)
        self._reply_head = before + mark[: -len(id)]
        self._between_replies = self._reply_tail + self._reply_head
        self.size = len(frame)

    def answer(self, data: bytes) -> tuple[bytes, int]:
        """Return the replies to all frames that are whole, and where they end.

        That is, where each is that frame with an id of its own; else nothing, and 0.
        """
        size = self.size
        end = len(data) // size * size
        if not data.startswith(self._head) or not data.endswith(self._tail, 0, end):
            return b"", 0
        if end == size:
            id = data[self._begin : self._end]
            if not id.isdigit() or id[0] == ZERO:
                return b"", 0
            return self._reply_head + id + self._reply_tail, end
        ids = data[self._begin : end - len(self._tail)].split(self._between)
        if (
            set(map(len, ids)) != {self._end - self._begin}
            or not b"".join(ids).isdigit()
            or b"0" in data[self._begin : end : size]  # in the first place of an id
        ):
            return b"", 0
        return self._reply_head + self._between_replies.join(ids) + self._reply_tail, end
