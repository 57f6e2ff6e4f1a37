"""What methods say, as MCP's log messages: to a client that wants to hear them.

Since a handshake a client hears them, until it asks for less (`logging/setLevel`). Without one it
hears those of a request that says so, and while that runs.
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
SAID = "info"
"""The level of what methods say."""


class ClientLog:
    """Knows what the client wants to hear."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._level = SAID  # since the handshake
        self._level_now: str | None = None  # of the request that runs, where it says so

    def set_level(self, level: object) -> None:
        """Take a level from the client."""
        self._level = check_level(level)

    def begin(self, version: Version, meta: dict[str, object]) -> None:
        """Begin a request, which may say for itself what it wants to hear."""
        level = meta.get(LOG_LEVEL_KEY) if version.stateless else None
        self._level_now = None if level is None else check_level(level)

    def end(self) -> None:
        """End the request."""
        self._level_now = None

    def message(self, topic: str, data: str) -> Notification | None:
        """Return the notification that tells the client, if it wants to hear it."""
        level = self._level_now or (self._level if self._session.handshake else None)
        if level is None or LEVELS.index(level) > LEVELS.index(SAID):
            return None
        text = f'{{"level":"{SAID}","logger":{dumps(topic)},"data":{data}}}'
        return Notification("notifications/message", RawJson(text, None))


def check_level(level: object) -> str:
    """Return a level; raise RpcError for anything else."""
    if level not in LEVELS:
        raise invalid(f"level must be one of {', '.join(LEVELS)}")
    return str(level)
