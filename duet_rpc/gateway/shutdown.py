"""The end of a gateway: all backends are stopped at the same time, within two seconds."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from duet_rpc.gateway.state import State
from duet_rpc.gateway.worker import Worker
from duet_rpc.jsonrpc.errors import REQUEST_FAILED, Error
from duet_rpc.jsonrpc.limits import FAREWELL, GRACE, LAST_REPLIES, LOG_GRACE, WORK_WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.client_requests import ClientRequests
    from duet_rpc.gateway.runtime import Runtime

# Seconds, so that the process is gone before the grace is over, also where nobody reads the log.
EXIT_AFTER = GRACE - LOG_GRACE - 0.25
REPLY_POLL = 0.02  # seconds
OUTPUT_POLL = 0.01  # seconds

SHUTTING_DOWN = Error.of(REQUEST_FAILED, "the gateway is shutting down")


class Shutdown:
    """Ends the loop when all is done, or when the time for that is over."""

    def __init__(
        self,
        runtime: Runtime,
        backends: Collection[Backend],
        requests: ClientRequests,
    ) -> None:
        self._loop = runtime.loop
        self._client = runtime.client
        self._leftovers = runtime.leftovers
        self._backends = backends
        self._requests = requests
        self._begun: float | None = None
        self._ending = False  # what is pending has its last moment
        self.exit_code = 0

    @property
    def _workers(self) -> list[Worker]:
        return [each for each in self._backends if isinstance(each, Worker)]

    @property
    def begun(self) -> bool:
        """True once the backends are being stopped."""
        return self._begun is not None

    def begin_after_running(self) -> None:
        """Let the workers finish what is running, and no more, then begin."""
        for worker in self._workers:
            worker.drop_queue(SHUTTING_DOWN)
        self._begin_after(lambda: False)

    def begin_after_replies(self) -> None:
        """Give pending requests a moment, then begin."""
        until = monotonic() + LAST_REPLIES

        def is_pending() -> bool:
            if monotonic() >= until:
                return False
            return bool(self._requests.pending_count() or self._client.unserved)

        self._begin_after(is_pending)

    def _begin_after(self, is_pending: Callable[[], bool]) -> None:
        """Begin when nothing is pending and no worker has anything to do, or time is up."""
        if self._ending:
            return
        self._ending = True
        self._loop.call_later(EXIT_AFTER, self._loop.stop)
        until = monotonic() + WORK_WINDOW

        def check() -> None:
            if not self._client.unserved:
                for worker in self._workers:
                    worker.finish_input()
            busy = is_pending() or any(len(worker.pending) for worker in self._workers)
            if busy and not self._client.output.closed and monotonic() < until:
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
        self._leftovers.hurry()
        self._requests.refuse_own(SHUTTING_DOWN)
        for backend in list(self._backends):
            backend.process.stop(self._end_if_done)
        self._end_if_done()

    def _end_if_done(self) -> None:
        if any(backend.state is not State.STOPPED for backend in self._backends):
            return
        # What the client has not read yet has the rest of the time. jsonrpc.el 1.0.25 handles
        # a reply later than the exit of a process, so the exit comes a little later.
        if self._client.output.size or self._leftovers.busy:
            self._loop.call_later(OUTPUT_POLL, self._end_if_done)
        else:
            begun = self._begun or 0.0
            self._loop.call_later(max(0.0, begun + FAREWELL - monotonic()), self._loop.stop)
