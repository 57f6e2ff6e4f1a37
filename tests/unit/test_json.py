"""The table of JSON texts: through the parser, whole and as a part, and through the process."""

from __future__ import annotations

import json

import pytest

from duet_rpc.jsonrpc.jsontext import dumps
from duet_rpc.jsonrpc.messages import InvalidMessage, Request, read_message
from tests.json_texts import ACCEPT, EITHER, REFUSE
from tests.support import daemon, frame, request


def as_params(text: bytes, id: int = 1) -> bytes:
    """Put a value into the params of a request."""
    return b'{"jsonrpc":"2.0","id":%d,"method":"version","params":[%b]}' % (id, text)


@pytest.mark.parametrize("name", ACCEPT)
def test_json_that_must_be_taken(name: str) -> None:
    message = read_message(as_params(ACCEPT[name]))
    assert isinstance(message, Request)
    assert message.params == [json.loads(ACCEPT[name])]
    alone = read_message(ACCEPT[name])
    assert not isinstance(alone, InvalidMessage) or alone.failure.error.code == -32600


@pytest.mark.parametrize("name", REFUSE)
def test_json_that_must_be_refused(name: str) -> None:
    if name not in ("nothing", "only space"):  # nothing in brackets is an empty array
        message = read_message(as_params(REFUSE[name]))
        assert isinstance(message, InvalidMessage)
        assert message.failure.error.code == -32700
    alone = read_message(REFUSE[name])
    assert isinstance(alone, InvalidMessage)
    assert alone.failure.error.code == -32700


@pytest.mark.parametrize("name", EITHER)
def test_json_that_may_be_either(name: str) -> None:
    text, accepted = EITHER[name]
    assert isinstance(read_message(as_params(text)), Request if accepted else InvalidMessage)


def test_json_through_the_process() -> None:
    rows: list[tuple[str, bytes, int]] = [
        *((name, as_params(text), -32602) for name, text in ACCEPT.items()),
        *((name, text, -32700) for name, text in REFUSE.items()),
        *((name, as_params(text), -32602 if taken else -32700)
          for name, (text, taken) in EITHER.items()),
    ]  # fmt: skip
    with daemon() as client:
        for name, body, code in rows:
            # `version` takes no params: that is how we see that they were read.
            reply, good = client.exchange(frame(body) + request("good"), 2)
            assert reply["error"]["code"] == code, name
            assert good["id"] == "good", name
        assert client.finish()[0] == 0


def test_an_object_is_written_in_its_own_order_and_whole() -> None:
    assert dumps({"b": 1, "a": {"d": 2, "c": 3}}) == '{"b":1,"a":{"d":2,"c":3}}'
    with pytest.raises(TypeError):
        dumps({("a", "pair"): 1})


def test_the_id_behind_a_raw_newline_is_read() -> None:
    message = read_message(b'{"method":"a\nb","id":7,"x":1}')
    assert isinstance(message, InvalidMessage)
    assert (message.failure.error.code, message.failure.id) == (-32700, 7)
