"""The same question again: what was asked last, what the answer was, and where the id stood.

A client that asks once more for what never changes sends the same bytes, but for the id.
They were read and found right once, so what is left to look at is the id: a quarter off a
round trip.
"""

from __future__ import annotations

from duet_rpc.protocol.messages import USUAL, ZERO, encode_success, is_plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from duet_rpc.protocol.framing import Framing


class Repeat:
    """The last frame of its kind and its reply, without their ids."""

    __slots__ = ("_begin", "_end", "_head", "_reply_head", "_reply_tail", "_size", "_tail")

    def __init__(self) -> None:
        self._size = -1  # of that frame; none was learned yet

    def learn(self, piece: bytes, result: bytes, framing: Framing) -> None:
        """Take one frame, and the result that it has whenever it comes.

        It must have been read and found right, and nothing of another frame be before it.
        """
        start = piece.find(USUAL)
        body = piece[start:].rstrip(b"\r\n")
        id, _, rest = body[len(USUAL) :].partition(b",")
        # Nothing else may be in it: no second frame, no header that means something.
        if start < 0 or not is_plain(id, rest) or framing.encode(body) != piece:
            return
        self._begin = start + len(USUAL)
        self._end = self._begin + len(id)
        self._head, self._tail = piece[: self._begin], piece[self._end :]
        reply = framing.encode(encode_success(id.decode(), result))
        before, mark, self._reply_tail = reply.partition(b'"id":' + id)
        self._reply_head = before + mark[: -len(id)]
        self._size = len(piece)

    def answer(self, piece: bytes) -> bytes | None:
        """Return the reply, where a piece of input is that frame with an id of the same length."""
        if (
            len(piece) != self._size
            or not piece.startswith(self._head)
            or not piece.endswith(self._tail)
        ):
            return None
        id = piece[self._begin : self._end]
        if not id.isdigit() or id[0] == ZERO:
            return None
        return self._reply_head + id + self._reply_tail
