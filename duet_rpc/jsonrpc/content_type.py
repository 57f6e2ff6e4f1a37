"""The header Content-Type: optional, and one media type with one charset is all it may say."""

from __future__ import annotations

from duet_rpc.jsonrpc.errors import BAD_CHARSET, UNSUPPORTED_CONTENT_TYPE, Error

MEDIA_TYPE = b"application/vscode-jsonrpc"
CHARSETS = (b"utf-8", b"utf8")


def refuse_content_type(value: bytes) -> Error | None:
    """Return the error that a Content-Type is, or None."""
    media_type, *parameters = split_parameters(value)
    if media_type.lower() != MEDIA_TYPE:
        detail = f"Content-Type must be {MEDIA_TYPE.decode()}"
        return Error.invalid_request(detail, UNSUPPORTED_CONTENT_TYPE)
    for parameter in parameters:
        name, _, charset = parameter.partition(b"=")
        if name.strip().lower() == b"charset":
            charset = charset.strip()
            if charset[:1] == charset[-1:] == b'"':
                charset = charset[1:-1]
            if charset.lower() not in CHARSETS:
                return Error.invalid_request("charset must be utf-8", BAD_CHARSET)
    return None


def split_parameters(value: bytes) -> list[bytes]:
    """Split at the semicolons that stand outside quotes."""
    parts = [b""]
    for index, text in enumerate(value.split(b'"')):
        if index % 2:
            parts[-1] += b'"' + text + b'"'
        else:
            first, *more = text.split(b";")
            parts[-1] += first
            parts += more
    return [part.strip() for part in parts]
