"""The loop of a server: read, decode, dispatch, write.

What a request means is not known here. A `Handler` answers it: `server.rpc` for
`duet-rpc rpc`, `mcp.handler` for `duet-rpc mcp`. The loop does what is the same for both:
one request at a time, to its end, then the next; batches; the log; the end.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, Union

from duet_rpc import __version__
from duet_rpc.failures import describe
from duet_rpc.jsonrpc.errors import (
    BATCH_NOT_SUPPORTED,
    INVALID_REQUEST,
    REQUEST_CANCELLED,
    TITLES,
    Error,
)
from duet_rpc.jsonrpc.framing import CONTENT_LENGTH
from duet_rpc.jsonrpc.jsontext import write_id
from duet_rpc.jsonrpc.limits import BATCH_MAX, FAREWELL, READ_TIMEOUT
from duet_rpc.jsonrpc.messages import (
    Failure,
    InvalidMessage,
    Notification,
    Request,
    encode,
    encode_success,
)
from duet_rpc.jsonrpc.reader import MessageReader
from duet_rpc.jsonrpc.values import RawJson
from duet_rpc.log import DEBUG
from duet_rpc.methods.context import Context
from duet_rpc.methods.sources import any_source
from duet_rpc.server.cancellation import Cancellation
from duet_rpc.server.dispatch import CANCELLED, Refused, call
from duet_rpc.server.intake import Arrival, Intake
from duet_rpc.server.lifecycle import Lifecycle
from duet_rpc.server.outbox import Outbox
from duet_rpc.server.signals import Signals
from duet_rpc.server.stdio import Stdio
from duet_rpc.server.supervisor import Supervisor, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from duet_rpc.jsonrpc.framing import Framing
    from duet_rpc.log import Log
    from duet_rpc.methods.registry import Method, Registry
    from duet_rpc.server.intake import CancelForm

    class Handler(Protocol):
        """Turns a request into a result; one for `rpc`, one for `mcp`."""

        registry: Registry
        cancel: CancelForm
        answers_cancelled: bool  # a cancelled request gets a reply all the same

        def answer(self, arrival: Arrival, request: Call) -> str | Refused:
            """Return the result as JSON text, or the refusal."""


Call = Union[Request, Notification]

IDLE = 0.05
"""Seconds without input after which deferred work is done."""


def serve(
    descriptors: tuple[int, int],
    log: Log,
    make_handler: Callable[[Server], Handler],
    sources: list[str] | None = None,
    folder: str | None = None,
    methods: Iterable[Method] = (),
    read_timeout: float = READ_TIMEOUT,
    framing: Framing | None = CONTENT_LENGTH,
    batch: bool = False,
) -> None:
    """Serve one client until it or a signal ends it; does not return."""
    lifecycle = Lifecycle(log)
    try:
        stdio = Stdio(descriptors)
        lifecycle.before_exit = stdio.release
        reader = MessageReader(framing)
        server = Server(stdio, lifecycle, log, reader, read_timeout, make_handler, batch)
        log.info(
            f"duet-rpc {__version__} started: pid {os.getpid()}, level {log.level_name}, "
            f"log to {log.sink}"
        )
        for method in methods:
            server.handler.registry.add(method)
        server.handler.registry.load_later(lambda: server.load_methods(sources or [], folder))
        server.run()
    except BrokenPipeError:
        lifecycle.lose_output()
    except OSError as error:
        lifecycle.lose_output(f"input or output failed: {error.strerror}")
    except BaseException as error:  # noqa: BLE001 - no traceback reaches a person
        lifecycle.lose_output(f"internal error: {describe(error)}")
    lifecycle.exit()


def id_text(message: Call) -> str | None:
    """Return a request's id as the log shows it; a notification has none."""
    return write_id(message.id) if isinstance(message, Request) else None


class Server:
    """One client, one handler, one request at a time."""

    def __init__(
        self,
        stdio: Stdio,
        lifecycle: Lifecycle,
        log: Log,
        reader: MessageReader,
        read_timeout: float,
        make_handler: Callable[[Server], Handler],
        batch: bool,
    ) -> None:
        self._stdio = stdio
        self.lifecycle = lifecycle
        self.log = log
        self.batch = batch  # arrays are taken
        self.cancellation = Cancellation()
        self.handler = make_handler(self)
        self._intake = Intake(reader, read_timeout, self.handler.cancel, log)
        self._intake.cancel_running = self.cancellation.request
        self._supervisor = Supervisor(
            Watch(stdio, self._intake, lifecycle, self.cancellation),
            stdio.wake_up,
            Signals(stdio.wake_up, self.cancellation.on_signal),
        )
        self._outbox = Outbox(stdio, reader, self._supervisor)
        self._deferred: list[Callable[[], object]] = [log.start_loguru]

    # The loop.

    def run(self) -> None:
        """Serve until asked to leave."""
        while self.lifecycle.answering:
            item = self._intake.next()
            if item is None:
                if self._supervisor.signals_may_differ:
                    self._supervisor.restore_signals()
                self._outbox.flush()
                if not self._receive():
                    break
            elif isinstance(item, list):
                self._serve_batch(item)
            else:
                self._serve(item)
        self._outbox.flush()
        with self._supervisor:
            atexit._run_exitfuncs()  # which os._exit leaves out
        if not self._intake.ended:
            # jsonrpc.el 1.0.25 hands a reply on later than the news of our exit; where both
            # come at once its caller is told that the server died.
            self._stdio.is_input_closed(FAREWELL)

    def _receive(self) -> bool:
        """Wait for input and feed it to the intake; return False where there is no more."""
        intake, lifecycle = self._intake, self.lifecycle
        if intake.ended:
            return False
        has_input, signal_name = self._stdio.wait_for_input(self._patience())
        if signal_name is not None:
            lifecycle.stop(f"{signal_name} received")
        elif has_input:
            chunk = self._stdio.read()
            if chunk is not None:
                intake.feed(chunk)
                if not chunk:
                    lifecycle.end_input()
        elif intake.frame_deadline is not None:
            intake.expire(monotonic())
        else:
            self._run_deferred()
        return True

    def _patience(self) -> float | None:
        """Return how long to wait for input."""
        deadline = self._intake.frame_deadline
        if deadline is not None:
            return deadline - monotonic()
        has_work = self._deferred or self.handler.registry.load_waits is not None
        return IDLE if has_work else None

    def _run_deferred(self) -> None:
        """Run work deferred until the loop is idle."""
        if self._deferred:
            self._deferred.pop(0)()
        else:
            self.handler.registry.load()

    # Answering.

    def _serve(self, arrival: Arrival) -> None:
        message = arrival.message
        if isinstance(message, (Request, Notification)):
            self._serve_call(arrival, message)
        elif isinstance(message, InvalidMessage):
            failure = message.failure
            id = write_id(failure.id) if message.id_known else None
            self.log.warn(failure.error.message, message.method, id)
            if not message.is_reply:
                self._outbox.send(encode(failure))
        else:
            self.log.warn("dropped a response that nobody asked for", id=write_id(message.id))

    def _serve_call(self, arrival: Arrival, message: Call) -> None:
        if self._intake.is_cancel(message):  # what it names has been answered, or was cancelled
            if not self._intake.cancelled_id(arrival)[0]:
                self.log.warn("dropped a cancel that names no request", message.method)
            return
        started = monotonic()
        if self.log.level <= DEBUG:
            self.log.debug("received", message.method, id_text(message))
        result = self._answer(arrival, message)
        if self.lifecycle.overdue:
            return  # it was interrupted, and leaves without its reply
        if isinstance(result, Refused):
            self._log_refusal(result, message)
            is_silent = result.error is CANCELLED and not self.handler.answers_cancelled
            if isinstance(message, Request) and not is_silent:
                self._outbox.send(encode(Failure(message.id, result.error)))
        elif isinstance(message, Request):
            self._outbox.send(encode_success(message.id, result))
        if self.log.level <= DEBUG:
            took = (monotonic() - started) * 1000
            self.log.debug(f"answered in {took:.1f} ms", message.method, id_text(message))

    def _answer(self, arrival: Arrival, message: Call) -> str | Refused:
        if arrival.cancelled:
            return Refused(CANCELLED)
        self.cancellation.begin()
        self._intake.running = message.id if isinstance(message, Request) else self._intake
        try:
            return self.handler.answer(arrival, message)
        except OSError:  # of our input or output: all others are caught where they belong
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours, which ends this request alone
            return Refused(Error.internal_error(), error)
        finally:
            self._intake.running = self._intake

    def _serve_batch(self, batch: list[Arrival]) -> None:
        """Answer several messages in one frame, in their order."""
        if not self.batch:
            message = "Batch requests not supported"
            self.log.warn(message)
            error = Error(INVALID_REQUEST, message, {"reason": BATCH_NOT_SUPPORTED})
            self._outbox.send(encode(Failure(None, error)))
            return
        if not 0 < len(batch) <= BATCH_MAX:
            error = Error.invalid_request(f"a batch holds 1 to {BATCH_MAX} messages")
            self.log.warn(error.message)
            self._outbox.send(encode(Failure(None, error)))
            return
        self._outbox.begin_batch()
        for arrival in batch:
            if not self.lifecycle.answering:
                break
            self._intake.forget(arrival)
            self._serve(arrival)
        self._outbox.end_batch()

    def _log_refusal(self, refused: Refused, message: Call) -> None:
        error, method, id = refused.error, message.method, id_text(message)
        if refused.cause is not None:
            self.log.error(f"{error.message}: {describe(refused.cause)}", method, id)
        elif error.code == REQUEST_CANCELLED:
            self.log.info(error.message, method, id)
        else:  # the message may repeat what the client sent: the log does not
            title = TITLES.get(error.code, f"refused with error {error.code}")
            self.log.warn(title, method, id)

    # What a handler calls.

    def run_method(self, function: Callable[..., str], *arguments: object) -> str | Refused:
        """Run a method under supervision: cancellable, and bounded by the shutdown deadline."""
        self._outbox.flush()
        with self._supervisor:
            return call(self.cancellation.run, function, *arguments)

    def load_methods(self, sources: list[str], folder: str | None) -> None:
        """Load the user's methods."""
        if not any_source(sources, folder):
            return
        # It brings in `inspect`, `typing` and more, for which nobody waits who has no methods.
        from duet_rpc.methods.loading import Loader

        self._log_uncaught()
        with self._supervisor:
            Loader(self.handler.registry, sources, folder, self._report_load_problem).load()
        self.log.start_loguru_if_imported()

    def _report_load_problem(self, problem: str) -> None:
        self.log.error(f"a method could not be loaded: {problem}")

    def _log_uncaught(self) -> None:
        """Log what is raised where no method can catch it, instead of a traceback."""

        def report(args: Any) -> None:
            error = args.exc_value
            if error is not None and not issubclass(type(error), SystemExit):
                self.log.error(f"{describe(error)}, ignored")

        threading.excepthook = sys.unraisablehook = report

    def context(
        self, message: Call, send_progress: Callable[[dict[str, Any]], None] | None
    ) -> Context:
        """Return what a method can report and ask while it runs."""
        id = id_text(message)

        def add_log_line(level: str, text: str) -> None:
            with self.cancellation.hold():
                getattr(self.log, level)(text, message.method, id)

        return Context(
            send_progress,
            add_log_line,
            lambda: self.cancellation.requested,
            self.cancellation.hold,
        )

    def notify(self, message: Call, method: str, params: str) -> None:
        """Send a notification from inside a method, unless its request is answered."""
        body = encode(Notification(method, RawJson(params, None)))
        id = message.id if isinstance(message, Request) else None
        with self.cancellation.hold(), self._stdio.lock:
            if self._intake.running == id:
                self._outbox.send_now(body)
