"""What methods report to the user (`ctx.say`, `notify`), as MCP's log messages.

A client of the handshake era gets them until it asks for fewer (`logging/setLevel`). One of the
stateless era gets those of a request with a log level in its metadata, while that request runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.jsontext import dumps
from duet_rpc.jsonrpc.messages import Notification
from duet_rpc.jsonrpc.values import RawJson
from duet_rpc.mcp.session import invalid
from duet_rpc.mcp.versions import LOG_LEVEL_KEY

if TYPE_CHECKING:
    from duet_rpc.mcp.session import Session
    from duet_rpc.mcp.versions import Version

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
REPORTED = "info"
"""The level of all messages of methods."""


class ClientLog:
    """Makes log messages, as far as the client wants them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._level = REPORTED  # for a client of the handshake era
        self._level_now: str | None = None  # of the request that runs, where it has one

    def set_level(self, level: object) -> None:
        """Set the level for a client of the handshake era."""
        self._level = check_level(level)

    def begin(self, version: Version, meta: dict[str, object]) -> None:
        """Begin a request, which may have a level of its own."""
        level = meta.get(LOG_LEVEL_KEY) if version.stateless else None
        self._level_now = None if level is None else check_level(level)

    def end(self) -> None:
        """Forget the level of the request that ran."""
        self._level_now = None

    def message(self, topic: str, data: str) -> Notification | None:
        """Return a log message as a notification; None where the client does not want it."""
        level = self._level_now or (self._level if self._session.handshake else None)
        if level is None or LEVELS.index(level) > LEVELS.index(REPORTED):
            return None
        text = f'{{"level":"{REPORTED}","logger":{dumps(topic)},"data":{data}}}'
        return Notification("notifications/message", RawJson(text, None))


def check_level(level: object) -> str:
    """Return a level; raise RpcError for anything else."""
    if level not in LEVELS:
        raise invalid(f"level must be one of {', '.join(LEVELS)}")
    return str(level)
