"""What every router has: one client, its backends and workers, and the way from start to exit.

Messages of the client go to a backend and messages of a backend to the client; ids and progress
tokens are exchanged on the way (`client_requests.py`, `backend_requests.py`), and what a message
carries is passed on as it came. Where a message goes depends on what the client speaks:
`gateway.py` has the client that names backends and methods, `mcp.py` the one that speaks MCP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.gateway.backend import Backend
from duet_rpc.gateway.backend_requests import BackendRequests
from duet_rpc.gateway.catalog import Catalog
from duet_rpc.gateway.client_requests import ClientRequests
from duet_rpc.gateway.dialects import PLAIN
from duet_rpc.gateway.front import ClientFront, log_failure
from duet_rpc.gateway.loop import Loop
from duet_rpc.gateway.runtime import Runtime
from duet_rpc.gateway.shutdown import SHUTTING_DOWN, Shutdown
from duet_rpc.gateway.worker import Worker
from duet_rpc.gateway.workers import Workers
from duet_rpc.jsonrpc.jsontext import dumps, write_id
from duet_rpc.jsonrpc.messages import Failure, Notification, Request
from duet_rpc.log import DEBUG

if TYPE_CHECKING:
    from duet_rpc.config.processes import WorkerSettings
    from duet_rpc.gateway.entries import Kind
    from duet_rpc.gateway.kept import KeptLists
    from duet_rpc.gateway.runtime import Setup
    from duet_rpc.jsonrpc.messages import Id, Message
    from duet_rpc.server.handover import Passed


class Router:
    """Connects one client and its backends; where messages go, a subclass decides."""

    dialect = PLAIN  # how the client speaks of progress and cancel
    replies_to_cancelled = True

    def __init__(self, setup: Setup) -> None:
        loop, log = Loop(), setup.log
        self._front = ClientFront(setup, loop, self)
        self._runtime = runtime = Runtime(loop, log, setup.times, self._front.connection)
        self._backends = {each.name: Backend(each, self, runtime) for each in setup.backends}
        self._requests = ClientRequests(
            self._backends, log, self._front.send, self.dialect, self.replies_to_cancelled
        )
        self._backend_requests = BackendRequests(loop, log, self._front.send, self.dialect)
        self._catalog = Catalog(self._backends, runtime, self.fresh_id, self._find_kept_lists())
        self._catalog.on_change(self._announce)
        self._shutdown = Shutdown(runtime, self._backends.values(), self._requests)
        self._workers = Workers(
            setup.plan, self._backends, self._make_worker, self.fresh_id, runtime
        )

    def _take_over(self, passed: Passed) -> None:
        """Go on where a daemon has left off."""
        for path in passed.loaded:
            self._workers.add_source(path)
        self._runtime.client.feed(passed.input)

    def _make_worker(self, settings: WorkerSettings) -> Worker:
        return Worker(settings, self, self._runtime, self._show_message)

    def _show_message(self, level: str, text: str) -> None:
        """Log a message, and let the client show it to the user."""
        getattr(self._runtime.log, level)(text)
        self._front.send(Notification("client/say", {"level": level, "text": text}))

    # Lifecycle.

    def run(self) -> int:
        """Serve until asked to exit; return the exit code."""
        self._runtime.loop.watch_signals(self._handle_signal, self._check_backends)
        self._runtime.client.on_next_send = self._handle_send
        self._runtime.client.update_reading()
        # The user's own first: nobody else's server is to delay them.
        for backend in [*self._workers, *self._backends.values()]:
            if self._starts_now(backend):
                backend.process.start()
        self._runtime.loop.run()
        return self._shutdown.exit_code

    def _starts_now(self, backend: Backend) -> bool:
        """Return whether a backend is started with this process, and not when it is needed."""
        return backend.settings.start == "eager"

    def release(self) -> None:
        """Give the client's descriptor back as it came."""
        self._runtime.client.release()

    def _handle_send(self) -> None:
        self._runtime.loop.on_idle = self._handle_idle

    def _handle_idle(self) -> None:
        """Import loguru, which takes so long that nobody should be waiting for a reply."""
        if self._requests.pending_count():
            self._runtime.client.on_next_send = self._handle_send
        else:
            self._runtime.log.start_loguru()

    def _check_backends(self) -> None:
        for backend in list(self._backends.values()):
            backend.process.check()

    def _handle_signal(self, name: str) -> None:
        self._runtime.log.info(f"{name} received, shutting down gracefully")
        self._runtime.client.stop_serving()
        self._shutdown.begin_after_running()

    def _shut_down(self) -> None:
        self._runtime.log.info("shutdown requested, shutting down gracefully")
        self._runtime.client.stop_serving()
        self._runtime.loop.call_soon(self._shutdown.begin_after_running)

    def handle_lost_client(self, error: OSError) -> None:
        """Exit: nobody reads what we write."""
        if isinstance(error, BrokenPipeError):
            self._runtime.log.error("stdout is closed: the client is gone")
        else:
            self._runtime.log.error(f"input or output failed: {error.strerror}")
        self._shutdown.exit_code = 1
        self._shutdown.begin()

    def handle_end_of_input(self) -> None:
        """Exit, but give pending requests a moment."""
        self._runtime.log.info("stdin closed, shutting down gracefully")
        self._shutdown.begin_after_replies()

    def handle_flow(self) -> None:
        """Read the backends and send large lists only while the client has room."""
        for backend in self._backends.values():
            backend.resume_reading()
        self._catalog.deliver()

    # Messages of the client.

    def route(self, message: Message) -> None:
        """Send a message of the client where it belongs."""
        log = self._runtime.log
        if self._shutdown.begun:
            if isinstance(message, Request):
                self._front.send(Failure(message.id, SHUTTING_DOWN))
            return
        if log.level <= DEBUG and isinstance(message, Request):
            log.debug("received", message.method, write_id(message.id))
        try:
            if isinstance(message, Request):
                self._handle_request(message)
            elif isinstance(message, Notification):
                self._handle_notification(message)
            else:
                self._backend_requests.handle_reply(message)
        except Exception as error:  # noqa: BLE001 - it ends nothing but what the message is about
            failure = log_failure(log, message, error)
            if isinstance(message, Request):
                self._requests.abandon(message.id)
                self._front.send(Failure(message.id, failure))

    def original_id(self, id: int) -> str | None:
        """Return the client's id of a request that it waits for, as text."""
        return self._requests.original_id(id)

    def fail_question(self, id: Id) -> bool:
        """Fail a backend's request to the client; return False where there is none."""
        return self._backend_requests.fail(id)

    def _handle_request(self, request: Request) -> None:
        raise NotImplementedError

    def _handle_notification(self, notification: Notification) -> None:
        raise NotImplementedError

    # Messages of the backends.

    def fresh_id(self) -> int:
        """Return an id for a request of the router's own."""
        return self._requests.fresh_id()

    def handle_backend_message(self, backend: Backend, message: Request | Notification) -> None:
        """Route a request or a notification of a backend."""
        raise NotImplementedError

    def handle_backend_failure(self, backend: Backend, message: Message, error: Exception) -> None:
        """Log that a message of a backend could not be handled, and reply to it."""
        failure = log_failure(self._runtime.log, message, error, f"{backend.title}: ")
        if isinstance(message, Request):
            self._backend_requests.abandon(backend, message.id)
            backend.reply(Failure(message.id, failure))

    def handle_backend_state(self, backend: Backend) -> None:
        """Handle a new state of a backend."""
        raise NotImplementedError

    def handle_preparing(self, backend: Backend, text: str) -> None:
        """Send what a worker does before it is ready, as progress of the calls that wait for it."""
        value = dumps({"done": 0, "total": None, "message": text})
        for token, _ in backend.pending.tokens.values():
            params = self.dialect.write_progress(token, value)
            self._front.send(Notification(self.dialect.progress, params))

    def _announce(self, kind: Kind) -> None:
        """Notify the client that a list has changed."""
        raise NotImplementedError

    def _find_kept_lists(self) -> KeptLists | None:
        """Return the lists of the last time, where they are used."""
        return None
