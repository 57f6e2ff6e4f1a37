"""What can go wrong, by its number.

A `Fault` is the client's broken frame or message, found by the core and handed on as a
value. An `RpcError` is what a method raises to refuse a call. Both end as an error reply.
"""

from __future__ import annotations

from duet_rpc.jsonrpc.limits import BODY_MAX

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800
REQUEST_FAILED = -32803

TITLES = {
    PARSE_ERROR: "Parse error",
    INVALID_REQUEST: "Invalid Request",
    METHOD_NOT_FOUND: "Method not found",
    INVALID_PARAMS: "Invalid params",
    INTERNAL_ERROR: "Internal error",
    REQUEST_CANCELLED: "Request cancelled",
    REQUEST_FAILED: "Request failed",
}

UNSUPPORTED_CONTENT_TYPE = "unsupported-content-type"
BAD_CHARSET = "bad-charset"
OVERSIZE = "oversize"
HEADER_TOO_LARGE = "header-too-large"
INVALID_ID_TYPE = "invalid-id-type"
BATCH_NOT_SUPPORTED = "batch-not-supported"


class Fault:
    """A broken frame: which error it is, and what came of its body, for the id in it."""

    __slots__ = ("body", "code", "detail", "reason")

    def __init__(
        self, code: int, detail: str, reason: str | None = None, body: bytes | bytearray = b""
    ) -> None:
        self.code = code
        self.detail = detail
        self.reason = reason
        self.body = body

    def __repr__(self) -> str:
        return f"Fault({self.code}, {self.detail!r}, {self.reason!r}, {bytes(self.body[:40])!r})"


def oversize(head: bytes | bytearray = b"") -> Fault:
    """Say that a body is larger than any may be."""
    return Fault(INVALID_REQUEST, f"body larger than {BODY_MAX} bytes", OVERSIZE, head)


class RpcError(Exception):
    """Raise it in a method to answer the call with this error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        if not isinstance(code, int) or isinstance(code, bool) or not isinstance(message, str):
            raise TypeError("an RpcError has an integer for its code and a text for its message")
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def invalid_params(
    param: str, expected: str, received: str, accepted: list[str] | None = None
) -> RpcError:
    """Say which parameter is wrong, in words and in `data`."""
    data: dict[str, object] = {"param": param, "expected": expected, "received": received}
    if accepted is not None:
        data["accepted"] = accepted
    where = f"{param}: " if param else ""
    return RpcError(
        INVALID_PARAMS,
        f"{TITLES[INVALID_PARAMS]}: {where}expected {expected}, received {received}",
        data,
    )
