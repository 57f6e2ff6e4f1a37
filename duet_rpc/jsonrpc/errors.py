"""What can go wrong, by its number.

An `Error` is the `error` member of a reply. A `Fault` is a broken frame, found by a decoder
and returned as a value. An `RpcError` is what a method raises to refuse a call. All three
end as an error reply.
"""

from __future__ import annotations

from enum import IntEnum

from duet_rpc.jsonrpc.limits import BODY_MAX
from duet_rpc.jsonrpc.values import Value, set_field


class ErrorCode(IntEnum):
    """The five codes that JSON-RPC 2.0 defines."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603

    @property
    def message(self) -> str:
        """The words that an error of this code begins with."""
        return TITLES[self]


# As numbers, for comparing them is an ordinary matter.
PARSE_ERROR = ErrorCode.PARSE_ERROR.value
INVALID_REQUEST = ErrorCode.INVALID_REQUEST.value
METHOD_NOT_FOUND = ErrorCode.METHOD_NOT_FOUND.value
INVALID_PARAMS = ErrorCode.INVALID_PARAMS.value
INTERNAL_ERROR = ErrorCode.INTERNAL_ERROR.value
# LSP's.
REQUEST_CANCELLED = -32800
REQUEST_FAILED = -32803
# Our own, for what a method asks of its caller.
UNSUPPORTED = -32004
DECLINED = -32005
EMACS_ERROR = -32006

TITLES: dict[int, str] = {
    PARSE_ERROR: "Parse error",
    INVALID_REQUEST: "Invalid Request",
    METHOD_NOT_FOUND: "Method not found",
    INVALID_PARAMS: "Invalid params",
    INTERNAL_ERROR: "Internal error",
    REQUEST_CANCELLED: "Request cancelled",
    REQUEST_FAILED: "Request failed",
    UNSUPPORTED: "Unsupported",
    DECLINED: "Declined",
}

UNSUPPORTED_CONTENT_TYPE = "unsupported-content-type"
BAD_CHARSET = "bad-charset"
OVERSIZE = "oversize"
HEADER_TOO_LARGE = "header-too-large"
INVALID_ID_TYPE = "invalid-id-type"
BATCH_NOT_SUPPORTED = "batch-not-supported"


class Error(Value):
    """The `error` member of a reply: a code, a message, and perhaps data.

    >>> Error.method_not_found("frobnicate")
    Error(code=-32601, message='Method not found: frobnicate', data=None)
    """

    __slots__ = ("code", "message", "data")  # noqa: RUF023 - the order of the constructor

    code: int
    message: str
    data: object

    def __init__(self, code: int, message: str, data: object = None) -> None:
        if not isinstance(code, int) or isinstance(code, bool):
            raise TypeError(f"an error's code is an integer, not {type(code).__name__}")
        if not isinstance(message, str):
            raise TypeError(f"an error's message is a string, not {type(message).__name__}")
        set_field(self, "code", int(code))
        set_field(self, "message", message)
        set_field(self, "data", data)

    @classmethod
    def of(cls, code: int, detail: str | None = None, data: object = None) -> Error:
        """Make an error that begins with its code's own words."""
        title = TITLES[code]
        return cls(code, title if detail is None else f"{title}: {detail}", data)

    @classmethod
    def parse_error(cls, detail: str | None = None) -> Error:
        """Make the error for what is not JSON."""
        return cls.of(PARSE_ERROR, detail)

    @classmethod
    def invalid_request(cls, detail: str | None = None, reason: str | None = None) -> Error:
        """Make the error for what is JSON, but not a message."""
        return cls.of(INVALID_REQUEST, detail, None if reason is None else {"reason": reason})

    @classmethod
    def method_not_found(cls, detail: str | None = None) -> Error:
        """Make the error for an unknown method."""
        return cls.of(METHOD_NOT_FOUND, detail)

    @classmethod
    def invalid_params(cls, detail: str | None = None, data: object = None) -> Error:
        """Make the error for parameters that a method does not take."""
        return cls.of(INVALID_PARAMS, detail, data)

    @classmethod
    def internal_error(cls, detail: str | None = None, data: object = None) -> Error:
        """Make the error for a fault of the server's own."""
        return cls.of(INTERNAL_ERROR, detail, data)


class Fault(Value):
    """A broken frame: the error that it is, and what arrived of its body, for the id in it."""

    __slots__ = ("error", "body")  # noqa: RUF023

    error: Error
    body: bytes

    def __init__(self, error: Error, body: bytes | bytearray = b"") -> None:
        set_field(self, "error", error)
        set_field(self, "body", bytes(body))


def oversize(head: bytes | bytearray = b"") -> Fault:
    """Make the fault of a body that is larger than any may be."""
    return Fault(Error.invalid_request(f"body larger than {BODY_MAX} bytes", OVERSIZE), head)


class RpcError(Exception):
    """Raise it in a method to answer the call with this error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        error = Error(code, message, data)  # which checks the types
        super().__init__(message)
        self.code = error.code
        self.message = message
        self.data = data


def invalid_params(
    param: str, expected: str, received: str, accepted: list[str] | None = None
) -> RpcError:
    """Make the error that says which parameter is wrong, in words and in `data`."""
    data: dict[str, object] = {"param": param, "expected": expected, "received": received}
    if accepted is not None:
        data["accepted"] = accepted
    where = f"{param}: " if param else ""
    error = Error.invalid_params(f"{where}expected {expected}, received {received}", data)
    return RpcError(error.code, error.message, error.data)
