"""What the MCP client has said about itself, in a handshake or with each request.

Here all kinds of things are offered to it, and from what it says follows what the servers are told
of it. They are told once, by its handshake or by its first request without one: a server of the
handshake era can't be told again before it is restarted. A later request whose client can be asked
more than that is not asked more; one whose client can be asked less is not asked (`questions.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.gateway.questions import askable
from duet_rpc.gateway.server_session import HandshakeParams
from duet_rpc.gateway.subscriptions import LISTEN, SUBSCRIBE, UNSUBSCRIBE
from duet_rpc.mcp.session import Session
from duet_rpc.mcp.versions import CAPABILITIES_KEY, LATEST_HANDSHAKE, VERSION_KEY, VERSIONS

if TYPE_CHECKING:
    from duet_rpc.jsonrpc.messages import Id
    from duet_rpc.mcp.session import Params
    from duet_rpc.mcp.versions import Version


class ClientSession(Session):
    """The client's handshake, if there was one, and what servers are told of the client."""

    def __init__(self, batch: bool) -> None:
        super().__init__()
        self._methods |= {SUBSCRIBE, UNSUBSCRIBE, LISTEN}
        self._batch = batch
        self.params: HandshakeParams | None = None  # for servers; None: nothing is known yet

    @property
    def has_handshake(self) -> bool:
        """Whether the client has shaken hands."""
        return self.handshake is not None

    @property
    def accepts_batches(self) -> bool:
        """Whether the client may send arrays."""
        return self._batch or (self.handshake is not None and self.handshake.batch)

    def begin(self, id: Id, method: str, params: object) -> Version | str | None:
        """Answer what every server answers alike, or return the version of the request."""
        version = super().begin(id, method, params)
        meta = params.get("_meta") if isinstance(params, dict) else None
        if method == "initialize" and isinstance(version, str):
            self._note_handshake()
        elif self.params is None and isinstance(meta, dict) and VERSION_KEY in meta:
            self.params = HandshakeParams(LATEST_HANDSHAKE, askable(meta.get(CAPABILITIES_KEY)))
        only_in = {LISTEN: True, SUBSCRIBE: False, UNSUBSCRIBE: False}
        if not isinstance(version, (str, type(None))) and method in only_in:
            return version if version.stateless is only_in[method] else None
        return version

    def take_over(self, version: str, capabilities: object) -> None:
        """Go on with the handshake that a daemon before us has made."""
        self.handshake = VERSIONS[version]
        self.capabilities = capabilities
        self._note_handshake()

    def _note_handshake(self) -> None:
        version = LATEST_HANDSHAKE if self.handshake is None else self.handshake.name
        self.params = HandshakeParams(version, askable(self.capabilities))

    def _capabilities(self, version: Version) -> Params:
        offered = super()._capabilities(version)
        offered["resources"] = {**offered["resources"], "subscribe": True}  # type: ignore[dict-item]
        if version.stateless:  # where changes are sent on a stream
            for name in ("tools", "resources", "prompts"):
                offered[name] = {**offered[name], "listChanged": True}  # type: ignore[dict-item]
        return offered
