"""Bytes to messages: a decoder and the parser, joined.

They are joined because one thing takes both to see: a body that is not JSON may be the
sign of a wrong length, and then the decoder has to look for the next frame inside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.errors import INVALID_REQUEST, OVERSIZE, PARSE_ERROR, Fault
from duet_rpc.jsonrpc.framing import CONTENT_LENGTH, guess_framing
from duet_rpc.jsonrpc.messages import InvalidMessage, invalid, read_message

if TYPE_CHECKING:
    from duet_rpc.jsonrpc.framing import Framing
    from duet_rpc.jsonrpc.messages import Parsed


class MessageReader:
    """Turns chunks of input into messages."""

    __slots__ = ("_decoder", "_from_server", "_guessing", "_raw", "body", "framing", "is_frame")

    def __init__(
        self,
        framing: Framing | None = CONTENT_LENGTH,
        *,
        raw: bool = False,
        from_server: bool = False,
    ) -> None:
        """Read this framing, or with None the one that the first byte tells.

        `raw` is as in `read_message`, `from_server` as in `framing`; a server's frames are
        read whatever Content-Type they claim.
        """
        self._guessing = framing is None
        self.framing = framing or CONTENT_LENGTH
        self._decoder = self.framing.decoder(from_server)
        self._raw = raw
        self._from_server = from_server
        self.is_frame = False  # what `next` returned last came in a frame
        self.body = b""  # and its text

    def feed(self, chunk: bytes) -> None:
        """Add a chunk of input."""
        if self._guessing:
            chunk = chunk.lstrip(b"\r\n")
            if not chunk:
                return
            self._guessing = False
            self.framing = guess_framing(chunk)
            self._decoder = self.framing.decoder(self._from_server)
        self._decoder.feed(chunk)

    @property
    def partial(self) -> bool:
        """True inside a frame, where the rest must come in time."""
        return self._decoder.partial

    def expire(self) -> None:
        """Discard the frame that did not arrive in time."""
        self._decoder.expire()

    def finish(self) -> None:
        """Note that no more will come; `next` then tells what that cut off."""
        self._decoder.finish()

    def next(self) -> Parsed | None:
        """Return the next message, batch or `InvalidMessage`, or None: more is needed."""
        self.body = b""
        event = self._decoder.next()
        if event is None:
            return None
        self.is_frame = not isinstance(event, Fault)
        if isinstance(event, Fault):
            return self._read_fault(event)
        self.body = event
        message = read_message(event, self._raw)
        if isinstance(message, InvalidMessage) and message.failure.error.code == PARSE_ERROR:
            self._decoder.reject()
        return message

    def _read_fault(self, fault: Fault) -> Parsed:
        self.body = fault.body
        error = fault.error
        if error.code == INVALID_REQUEST and fault.body and error.data != {"reason": OVERSIZE}:
            # Refused for its type, and its length may be wrong all the same.
            inside = read_message(fault.body, self._raw)
            if isinstance(inside, InvalidMessage) and inside.failure.error.code == PARSE_ERROR:
                self._decoder.reject()
            elif self._from_server:
                return inside
        return invalid(error, fault.body)
