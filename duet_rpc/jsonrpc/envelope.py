"""Messages that are handed on: the envelope is read, what is inside keeps its own text.

Whoever decodes JSON and encodes it again changes it: `1.0`, thirty digits and a lone
surrogate do not all survive. So the members of an object are found as slices of the
text, with the C scanner, and a message is built round the slice and not round its value.
"""

from __future__ import annotations

import re
from _json import encode_basestring_ascii, scanstring

from duet_rpc.jsonrpc.errors import INVALID_REQUEST, OVERSIZE, PARSE_ERROR, Fault
from duet_rpc.jsonrpc.framing import CONTENT_LENGTH
from duet_rpc.jsonrpc.messages import NULL, SPACE, Failure, fail, parse, scan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from duet_rpc.jsonrpc.framing import Framing

    Members = dict[str, tuple[object, int, int]]
    """The value of each member, and from where to where its text goes."""

BROKEN = (ValueError, IndexError, StopIteration, RecursionError, SystemError)
"""What reading a text that is no JSON may raise."""


# What nearly every message looks like: short members without escapes, then the one that
# matters, and nothing behind it. One look is a third of the time of taking it apart.
HEAD = r"""\{@(?:(?:"jsonrpc"@:@(?P<version>"2\.0")
        |"id"@:@(?P<id>(?:0|[1-9][0-9]*)|"[ !\#-\[\]-~]*")
        |"method"@:@"(?P<method>[ !\#-\[\]-~]*)")@,@)+
        "(?P<last>params|result)"@:@""".replace("@", r"[ \t\n\r]*")  # JSON's own white space
USUAL = re.compile(HEAD, re.VERBOSE | re.ASCII)

# The same with the header of its frame: one look for both is 1.5 us off the 33 that the
# gateway adds to a round trip.
HEADER = r"Content-Length:\ (?P<length>[1-9][0-9]{0,7})\r\n\r\n"
FRAME = re.compile(HEADER + HEAD, re.VERBOSE | re.ASCII)
HEADER_SIZE = len("Content-Length: \r\n\r\n")  # without the digits


class Envelope:
    """A request, a notification (no id) or a response (no method), not unpacked."""

    __slots__ = ("_members", "_text", "id", "method")

    def __init__(self, text: str, members: Members, method: str | None, id: str | None) -> None:
        self._text = text
        self._members = members
        self.method = method
        self.id = id  # as messages.Request has it

    def raw(self, name: str) -> str | None:
        """Return a member as it came, or None."""
        member = self._members.get(name)
        return None if member is None else self._text[member[1] : member[2]]

    def value(self, name: str) -> object:
        """Return a member's value; None where there is none."""
        member = self._members.get(name)
        return None if member is None else member[0]

    @property
    def params(self) -> str | None:
        """The params as they came; null counts as absent."""
        member = self._members.get("params")
        if member is None or member[0] is None:
            return None
        return self._text[member[1] : member[2]]


def open_envelope(body: bytes | bytearray) -> Envelope | Failure:
    """Read one body; what is wrong with it is said in the words of `parse`."""
    try:
        text = str(body, "utf-8")
        usual = USUAL.match(text)
        if usual is not None:
            envelope = _open_usual(text, usual.end(), *usual.groups())
            if envelope is not None:
                return envelope
        at = _skip(text, 0)
        if text[at] != "{":
            raise ValueError
        members, end = split_object(text, at)
        if end != len(text) and text[end:].strip(SPACE):
            raise ValueError
    except BROKEN:
        return _explain(body)
    return _open(text, members) or _explain(body)


def open_frame(frame: bytes) -> Envelope | None:
    """Read one frame with its header; None where it is not quite the usual one."""
    try:
        text = str(frame, "utf-8")
        usual = FRAME.match(text)
        if usual is None:
            return None
        length, version, id, method, last = usual.groups()
        if int(length) + len(length) + HEADER_SIZE != len(frame):
            return None
        return _open_usual(text, usual.end(), version, id, method, last)
    except BROKEN:
        return None


def _open_usual(
    text: str, start: int, version: str | None, id: str | None, method: str | None, last: str
) -> Envelope | None:
    value, end = scan(text, start)
    if text[end:] != "}" and text[end:].strip(SPACE) != "}":
        return None
    if last == "result":
        is_whole = method is None
    else:
        is_whole = method is not None and version is not None
        is_whole = is_whole and (value is None or isinstance(value, (dict, list)))
    return Envelope(text, {last: (value, start, end)}, method, id) if is_whole else None


def _open(text: str, members: Members) -> Envelope | None:
    id = None
    if "id" in members:
        value, start, end = members["id"]
        if isinstance(value, str):
            id = encode_basestring_ascii(value)  # one spelling, so that two can be compared
        elif value is None or type(value) in (int, float):
            id = text[start:end]
        elif "method" in members:
            return None
    if "method" not in members:
        is_response = "result" in members or "error" in members
        return Envelope(text, members, None, id) if is_response else None
    method = members["method"][0]
    params = members.get("params", (None,))[0]
    if (
        not isinstance(method, str)
        or members.get("jsonrpc", (None,))[0] != "2.0"
        or not (params is None or isinstance(params, (dict, list)))
    ):
        return None
    return Envelope(text, members, method, id)


def _explain(body: bytes | bytearray) -> Failure:
    message = parse(body)
    if isinstance(message, Failure):
        return message
    return fail(Fault(INVALID_REQUEST, "not a message", body=body))


class EnvelopeReader:
    """Takes pieces of input and gives envelopes, as `reader.Reader` gives messages.

    A piece that is exactly one frame, which is what a request that waits for its answer
    comes as, does not take the way through the decoder unless there is something wrong.
    """

    __slots__ = ("_decoder", "_from_server", "_quick", "body", "expire", "finish", "more")

    def __init__(self, framing: Framing, from_server: bool = False) -> None:
        """Read this framing, from a server also frames with another Content-Type."""
        self._from_server = from_server
        self._decoder = framing.decoder(from_server)
        self._quick = framing is CONTENT_LENGTH
        self.expire = self._decoder.expire
        self.finish = self._decoder.finish
        self.body: bytes | bytearray = b""  # of the last failure
        self.more = False  # than the last message the decoder may hold

    def take(self, data: bytes) -> Envelope | None:
        """Take one piece of input; return the message that it is, or None: ask `next`."""
        if self._quick and not self.more:
            message = open_frame(data)
            if message is not None:
                return message
        self.more = True
        self._decoder.feed(data)
        return None

    @property
    def partial(self) -> bool:
        """True inside a frame, where the rest must come in time."""
        return self.more and self._decoder.partial

    def next(self) -> Envelope | Failure | None:
        """Return the next message, or None where more bytes are needed."""
        decoder = self._decoder
        self.more = True
        event = decoder.next()
        if event is None:
            return None
        if not isinstance(event, Fault):
            message = open_envelope(event)
            if isinstance(message, Envelope):
                self.more = decoder.partial
                return message
            # Once off the track a decoder may hold a frame without being inside one.
            self.body = event
            if message.code == PARSE_ERROR:
                decoder.reject()
            return message
        return self._take_fault(event)

    def _take_fault(self, event: Fault) -> Envelope | Failure:
        self.body = event.body
        if event.code == INVALID_REQUEST and event.body and event.reason != OVERSIZE:
            # Refused for its type, and its length may be wrong all the same.
            inside = open_envelope(event.body)
            if isinstance(inside, Failure) and inside.code == PARSE_ERROR:
                self._decoder.reject()
            elif self._from_server:
                return inside
        return fail(event)


# Objects and arrays, taken apart.


def _skip(text: str, at: int) -> int:
    while text[at] in SPACE:
        at += 1
    return at


def split_object(text: str, at: int = 0) -> tuple[Members, int]:
    """Find the members of the object that begins here, and where it ends."""
    found: Members = {}
    at = _skip(text, at + 1)
    if text[at] == "}":
        return found, at + 1
    while True:
        if text[at] != '"':
            raise ValueError
        key, at = scanstring(text, at + 1, True)
        if text[at] != ":":
            at = _skip(text, at)
            if text[at] != ":":
                raise ValueError
        at += 1
        if text[at] in SPACE:
            at = _skip(text, at)
        value, end = scan(text, at)
        found[key] = (value, at, end)
        at = end if text[end] not in SPACE else _skip(text, end)
        if text[at] == "}":
            return found, at + 1
        if text[at] != ",":
            raise ValueError
        at += 1
        if text[at] in SPACE:
            at = _skip(text, at)


def split_array(text: str) -> Iterator[str]:
    """Yield the elements of an array as they came. The text must be a valid array."""
    at = _skip(text, 1)
    while text[at] != "]":
        end = scan(text, at)[1]
        yield text[at:end]
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def member(text: str, name: str) -> str | None:
    """Return a member of an object as it came. The text must be a valid object."""
    found = split_object(text)[0].get(name)
    return None if found is None else text[found[1] : found[2]]


def id_in(text: str, name: str) -> str | None:
    """Return an id that stands in an object, spelled as ids are."""
    raw = member(text, name)
    return encode_basestring_ascii(scan(raw, 0)[0]) if raw and raw[0] == '"' else raw


def without(text: str, name: str) -> str:
    """Return an object without one of its members."""
    kept = [
        f"{encode_basestring_ascii(key)}:{text[start:end]}"
        for key, (_, start, end) in split_object(text)[0].items()
        if key != name
    ]
    return "{" + ",".join(kept) + "}"


def replace(text: str, path: tuple[str, ...], new: str) -> str:
    """Put another text in the place of a member that is there."""
    _, start, end = split_object(text)[0][path[0]]
    inner = new if len(path) == 1 else replace(text[start:end], path[1:], new)
    return text[:start] + inner + text[end:]


def one_line(text: str) -> str:
    """Take the line breaks out of a JSON text: they stand between its tokens only."""
    return text.replace("\n", " ").replace("\r", " ") if "\n" in text or "\r" in text else text


# Messages round what came.


def encode_request(method: str, params: str | None, id: int | None = None) -> str:
    """Build a request, or a notification where there is no id."""
    head = '{"jsonrpc":"2.0",' if id is None else f'{{"jsonrpc":"2.0","id":{id},'
    name = encode_basestring_ascii(method)
    if params is None:
        return f'{head}"method":{name}}}'
    return f'{head}"method":{name},"params":{params}}}'


def encode_result(id: str, result: str) -> str:
    """Build a reply."""
    return f'{{"jsonrpc":"2.0","id":{id},"result":{result}}}'


def encode_error(id: str, error: str) -> str:
    """Build an error reply."""
    return f'{{"jsonrpc":"2.0","id":{id},"error":{error}}}'


def error_of(response: Envelope) -> str | None:
    """Return the error of a response, with the members that JSON-RPC has and no other.

    None where it succeeded; an empty text where the error is none that anybody could read.
    """
    raw = response.raw("error")
    if raw is None or raw == NULL:
        return None
    value = response.value("error")
    if not isinstance(value, dict) or type(value.get("code")) is not int:
        return ""
    if not isinstance(value.get("message"), str):
        return ""
    try:
        members = split_object(raw)[0]
    except RecursionError:  # it could be read once, with more room
        return ""
    if members.keys() <= {"code", "message", "data"}:
        return raw
    kept = [
        f'"{name}":{raw[members[name][1] : members[name][2]]}'
        for name in ("code", "message", "data")
        if name in members
    ]
    return "{" + ",".join(kept) + "}"
