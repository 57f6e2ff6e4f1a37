"""The author of methods: a daemon in their home folder, which tells them what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.method_files import SIX, env_for
from tests.support import SOURCE, Client, daemon, request

ONE = "from duet_rpc import method\n@method\ndef {}() -> int: return {}\n"
NOT_FOUND = -32601


@contextmanager
def rpc(tmp_path: Path, *flags: str, **options: Any) -> Iterator[Author]:
    """Run a daemon in the home folder of a user."""
    (tmp_path / "home").mkdir(exist_ok=True)
    environ = {**env_for(tmp_path), **options.pop("env", {})}
    program = options.pop("program", SOURCE)
    with daemon([*program, "rpc", *flags], environ, **options) as client:
        yield Author(client)


class Author:
    """A client that also keeps what the daemon says unasked."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.said: list[str] = []
        self.finish = client.finish

    def reply(self) -> dict[str, Any]:
        """Return the next reply."""
        while True:
            message: dict[str, Any] = json.loads(self.client.receive_raw())
            if message.get("method") != "client/say":
                return message
            self.said.append(message["params"]["text"])

    def ask(self, method: str, params: object = None, id: int = 1) -> dict[str, Any]:
        """Make a call and return the whole reply."""
        self.client.send(request(id, method, params))
        return self.reply()

    def call(self, method: str, params: object = None) -> Any:
        """Make a call and return its result."""
        reply = self.ask(method, params)
        assert "result" in reply, reply
        return reply["result"]

    def names(self) -> list[str]:
        """List the methods that are not built in."""
        names = [each["name"] for each in self.call("listMethods")]
        assert names[:6] == SIX
        return names[6:]

    def code(self, method: str) -> int:
        """Return the code of the error that a call ends in."""
        code: int = self.ask(method)["error"]["code"]
        return code
