"""A client of `duet-rpc rpc` that is asked, and the daemon with the methods that ask it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support import SOURCE, TOP, Client, daemon, frame, request

METHODS = TOP / "tests" / "asking_methods.py"
CAN = ["ask", "choose", "confirm", "say", "emacs"]
META = {"client": {"name": "test", "version": "1", "can": CAN, "call": 7}}


class Peer(Client):
    """A client that is asked, too."""

    def get(self) -> dict[str, Any]:
        """Read one message, whatever it is."""
        message: dict[str, Any] = json.loads(self.receive_raw())
        assert message["jsonrpc"] == "2.0"
        return message

    def post(
        self, id: object, method: str, params: dict[str, Any] | None = None, **meta: Any
    ) -> None:
        """Make a call from a client that can be asked."""
        self.send(request(id, method, {**(params or {}), "_meta": {**META, **meta}}))

    def asked(self) -> dict[str, Any]:
        """Read one message, which must be a question."""
        message = self.get()
        assert set(message) == {"jsonrpc", "id", "method", "params"}, message
        assert message["id"].startswith("duet:")
        return message

    def answer(self, question: dict[str, Any], result: object) -> None:
        """Answer a question."""
        self.send(frame({"jsonrpc": "2.0", "id": question["id"], "result": result}))

    def refuse(self, question: dict[str, Any], code: int, message: str = "no", **more: Any) -> None:
        """Answer a question by an error."""
        error = {"code": code, "message": message, **more}
        self.send(frame({"jsonrpc": "2.0", "id": question["id"], "error": error}))

    def result(self, id: object) -> Any:
        """Read one message, which must be the result of a call."""
        message = self.get()
        assert message.get("id") == id, message
        assert "result" in message, message
        return message["result"]

    def error(self, id: object) -> dict[str, Any]:
        """Read one message, which must be the error of a call."""
        message = self.get()
        assert message.get("id") == id, message
        error: dict[str, Any] = message["error"]
        return error


@contextmanager
def peer(*flags: str) -> Iterator[Peer]:
    """Run the daemon with the methods that ask."""
    with daemon([*SOURCE, "rpc", "--methods", METHODS, *flags]) as client:
        client.__class__ = Peer
        assert isinstance(client, Peer)
        client.send(request("ready", "listMethods"))
        client.receive()
        yield client


@pytest.fixture
def client() -> Iterator[Peer]:
    with peer() as client:
        yield client


def is_alive(client: Peer) -> bool:
    """Return whether the daemon still answers."""
    client.send(request("alive", "add", {"a": 2, "b": 2}))
    return bool(client.result("alive") == 4)
