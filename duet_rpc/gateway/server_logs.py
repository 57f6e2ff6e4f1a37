"""Log messages of MCP servers, for a client that wants to hear them.

Since a handshake a client hears them all, until it asks for less (`logging/setLevel`). Without one
it hears those of a server that works on a call which asks for them, by a level in its envelope.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.gateway.questions import McpCall
from duet_rpc.gateway.wire import raw, value_at
from duet_rpc.jsonrpc.jsontext import dumps, split_object
from duet_rpc.jsonrpc.messages import Notification
from duet_rpc.mcp.logging import LEVELS, check_level

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from duet_rpc.gateway.backend import Backend
    from duet_rpc.jsonrpc.messages import Message
    from duet_rpc.jsonrpc.values import RawJson

MESSAGE = "notifications/message"


class ServerLogs:
    """Knows which messages of the servers the client wants to hear."""

    def __init__(self, backends: Mapping[str, Backend], send: Callable[[Message], None]) -> None:
        self._backends = backends
        self._send = send  # to the client
        self._level = LEVELS[0]  # since a handshake

    def set_level(self, level: object) -> None:
        """Take a level from the client, and tell the servers."""
        self._level = check_level(level)
        for backend in self._backends.values():
            backend.set_log_level(self._level)

    def prepare(self, call: McpCall) -> None:
        """Let a server say as much as a call of a stateless client asks for."""
        level, known = call.log_level, call.server.session.log_level
        if level is None or call.server.speaks_stateless(call.version):
            return
        if known is None or LEVELS.index(level) < LEVELS.index(known):
            call.server.set_log_level(level)

    def handle_message(self, backend: Backend, params: RawJson | None, since: bool) -> None:
        """Send a message of a server on; `since` is for a client that has shaken hands."""
        level = value_at(params, "level")
        if params is None or level not in LEVELS:
            return
        rank = LEVELS.index(str(level))
        wanted = [self._level] if since else _wanted_by_calls(backend)
        if any(rank >= LEVELS.index(each) for each in wanted):
            self._send(Notification(MESSAGE, _name_logger(params, backend)))


def _wanted_by_calls(backend: Backend) -> list[str]:
    found = (pending.carrier for _, pending in backend.pending.items())
    calls = [each for each in found if isinstance(each, McpCall)]
    return [each.log_level for each in calls if each.log_level is not None]


def _name_logger(params: RawJson, backend: Backend) -> RawJson:
    """Return a message that says which server it is from, where it does not say more."""
    if backend.settings.kind == "worker" or "logger" in split_object(params.text)[0]:
        return params
    return raw(f'{{"logger":{dumps(backend.name)},{params.text[1:].lstrip()}')
