"""JSON text to messages and back.

A message is one of a closed set: a `Request` (a notification is one without an id), a
`Response`, or a `Failure` that says what the text was instead. Ids are kept as the JSON
text they came as, because that is the only form in which `1.0`, `1e400`, `-0` and a
lone surrogate survive the round trip.

The parser is the C half of `json`, used directly: `import json` brings in `re`, which
takes longer than all else on the way to the first reply. `re` and the rest of `json`
are imported where a fault or an unusual value needs them, and so is what else is seldom
needed: `broken` finds the id of a text that is no JSON, `large` parses large ones.
"""

from __future__ import annotations

import sys
from _json import (
    encode_basestring,
    encode_basestring_ascii,
    make_encoder,
    make_scanner,
)

from duet_rpc.jsonrpc.errors import (
    BATCH_NOT_SUPPORTED,
    INVALID_ID_TYPE,
    INVALID_REQUEST,
    PARSE_ERROR,
    TITLES,
    Fault,
)
from duet_rpc.jsonrpc.limits import BATCH_MAX, INTEGER_DIGITS_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SPACE = " \t\n\r"
NULL = "null"

LARGE = 1024 * 1024
"""Bytes from which on a body is parsed with more effort: see `large`."""


class Request:
    """A call: with an id it wants a reply, without one it is a notification."""

    __slots__ = ("id", "method", "params")

    def __init__(
        self, method: str, params: dict[str, object] | list[object] | None, id: str | None
    ) -> None:
        self.method = method
        self.params = params
        self.id = id


class Response:
    """An answer to a question that was never asked."""

    __slots__ = ("id",)

    def __init__(self, id: str | None) -> None:
        self.id = id


class Failure:
    """An error reply; `id` is None where it answers a notification and stays unsent."""

    __slots__ = ("cause", "code", "data", "id", "message")

    def __init__(
        self,
        id: str | None,
        code: int,
        message: str,
        data: object = None,
        cause: BaseException | None = None,
    ) -> None:
        self.id = id
        self.code = code
        self.message = message
        self.data = data
        self.cause = cause  # for the log alone


class Batch:
    """Several messages in one frame, answered in one."""

    __slots__ = ("messages",)

    def __init__(self, messages: list[Request | Response | Failure]) -> None:
        self.messages = messages


class Scanner:
    """What the C scanner asks of its maker."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float

    @staticmethod
    def parse_int(digits: str) -> int:
        """Take an integer of any length that can be converted in time."""
        if len(digits) > INTEGER_DIGITS_MAX:
            raise ValueError("integer too long")
        return int(digits)

    @staticmethod
    def parse_constant(name: str) -> object:
        """Refuse what JSON has no word for."""
        raise ValueError(f"{name} is not JSON")


if getattr(sys, "get_int_max_str_digits", int)() == INTEGER_DIGITS_MAX:
    # The interpreter holds the limit itself, and `int` is called without a detour.
    Scanner.parse_int = int  # type: ignore[assignment]

if hasattr(sys, "gettotalrefcount"):
    # A debug build aborts where others raise the SystemError that `parse` lives with.
    import json.decoder  # noqa: F401

scan = make_scanner(Scanner())  # type: ignore[arg-type]


def parse(body: bytes | bytearray, batch: bool = False) -> Request | Response | Failure | Batch:
    """Turn one body into the message it holds; an array only where batches are allowed."""
    if len(body) > LARGE:
        from duet_rpc.jsonrpc.large import parse_large

        return parse_large(body, batch)
    return parse_text(body, batch)


def parse_text(body: bytes | bytearray, batch: bool) -> Request | Response | Failure | Batch:
    """Do so by parsing the JSON in it."""
    try:
        text = str(body, "utf-8")
        start = 0
        if text[:1] != "{":
            start = len(text) - len(text.lstrip(SPACE))
        value, end = scan(text, start)
        if end != len(text) and text[end:].strip(SPACE):
            raise ValueError("more than one JSON value")
    except SystemError:
        # The C scanner raises an error class of `json.decoder` that it takes to be loaded.
        # Loading it at the first fault, not at start, is a fifth off the time to the first
        # reply.
        import json.decoder  # noqa: F401

        return parse_text(body, batch)
    except UnicodeDecodeError:
        return fail(Fault(PARSE_ERROR, "the body is not UTF-8", body=body))
    except RecursionError:
        return fail(Fault(PARSE_ERROR, "nested too deeply", body=body))
    except (ValueError, StopIteration) as error:
        return fail(Fault(PARSE_ERROR, _what_is_wrong(error), body=body))
    if type(value) is dict:
        return read_envelope(value, body)
    if type(value) is list:
        if batch:
            return _read_batch(value, text, start)
        return Failure(
            NULL, INVALID_REQUEST, "Batch requests not supported", {"reason": BATCH_NOT_SUPPORTED}
        )
    return fail(Fault(INVALID_REQUEST, "expected an object"))


def _read_batch(elements: list[object], text: str, at: int) -> Batch | Failure:
    if not 0 < len(elements) <= BATCH_MAX:
        detail = f"a batch holds 1 to {BATCH_MAX} messages"
        return fail(Fault(INVALID_REQUEST, detail))
    # Each element is parsed once more from its own text: its id is kept as it came.
    messages: list[Request | Response | Failure] = []
    for element in elements:
        at = _skip_space(text, at + 1)  # past the bracket or the comma
        end = scan(text, at)[1]
        if isinstance(element, dict):
            messages.append(read_envelope(element, text[at:end].encode()))
        else:
            messages.append(fail(Fault(INVALID_REQUEST, "expected an object")))
        at = _skip_space(text, end)
    return Batch(messages)


def _skip_space(text: str, at: int) -> int:
    while text[at] in SPACE:
        at += 1
    return at


def fail(fault: Fault) -> Failure:
    """Turn a fault into its reply, with the id where one can be read."""
    from duet_rpc.jsonrpc.broken import read_id

    return Failure(
        read_id(fault.body) or NULL,
        fault.code,
        f"{TITLES[fault.code]}: {fault.detail}",
        None if fault.reason is None else {"reason": fault.reason},
    )


def read_envelope(
    value: dict[str, object], body: bytes | bytearray
) -> Request | Response | Failure:
    """Turn the value of a body into the message it holds."""
    method = value.get("method", value)  # no value holds itself: it stands for "absent"
    is_response = method is value and ("result" in value or "error" in value)
    id = value.get("id", value)
    if id is value:
        text = None
    else:
        text = _write_id(id, body)
        if text is None and not is_response:
            detail = "id must be a string, a number or null"
            return fail(Fault(INVALID_REQUEST, detail, INVALID_ID_TYPE))
    if is_response:
        return Response(text)

    params = value.get("params")
    if value.get("jsonrpc") != "2.0":
        detail = 'jsonrpc must be "2.0"'
    elif not isinstance(method, str):
        detail = "method must be a string"
    elif params is not None and not isinstance(params, (dict, list)):
        detail = "params must be an object or an array"
    else:
        return Request(method, params, text)
    return Failure(text or NULL, INVALID_REQUEST, f"{TITLES[INVALID_REQUEST]}: {detail}")


def _write_id(id: object, body: bytes | bytearray) -> str | None:
    """Write an id as it came; None where it is of no type for an id."""
    if isinstance(id, str):
        return encode_basestring_ascii(id)
    if id is None:
        return NULL
    if type(id) is int and id:  # -0 is not 0
        return str(id)
    if type(id) not in (int, float):
        return None
    from duet_rpc.jsonrpc.broken import read_id

    return read_id(body)


def _what_is_wrong(error: Exception) -> str:
    """Say it without a word of the text itself."""
    place = getattr(error, "pos", None)
    if isinstance(error, StopIteration):
        return f"no JSON value at character {error.value}"
    if place is None:
        text = str(error)
        return "integer too long" if text.startswith("Exceeds the limit") else text
    message: str = error.msg  # type: ignore[attr-defined]
    return f"{message.removesuffix(' at')} at character {place}"


def same_id(id: str | None, value: object) -> bool:
    """Compare an id as it came with one that was read: 1, 1.0 and "1" are three ids."""
    if id is None:
        return False
    own = scan(id, 0)[0]
    return type(own) is type(value) and bool(own == value)


# Messages to JSON text.


def encode_success(id: str, result: bytes) -> bytes:
    """Build a reply round a result that is JSON already."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id.encode(), result)


def encode_failure(failure: Failure) -> bytes:
    """Build an error reply."""
    error: dict[str, object] = {"code": failure.code, "message": failure.message}
    if failure.data is not None:
        error["data"] = failure.data
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % ((failure.id or NULL).encode(), to_json(error))


def from_json(text: bytes) -> object:
    """Read JSON of our own making."""
    return scan(text.decode(), 0)[0]


def _refuse(value: object) -> object:
    raise TypeError(f"a value of type {type(value).__name__} is not JSON")


def _encoder(default: Callable[[object], object], seen: dict[int, object] | None = None) -> Any:
    """Make what writes a value as pieces of JSON; where `seen` is there, circles are found."""
    # In order: circles, default, strings, indent, separators, sort, skip keys, NaN.
    return make_encoder(seen, default, encode_basestring, None, ":", ",", False, False, False)


_encode = _encoder(_refuse)


def to_json(value: object, default: Callable[[object], object] | None = None) -> bytes:
    """Encode a value as JSON that Emacs can read; ValueError or TypeError where it is none."""
    encode = _encode if default is None else _encoder(default)
    try:
        text = "".join(encode(value, 0))
    except RecursionError:
        # It is too deep, or a circle. To look for circles from the start is a tenth of the
        # time for a large value, and half for a small one.
        text = "".join(_encoder(default or _refuse, {})(value, 0))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
