"""What the router and an MCP server have agreed on: the era, the version, what the server can do.

A handshake is tried first. A server that refuses it is asked by `server/discover` whether it
speaks the stateless version; to such a server every request is sent with client metadata
(`eras.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from duet_rpc.gateway.eras import (
    CLIENT_INFO,
    client_meta,
    with_client_meta,
    without_client_meta,
)
from duet_rpc.gateway.pending import is_made_here
from duet_rpc.gateway.wire import raw, value_at
from duet_rpc.jsonrpc import limits
from duet_rpc.jsonrpc.jsontext import dumps
from duet_rpc.jsonrpc.messages import Failure, Success
from duet_rpc.jsonrpc.values import RawJson
from duet_rpc.mcp.versions import LATEST_HANDSHAKE, LOG_LEVEL_KEY, SERVER_INFO_KEY, STATELESS

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.gateway.pending import Outcome

    Ask = Callable[[str, RawJson, Callable[[Outcome], None]], None]


class HandshakeParams(NamedTuple):
    """What a server is told of the client: a version, and what the client can be asked."""

    version: str = LATEST_HANDSHAKE
    capabilities: dict[str, object] = {}  # noqa: RUF012 - nobody changes it


class ServerSession:
    """One MCP server, since its process was started."""

    def __init__(self, params: HandshakeParams | None) -> None:
        self.params = params  # None: not yet known
        self.log_level: str | None = None  # that the client has asked for
        self.forget()

    def forget(self) -> None:
        """Discard what was agreed on: the next process negotiates again."""
        self.handshake: Success | None = None  # its reply, as the handshake era has it
        self.capabilities: dict[str, object] = {}
        self.instructions = ""
        self.is_stateless = False
        self.is_due = False  # the handshake could begin, if its params were known

    def negotiate(self, ask: Ask, done: Callable[[str], None]) -> None:
        """Agree on an era; then call a function with why that failed, or with nothing."""
        sent = self.params or HandshakeParams()

        def handle_handshake(outcome: Outcome) -> None:
            problem = self._accept(outcome, "protocolVersion")
            if problem and isinstance(outcome, Failure) and not is_made_here(outcome):
                self.is_stateless = True
                ask("server/discover", raw("{}"), lambda other: discover(other, problem))
            else:
                done(problem)

        def discover(outcome: Outcome, problem: str) -> None:
            versions = _value_of(outcome, "supportedVersions")
            if not isinstance(versions, list) or STATELESS[0] not in versions:
                self.is_stateless = False
                done(problem)
                return
            done(self._accept(outcome, "supportedVersions"))

        params = {
            "protocolVersion": sent.version,
            "capabilities": sent.capabilities,
            "clientInfo": CLIENT_INFO,
        }
        ask("initialize", raw(dumps(params)), handle_handshake)

    def _accept(self, outcome: Outcome, required: str) -> str:
        """Store what a server's reply describes; return why that can't be done, or nothing."""
        if isinstance(outcome, Failure):
            if is_made_here(outcome):
                return "sent an invalid reply to the handshake"
            message = outcome.error.message[: limits.LOG_VALUE_MAX]
            return f'refused the handshake with "{message}"'
        if not isinstance(_value_of(outcome, required), (str, list)):
            return f"refused the handshake: its reply names no {required}"
        capabilities = _value_of(outcome, "capabilities")
        self.capabilities = capabilities if isinstance(capabilities, dict) else {}
        instructions = _value_of(outcome, "instructions")
        self.instructions = instructions.strip() if isinstance(instructions, str) else ""
        self.handshake = _as_handshake(outcome) if self.is_stateless else outcome
        return ""

    @property
    def _client_meta(self) -> dict[str, object]:
        """The client metadata of a request that has none from its client."""
        made = client_meta((self.params or HandshakeParams()).capabilities)
        if self.log_level is not None:
            made[LOG_LEVEL_KEY] = self.log_level
        return made

    def adapt(self, params: RawJson | None, is_request: bool) -> RawJson | None:
        """Return params with or without client metadata, as the server's era requires."""
        if not self.is_stateless:
            return without_client_meta(params)
        return with_client_meta(params, self._client_meta) if is_request else params


def _value_of(outcome: Outcome, name: str) -> object:
    result = outcome.result if isinstance(outcome, Success) else None
    return value_at(result, name) if isinstance(result, RawJson) else None


def _as_handshake(outcome: Outcome) -> Success:
    """Return the reply to `server/discover` as a handshake has it."""
    result: dict[str, object] = {"protocolVersion": STATELESS[0]}
    for name in ("capabilities", "instructions"):
        value = _value_of(outcome, name)
        if value is not None:
            result[name] = value
    meta = _value_of(outcome, "_meta")
    info = meta.get(SERVER_INFO_KEY) if isinstance(meta, dict) else None
    result["serverInfo"] = info if isinstance(info, dict) else {"name": "", "version": ""}
    return Success(None, raw(dumps(result)))
