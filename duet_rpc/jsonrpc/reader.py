"""Bytes to messages: a decoder and the parser, joined.

They are joined because one thing takes both to see: a body that is no JSON may be the
sign of a wrong length, and then the decoder has to look for the next frame inside it.
"""

from __future__ import annotations

from duet_rpc.jsonrpc.errors import INVALID_REQUEST, PARSE_ERROR, Fault
from duet_rpc.jsonrpc.framing import CONTENT_LENGTH, guess_framing
from duet_rpc.jsonrpc.messages import Failure, fail, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Union

    from duet_rpc.jsonrpc.framing import Framing
    from duet_rpc.jsonrpc.messages import Batch, Request, Response

    Message = Union[Request, Response, Failure, Batch]


class Reader:
    """Takes pieces of input and gives messages."""

    __slots__ = (
        "_decoder", "batch", "expire", "feed", "finish", "framing", "reserve", "take_back",
    )  # fmt: skip

    def __init__(self, framing: Framing | None = CONTENT_LENGTH, batch: bool = False) -> None:
        """Read this framing; None means the one that the first byte tells."""
        self.batch = batch  # arrays are taken
        self._use(framing or CONTENT_LENGTH)
        if framing is None:
            self.feed: Callable[[bytes], None] = self._guess

    def _use(self, framing: Framing) -> None:
        self.framing = framing
        self._decoder = framing.decoder()
        self.feed = self._decoder.feed
        self.reserve = self._decoder.reserve
        self.take_back = self._decoder.take_back
        self.expire = self._decoder.expire
        self.finish = self._decoder.finish

    def _guess(self, data: bytes) -> None:
        """Take the first piece of input, and tell the framing by it."""
        data = data.lstrip(b"\r\n")
        if data:
            self._use(guess_framing(data))
            self.feed(data)

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
            message = parse(event, self.batch)
            if isinstance(message, Failure) and message.code == PARSE_ERROR:
                self._decoder.reject()
            return message
        if event.code == INVALID_REQUEST and event.body:
            # Refused for its type, and its length may be wrong all the same.
            inside = parse(event.body)
            if isinstance(inside, Failure) and inside.code == PARSE_ERROR:
                self._decoder.reject()
        return fail(event)
