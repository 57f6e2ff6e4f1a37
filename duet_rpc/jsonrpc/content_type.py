"""The header Content-Type: optional, and one value with one charset is all it may say."""

from __future__ import annotations

from duet_rpc.jsonrpc.errors import BAD_CHARSET, UNSUPPORTED_CONTENT_TYPE

MEDIA_TYPE = b"application/vscode-jsonrpc"
CHARSETS = (b"utf-8", b"utf8")


def refuse_content_type(value: bytes) -> tuple[str, str] | None:
    """Say what is wrong with a Content-Type, as (reason, detail)."""
    media_type, *parameters = split_parameters(value)
    if media_type.lower() != MEDIA_TYPE:
        return UNSUPPORTED_CONTENT_TYPE, f"Content-Type must be {MEDIA_TYPE.decode()}"
    for parameter in parameters:
        name, _, charset = parameter.partition(b"=")
        if name.strip().lower() == b"charset":
            charset = charset.strip()
            if charset[:1] == charset[-1:] == b'"':
                charset = charset[1:-1]
            if charset.lower() not in CHARSETS:
                return BAD_CHARSET, "charset must be utf-8"
    return None


def split_parameters(value: bytes) -> list[bytes]:
    """Split at the semicolons that stand outside quotes."""
    pieces = [b""]
    for index, text in enumerate(value.split(b'"')):
        if index % 2:
            pieces[-1] += b'"' + text + b'"'
        else:
            first, *more = text.split(b";")
            pieces[-1] += first
            pieces += more
    return [piece.strip() for piece in pieces]
