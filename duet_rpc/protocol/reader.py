"""Bytes to messages: the decoder and the parser, joined.

They are joined because one thing takes both to see: a body that is no JSON may be the
sign of a wrong length, and then the decoder has to look for the next frame inside it.
"""

from __future__ import annotations

from duet_rpc.protocol.errors import INVALID_REQUEST, PARSE_ERROR, Fault
from duet_rpc.protocol.framing import ContentLengthDecoder
from duet_rpc.protocol.messages import Failure, fail, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

    from duet_rpc.protocol.messages import Request, Response

    Message = Union[Request, Response, Failure]


class Reader:
    """Takes pieces of input and gives messages."""

    __slots__ = ("_decoder", "expire", "feed")

    def __init__(self) -> None:
        self._decoder = ContentLengthDecoder()
        self.feed = self._decoder.feed
        self.expire = self._decoder.expire

    @property
    def partial(self) -> bool:
        """True inside a frame, where the rest must come in time."""
        return self._decoder.partial

    def next(self) -> Message | None:
        """Return the next message, or None where more bytes are needed."""
        event = self._decoder.next()
        if event is None:
            return None
        if not isinstance(event, Fault):
            message = parse(event)
            if isinstance(message, Failure) and message.code == PARSE_ERROR:
                self._decoder.reject()
            return message
        if event.code == INVALID_REQUEST and event.body:
            # Refused for its type, and its length may be wrong all the same.
            inside = parse(event.body)
            if isinstance(inside, Failure) and inside.code == PARSE_ERROR:
                self._decoder.reject()
        return fail(event)

    def end(self) -> Failure | None:
        """Say what the end of input cut off. Messages behind it may follow: ask `next`."""
        fault = self._decoder.end()
        return None if fault is None else fail(fault)
