"""Log messages of MCP servers: which of them are sent on to the client.

A client of the handshake era gets all of them, until it asks for fewer (`logging/setLevel`). One of
the stateless era gets those of a server that works on a call with a log level in its metadata.
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
    """Filters log messages by the level that the client has asked for."""

    def __init__(self, backends: Mapping[str, Backend], send: Callable[[Message], None]) -> None:
        self._backends = backends
        self._send = send  # to the client
        self._level = LEVELS[0]  # for a client of the handshake era

    def set_level(self, level: object) -> None:
        """Set the level for a client of the handshake era, here and at the servers."""
        self._level = check_level(level)
        for backend in self._backends.values():
            backend.set_log_level(self._level)

    def prepare(self, call: McpCall) -> None:
        """Lower the level of a server to the one that a call of a stateless client asks for."""
        level, known = call.log_level, call.server.session.log_level
        if level is None or call.server.speaks_stateless(call.version):
            return
        if known is None or LEVELS.index(level) < LEVELS.index(known):
            call.server.set_log_level(level)

    def handle_message(self, backend: Backend, params: RawJson | None, has_handshake: bool) -> None:
        """Send a log message of a server to the client, if its level is high enough."""
        level = value_at(params, "level")
        if params is None or level not in LEVELS:
            return
        rank = LEVELS.index(str(level))
        wanted = [self._level] if has_handshake else _wanted_by_calls(backend)
        if any(rank >= LEVELS.index(each) for each in wanted):
            self._send(Notification(MESSAGE, _name_logger(params, backend)))


def _wanted_by_calls(backend: Backend) -> list[str]:
    found = (pending.carrier for _, pending in backend.pending.items())
    calls = [each for each in found if isinstance(each, McpCall)]
    return [each.log_level for each in calls if each.log_level is not None]


def _name_logger(params: RawJson, backend: Backend) -> RawJson:
    """Return a log message with the server's name as its logger, where it names none."""
    if backend.settings.kind == "worker" or "logger" in split_object(params.text)[0]:
        return params
    return raw(f'{{"logger":{dumps(backend.name)},{params.text[1:].lstrip()}')
