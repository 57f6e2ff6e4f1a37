"""Messages as the gateway reads and writes them: what they carry keeps its own text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.framing import LINES
from duet_rpc.jsonrpc.jsontext import member
from duet_rpc.jsonrpc.messages import Notification, Request, encode
from duet_rpc.jsonrpc.values import ExactNumber, RawJson

if TYPE_CHECKING:
    from duet_rpc.jsonrpc.errors import Error
    from duet_rpc.jsonrpc.framing import Framing
    from duet_rpc.jsonrpc.messages import Id, Message

NO_LINE_BREAKS = bytes.maketrans(b"\r\n", b"  ")


def params_of(message: Request | Notification) -> RawJson | None:
    """Return the params of a message that was read with `raw`."""
    params = message.params
    return params if isinstance(params, RawJson) else None


def raw(text: str) -> RawJson:
    """Wrap JSON text that is only to be sent."""
    return RawJson(text, None)


def value_at(params: RawJson | None, *path: str) -> object:
    """Return a member of the params by its path, or None."""
    value = None if params is None else params.value
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def id_in(params: RawJson | None, name: str) -> tuple[bool, Id]:
    """Return whether a member of the params is an id, and the id as it is written there."""
    value = params.value if params is not None else None
    if params is None or not isinstance(value, dict) or name not in value:
        return False, None
    id = value[name]
    if type(id) is float or (type(id) is int and id == 0):  # -0 is not 0
        text = member(params.text, name) or ""
        return True, 0 if text == "0" else ExactNumber(text)
    return id is None or type(id) in (str, int), id


def detail_of(error: Error) -> str:
    """Return an error's message without the words that its code stands for."""
    return error.message.partition(": ")[2] or error.message


def to_frame(message: Message | list[Message], framing: Framing) -> bytes:
    """Return a message, or an array of them, in its frame."""
    body = encode(message)
    if framing is LINES and (b"\n" in body or b"\r" in body):
        # The sender broke its JSON into lines, between two tokens: a string holds none.
        body = body.translate(NO_LINE_BREAKS)
    return framing.encode(body)
