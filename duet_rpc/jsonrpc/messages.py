"""Typed messages: what JSON-RPC 2.0 says, as values that can't be wrong.

`parse` turns text into a `Request`, `Notification`, `Success` or `Failure` (a list of them
for a batch), `encode` turns them into bytes. Ids keep their spelling: an integer is an
`int`, and a number that Python's numbers can't hold exactly is an `ExactNumber`.

    >>> request = parse(b'{"jsonrpc": "2.0", "id": 1.0, "method": "add", "params": [1, 2]}')
    >>> request
    Request(method='add', params=[1, 2], id=ExactNumber('1.0'))
    >>> encode(Success(request.id, 3))
    b'{"jsonrpc":"2.0","id":1.0,"result":3}'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union

from duet_rpc.jsonrpc import salvage
from duet_rpc.jsonrpc.errors import INVALID_ID_TYPE, Error
from duet_rpc.jsonrpc.jsontext import (
    INTEGER_TOO_LONG,
    NOT_JSON,
    SPACE,
    dumps,
    explain,
    loads,
    member,
    scan,
    split_array,
    split_object,
    to_utf8,
    write_id,
)
from duet_rpc.jsonrpc.limits import INTEGER_DIGITS_MAX
from duet_rpc.jsonrpc.values import JSON_NUMBER, ExactNumber, RawJson, Value, set_field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Id = Union[str, int, float, None]
    Params = Union[dict[str, object], list[object], RawJson, None]
    Parsed = Union["Message", "InvalidMessage", list[Union["Message", "InvalidMessage"]]]

_MISSING = object()


def check_id(id: object) -> Id:
    """Return an id, a float as the number that it is written as; raises TypeError."""
    if id is None or isinstance(id, (str, ExactNumber)) or type(id) is int:
        return id
    if isinstance(id, float):
        return ExactNumber(repr(id))  # which refuses NaN and infinity
    if isinstance(id, int) and not isinstance(id, bool):
        return int(id)
    raise TypeError(f"an id is a string, a number or None, not {type(id).__name__}")


def check_call(method: object, params: object) -> None:
    """Raise TypeError where these are not the method and the params of a call."""
    if not isinstance(method, str):
        raise TypeError(f"a method is a string, not {type(method).__name__}")
    if params is not None and not isinstance(params, (dict, list, RawJson)):
        raise TypeError(f"params are a dict, a list or None, not {type(params).__name__}")


class Request(Value):
    """A call that wants a reply."""

    __slots__ = ("method", "params", "id")  # noqa: RUF023 - the order of the constructor

    method: str
    params: Params
    id: Id
    is_notification = False

    def __init__(self, method: str, params: Params = None, id: object = _MISSING) -> None:
        if id is _MISSING:
            raise TypeError("a Request has an id; without one it is a Notification")
        check_call(method, params)
        set_field(self, "method", method)
        set_field(self, "params", params)
        set_field(self, "id", check_id(id))


class Notification(Value):
    """A call that gets no reply."""

    __slots__ = ("method", "params")

    method: str
    params: Params
    is_notification = True

    def __init__(self, method: str, params: Params = None) -> None:
        check_call(method, params)
        set_field(self, "method", method)
        set_field(self, "params", params)


class Success(Value):
    """A reply with a result."""

    __slots__ = ("id", "result")

    id: Id
    result: object

    def __init__(self, id: object, result: object) -> None:
        set_field(self, "id", check_id(id))
        set_field(self, "result", result)


class Failure(Value):
    """A reply with an error."""

    __slots__ = ("id", "error")  # noqa: RUF023

    id: Id
    error: Error

    def __init__(self, id: object, error: Error) -> None:
        if not isinstance(error, Error):
            raise TypeError(f"a Failure has an Error, not {type(error).__name__}")
        set_field(self, "id", check_id(id))
        set_field(self, "error", error)


Message = Union[Request, Notification, Success, Failure]


class InvalidMessage(ValueError):
    """A text is not a message; `failure` is the reply that says why."""

    def __init__(
        self,
        error: Error,
        id: Id = None,
        *,
        id_known: bool = False,
        method: str | None = None,
        is_reply: bool = False,
    ) -> None:
        super().__init__(error.message)
        self.failure = Failure(id, error)
        self.id_known = id_known  # an id could be read; the failure's None is a real null
        self.method = method  # where one could be read
        self.is_reply = is_reply  # a reply with a fault in it, to which nobody replies


# Text to messages.


def parse(data: str | bytes, *, allow_null_id: bool = True) -> Message | list[Message]:
    """Return the message of a JSON text, or the list of messages of a batch.

    Raises `InvalidMessage` for anything else, for one bad message in a batch too.
    """
    body = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    parsed = read_message(body)
    messages = parsed if isinstance(parsed, list) else [parsed]
    if not messages:
        raise InvalidMessage(Error.invalid_request("an empty batch"))
    found: list[Message] = []
    for message in messages:
        if isinstance(message, InvalidMessage):
            raise message
        if not allow_null_id and isinstance(message, Request) and message.id is None:
            error = Error.invalid_request("id must not be null", INVALID_ID_TYPE)
            raise InvalidMessage(error, id_known=True, method=message.method)
        found.append(message)
    return found if isinstance(parsed, list) else found[0]


def read_message(body: bytes | bytearray, raw: bool = False) -> Parsed:
    """Return the message, the batch or the `InvalidMessage` that a body holds.

    With `raw` the params, results and errors' data are `RawJson`: the text as it came.
    """
    try:
        text = str(body, "utf-8")
    except UnicodeDecodeError:
        return invalid(Error.parse_error("the body is not UTF-8"), body)
    try:
        return _read_text(text, body, raw)
    except NOT_JSON as error:
        detail = explain(error)
    if detail == INTEGER_TOO_LONG:
        # Perhaps it is the id, which is not converted but kept as it is written: with a
        # fraction in its place `_read_object` looks at the body for it.
        shorter = salvage.replace_id(text, "0.0")
        try:
            if shorter is not None:
                return _read_text(shorter, body, raw)
        except NOT_JSON:
            pass
    return invalid(Error.parse_error(detail), body)


def _read_text(text: str, body: bytes | bytearray, raw: bool) -> Parsed:
    if raw and text.lstrip(SPACE)[:1] == "{":
        return _read_raw(text, body)
    value = loads(text)
    if type(value) is dict:
        return _read_object(value, body)
    if type(value) is list:
        return _read_batch(value, text, raw)
    return InvalidMessage(Error.invalid_request("expected an object"))


def invalid(error: Error, body: bytes | bytearray) -> InvalidMessage:
    """Make the `InvalidMessage` of a broken body, with the id and the method in it."""
    text = salvage.find_id(body)
    known, id = (False, None) if text is None else _id_of_text(text)
    return InvalidMessage(error, id, id_known=known, method=salvage.find_method(body))


def _read_batch(elements: list[object], text: str, raw: bool) -> Parsed:
    # Each element is read once more from its own text: its id is kept as it came.
    found: list[Message | InvalidMessage] = []
    for element, part in zip(elements, split_array(text)):
        if type(element) is not dict:
            found.append(InvalidMessage(Error.invalid_request("expected an object")))
            continue
        body = part.encode("utf-8", "surrogatepass")
        found.append(_read_raw(part, body) if raw else _read_object(element, body))
    return found


def _read_raw(text: str, body: bytes | bytearray) -> Message | InvalidMessage:
    """Return a message that carries text."""
    members, end = split_object(text, len(text) - len(text.lstrip(SPACE)))
    if text[end:].strip(SPACE):
        raise ValueError(f"more than one JSON value, the second at character {end}")

    def as_text(name: str, value: object) -> RawJson:
        _, start, end = members[name]
        if name == "error":
            _, start, end = split_object(text, start)[0]["data"]
        return RawJson(text[start:end], value)

    return _read_object({name: found[0] for name, found in members.items()}, body, as_text)


def _keep(_name: str, value: object) -> object:
    return value


def _read_object(
    value: Mapping[str, Any],
    body: bytes | bytearray,
    payload: Callable[[str, Any], Any] = _keep,
) -> Message | InvalidMessage:
    """Return the message that an object is; `payload` makes what it carries of a member."""
    method = value.get("method")
    is_call = "method" in value or not ("result" in value or "error" in value)
    id = value.get("id", _MISSING)
    known = True
    if id is _MISSING:
        known, id = False, None
    elif type(id) is float or (type(id) is int and id == 0):  # -0 is not 0
        known, id = _id_of_text(salvage.find_id(body) or dumps(id))
    elif id is not None and type(id) not in (str, int):
        error = Error.invalid_request("id must be a string, a number or null", INVALID_ID_TYPE)
        name = method if isinstance(method, str) else None
        return InvalidMessage(error, method=name, is_reply=not is_call)
    detail = None
    if value.get("jsonrpc") != "2.0":
        detail = 'jsonrpc must be "2.0"'
    elif "method" not in value and "result" in value and "error" in value:
        detail = "a reply has a result or an error, not both"
    elif not is_call:
        return _read_reply(value, known, id, payload)
    elif not isinstance(method, str):
        detail = "method must be a string"
    else:
        params = value.get("params")
        if params is None or isinstance(params, (dict, list)):
            if params is not None:
                params = payload("params", params)
            return Request(method, params, id) if known else Notification(method, params)
        detail = "params must be an object or an array"
    error = Error.invalid_request(detail)
    name = method if isinstance(method, str) else None
    return InvalidMessage(error, id, id_known=known, method=name)


def _read_reply(
    value: Mapping[str, Any],
    known: bool,
    id: Id,
    payload: Callable[[str, Any], Any],
) -> Message | InvalidMessage:
    error = value.get("error")
    if not known:
        detail = "a reply has an id"
    elif "result" not in value and isinstance(error, dict):
        code, message, data = error.get("code"), error.get("message"), error.get("data")
        if type(code) is int and isinstance(message, str):
            if data is not None:
                data = payload("error", data)
            return Failure(id, Error(code, message, data))
        detail = "an error has an integer for its code and a string for its message"
    elif "error" not in value:
        return Success(id, payload("result", value["result"]))
    else:
        detail = "error must be an object"
    return InvalidMessage(Error.invalid_request(detail), id, id_known=known, is_reply=True)


def _id_of_text(text: str) -> tuple[bool, Id]:
    """Return whether a text is an id, and the id."""
    if text == "null":
        return True, None
    if JSON_NUMBER.fullmatch(text) is None:
        try:
            value = scan(text, 0)[0]
        except NOT_JSON:
            return False, None
        return isinstance(value, str), value
    if text.lstrip("-").isdigit() and text != "-0":
        try:
            return True, int(text) if len(text) <= INTEGER_DIGITS_MAX else ExactNumber(text)
        except ValueError:  # the interpreter was told to convert even less
            return True, ExactNumber(text)
    return True, ExactNumber(text)


def exact_member(body: bytes, path: tuple[str, ...], value: Any) -> Id:
    """Return a string or a number inside a message as an id, spelled as it came."""
    if isinstance(value, str) or (type(value) is int and value):
        return value
    try:
        text: str | None = str(body, "utf-8")
        for name in path:
            text = text and member(text, name)
    except NOT_JSON:  # it is part of a batch, whose text is not kept
        text = None
    known, id = (False, None) if text is None else _id_of_text(text)
    return id if known else check_id(value)


# Messages to text.


def encode(message: Message | list[Message]) -> bytes:
    """Return a message, or a batch of them, as compact JSON in UTF-8.

    Raises TypeError or ValueError where what it carries is not JSON.
    """
    if isinstance(message, list):
        return b"[" + b",".join(encode(each) for each in message) + b"]"
    if isinstance(message, Success):
        return encode_success(message.id, dumps(message.result))
    if isinstance(message, (Request, Notification)):
        id = "" if isinstance(message, Notification) else f'"id":{write_id(message.id)},'
        params = "" if message.params is None else f',"params":{dumps(message.params)}'
        return to_utf8(f'{{"jsonrpc":"2.0",{id}"method":{dumps(message.method)}{params}}}')
    error = message.error
    data = "" if error.data is None else f',"data":{dumps(error.data)}'
    return to_utf8(
        f'{{"jsonrpc":"2.0","id":{write_id(message.id)},'
        f'"error":{{"code":{error.code},"message":{dumps(error.message)}{data}}}}}'
    )


def encode_success(id: Id, result: str) -> bytes:
    """Return a reply round a result that is JSON text already."""
    return to_utf8(f'{{"jsonrpc":"2.0","id":{write_id(id)},"result":{result}}}')
