"""The end of a gateway: all backends are stopped at the same time, within two seconds."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from duet_rpc.gateway.state import State
from duet_rpc.jsonrpc.limits import FAREWELL, GRACE, LAST_REPLIES

if TYPE_CHECKING:
    from collections.abc import Collection

    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.client import ClientConnection
    from duet_rpc.gateway.client_requests import ClientRequests
    from duet_rpc.gateway.loop import Loop

EXIT_AFTER = GRACE - 0.15  # seconds, so that the process is gone before the grace is over
REPLY_POLL = 0.02  # seconds
OUTPUT_POLL = 0.01  # seconds


class Shutdown:
    """Ends the loop when all is done, or when the time for that is over."""

    def __init__(
        self,
        loop: Loop,
        client: ClientConnection,
        backends: Collection[Backend],
        requests: ClientRequests,
    ) -> None:
        self._loop = loop
        self._client = client
        self._backends = backends
        self._requests = requests
        self._begun: float | None = None
        self.exit_code = 0

    @property
    def begun(self) -> bool:
        """True once the backends are being stopped."""
        return self._begun is not None

    def begin_after_replies(self) -> None:
        """Give pending requests a moment, then begin."""
        self._loop.call_later(EXIT_AFTER, self._loop.stop)
        until = monotonic() + LAST_REPLIES

        def check() -> None:
            pending = self._requests.pending_count() and not self._client.output.closed
            if pending and monotonic() < until:
                self._loop.call_later(REPLY_POLL, check)
            else:
                self.begin()

        check()

    def begin(self) -> None:
        """Stop reading, stop all backends, then end the loop."""
        if self._begun is not None:
            return
        self._begun = monotonic()
        self._client.stop_reading()
        self._loop.call_later(EXIT_AFTER, self._loop.stop)
        self._requests.refuse_own("the gateway is shutting down")
        for backend in self._backends:
            backend.process.stop(self._end_if_done)
        self._end_if_done()

    def _end_if_done(self) -> None:
        if any(backend.state is not State.STOPPED for backend in self._backends):
            return
        # What the client has not read yet has the rest of the time. jsonrpc.el 1.0.25 handles
        # a reply later than the exit of a process, so the exit comes a little later.
        if self._client.output.size:
            self._loop.call_later(OUTPUT_POLL, self._end_if_done)
        else:
            begun = self._begun or 0.0
            self._loop.call_later(max(0.0, begun + FAREWELL - monotonic()), self._loop.stop)
