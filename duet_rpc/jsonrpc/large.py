"""Large bodies, parsed with more effort.

The collector would look again and again at a value that only grows: a list of records
takes a quarter less without it. Where msgspec is installed it parses three times as fast;
it gives the same values, and what it refuses the usual parser judges.
"""

from __future__ import annotations

import gc

from duet_rpc.jsonrpc.messages import Scanner, parse_text, read_envelope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.jsonrpc.messages import Batch, Failure, Request, Response

_came = False  # one of them, so that it is worth being quick with the next
_sought = False
_decode: Callable[[bytes | bytearray], object] | None = None  # what is quicker


def parse_large(body: bytes | bytearray, batch: bool) -> Request | Response | Failure | Batch:
    """Turn one large body into the message it holds."""
    global _came
    _came = True
    collecting = gc.isenabled()
    gc.disable()
    try:
        value = None if _decode is None else _decode(body)
        return read_envelope(value, body) if isinstance(value, dict) else parse_text(body, batch)
    finally:
        if collecting:
            gc.enable()


def room_for(size: int) -> int:
    """Return how much memory it takes to parse a body of this size, itself included.

    It is there as bytes, as text and as a value. msgspec writes the text where there is room
    for half as much again.
    """
    return size * 3 if _decode is None else size * 7 // 2


def accelerate() -> None:
    """Load what is quicker, once there was a large body.

    That takes longer than to parse one, so the first goes without. And it is for a moment in
    which nothing else is done: a body may be parsed in the middle of other code, which may
    be importing the same.
    """
    global _sought, _decode
    if _came and not _sought:
        _sought = True
        _decode = _find_accelerator()


def _find_accelerator() -> Callable[[bytes | bytearray], object] | None:
    # It holds the limit on digits where the interpreter does.
    if Scanner.parse_int is int:
        try:
            import msgspec  # type: ignore[import-not-found, unused-ignore]
        except Exception:  # noqa: BLE001, S110 - not there, or broken: it is not needed
            pass
        else:
            return lambda body: _try(msgspec.json.decode, body)
    return None


def _try(decode: Callable[[bytes | bytearray], object], body: bytes | bytearray) -> object:
    try:
        return decode(body)
    except Exception:  # noqa: BLE001 - whatever it is, the usual parser has the last word
        return None
