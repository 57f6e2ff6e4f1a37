"""The loop of a server: read, decode, dispatch, write.

What a request means is not known here. A `Handler` answers it: `server.rpc` for
`duet-rpc rpc`, `mcp.handler` for `duet-rpc mcp`. The loop does what is the same for both:
one request at a time, to its end, then the next; batches; the log. `serve` begins and ends it.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.errors import (
    BATCH_NOT_SUPPORTED,
    INVALID_REQUEST,
    Error,
)
from duet_rpc.jsonrpc.jsontext import write_id
from duet_rpc.jsonrpc.limits import BATCH_MAX
from duet_rpc.jsonrpc.messages import (
    Failure,
    InvalidMessage,
    Notification,
    Request,
    encode,
    encode_success,
)
from duet_rpc.jsonrpc.reader import MessageReader
from duet_rpc.log import DEBUG
from duet_rpc.methods.notify import connect
from duet_rpc.server.author import Author, id_text
from duet_rpc.server.dispatch import CANCELLED, Refused
from duet_rpc.server.frames import Arrival, Frames
from duet_rpc.server.guard import Guard
from duet_rpc.server.intake import Intake, id_of
from duet_rpc.server.lifecycle import Lifecycle, State
from duet_rpc.server.outbox import Outbox
from duet_rpc.server.questions import Questions
from duet_rpc.server.reports import Reports
from duet_rpc.server.signals import Signals
from duet_rpc.server.stdio import Stdio
from duet_rpc.server.supervisor import Supervisor, Watch
from duet_rpc.server.user_methods import UserMethods

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Protocol

    from duet_rpc.log import Log
    from duet_rpc.methods.registry import Registry
    from duet_rpc.server.intake import Call, CancelForm

    class Handler(Protocol):
        """Turns a request into a result; one for `rpc`, one for `mcp`."""

        registry: Registry
        cancel: CancelForm
        immediate: Collection[str]  # methods that are served while another one waits
        answers_cancelled: bool  # a cancelled request gets a reply all the same
        is_for_authors: bool  # its client may be the author of the methods

        @property
        def passed_on(self) -> tuple[bool, str | None, object]:
            """What a router has to know of this connection, see `Passed`."""

        def answer(self, arrival: Arrival, request: Call) -> str | Refused:
            """Return the result as JSON text, or the refusal."""

        def reply_now(self, request: Request) -> str | None:
            """Return the result of a request that the supervisor's thread can answer, if it can."""

        def notification(self, topic: str, params: str) -> Notification | None:
            """Return what tells the client of something at any time, if it can be told."""


IDLE = 0.05
"""Seconds without input after which deferred work is done."""


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
        author: Author,
        guard: Guard,
    ) -> None:
        self.stdio = stdio
        self.lifecycle = lifecycle
        self.log = log
        self.batch = batch  # arrays are taken
        self.author = author
        self.guard = guard
        self.handler = make_handler(self)
        frames = Frames(reader, read_timeout, log)
        self.intake = Intake(frames, self.handler.cancel, self.handler.immediate)
        watch = Watch(stdio, self.intake, lifecycle, guard.cancellation)
        self.supervisor = guard.supervisor = Supervisor(
            watch, stdio.wake_up, Signals(stdio.wake_up, guard.cancellation.on_signal)
        )
        self.outbox = Outbox(stdio, reader, self.supervisor)
        self.reports = Reports(self.outbox, guard.cancellation, log)
        self.questions = watch.questions = Questions(
            self.intake,
            guard.cancellation,
            self.supervisor,
            self.reports.send_now,
            self._serve_inside,
            lambda: frames.ended or lifecycle.state is State.STOPPING,
            can_cancel=self.handler.answers_cancelled,
        )
        self.intake.take = self._take
        self.intake.accepts_batches = lambda: self.batch
        self.intake.cancel_running = self._cancel
        if self.handler.is_for_authors:
            author.notify = self.reports.send_notification
        self._deferred: list[Callable[[], object]] = [log.start_loguru, self._load_when_idle]
        self.user_methods: UserMethods
        self.on_silent_end: Callable[[], object] = bool  # of a request that gets no reply
        self.on_look: Callable[[], object] = bool  # the user's files were looked at

    # The loop.

    def run(self) -> None:
        """Serve until asked to leave."""
        self.author.install_hooks()
        self.guard.output.install()
        connect(self._notify_at_any_time)
        while self.lifecycle.answering:
            item = self.intake.next()
            if item is None:
                self.supervisor.restore_signals()
                self.outbox.flush()
                if not self.receive():
                    break
            elif isinstance(item, list):
                self._serve_batch(item)
            else:
                self.serve(item)
        self.outbox.flush()

    def receive(self) -> bool:
        """Wait for input and feed it to the intake; return False where there is no more."""
        frames, lifecycle = self.intake.frames, self.lifecycle
        if frames.ended:
            return False
        has_input, signal_name = self.stdio.wait_for_input(self._patience())
        if signal_name is not None:
            lifecycle.stop(f"{signal_name} received")
        elif has_input:
            chunk = self.stdio.read()
            if chunk is not None:
                frames.feed(chunk)
                if not chunk:
                    lifecycle.end_input()
        elif frames.deadline is not None:
            frames.expire(monotonic())
        elif self._deferred:
            self._deferred.pop(0)()
        return True

    def _patience(self) -> float | None:
        """Return how long to wait for input."""
        deadline = self.intake.frames.deadline
        if deadline is not None:
            return deadline - monotonic()
        return IDLE if self._deferred else None

    # Answering.

    def serve(self, arrival: Arrival) -> None:
        """Answer one message."""
        message = arrival.message
        if isinstance(message, (Request, Notification)):
            outer, self.intake.current = self.intake.current, arrival
            self._serve_call(arrival, message)
            self.intake.current = outer
        elif isinstance(message, InvalidMessage):
            failure = message.failure
            id = write_id(failure.id) if message.id_known else None
            self.log.warn(failure.error.message, message.method, id)
            if not message.is_reply:
                self.outbox.send(encode(failure))
        else:
            self.log.warn("dropped a response that nobody asked for", id=write_id(message.id))

    def _serve_call(self, arrival: Arrival, message: Call) -> None:
        if self.intake.is_cancel(message):  # what it names has been answered, or was cancelled
            if not self.intake.cancelled_id(arrival)[0]:
                self.log.warn("dropped a cancel that names no request", message.method)
            return
        started = monotonic()
        if self.log.level <= DEBUG:
            self.log.debug("received", message.method, id_text(message))
        result = self._answer(arrival, message)
        if self.lifecycle.overdue:
            return  # it was interrupted, and leaves without its reply
        if isinstance(result, Refused):
            self._refuse(message, result)
        elif isinstance(message, Request):
            self.outbox.send(encode_success(message.id, result))
        if self.log.level <= DEBUG:
            took = (monotonic() - started) * 1000
            self.log.debug(f"answered in {took:.1f} ms", message.method, id_text(message))

    def _refuse(self, message: Call, refused: Refused) -> None:
        self.author.log_refusal(refused, message)
        if refused.error is CANCELLED and not self.handler.answers_cancelled:
            self.on_silent_end()
        elif isinstance(message, Request):
            error = refused.error
            if refused.details is not None and self.handler.is_for_authors:
                error = Error(error.code, error.message, refused.details)
            self.outbox.send(encode(Failure(message.id, error)))

    def _answer(self, arrival: Arrival, message: Call) -> str | Refused:
        if arrival.refusal is not None:
            return Refused(arrival.refusal)
        cancellation, output = self.guard.cancellation, self.guard.output
        if not cancellation.is_nested:
            cancellation.begin(id_of(message))
        turn, source, reports = cancellation.turn, output.source, self.reports
        output.source = (message.method, id_text(message))
        paced, reports.paced = reports.paced, []
        try:
            result = self.handler.answer(arrival, message)
            reports.flush()
            return result
        except OSError:  # of our input or output: all others are caught where they belong
            raise
        except BaseException as error:  # noqa: BLE001 - a fault of ours, which ends this request alone
            return Refused(Error.internal_error(), error)
        finally:
            turn.over = True
            output.source, reports.paced = source, paced
            self.questions.wake()  # threads that still wait for an answer

    def _serve_inside(self, arrival: Arrival) -> None:
        """Serve a call while a method waits for an answer."""
        cancellation = self.guard.cancellation
        with self.supervisor.exclusive:
            self.intake.forget(arrival)
            cancellation.nest(id_of(arrival.message))
        try:
            with self.outbox.outside_batch():
                self.serve(arrival)
                self.outbox.flush()
        finally:
            with self.supervisor.exclusive:
                cancellation.unnest()

    def _take(self, arrival: Arrival) -> bool:
        """Take what does not wait its turn; on the supervisor's thread."""
        message = arrival.message
        result = self.handler.reply_now(message) if isinstance(message, Request) else None
        if result is None or not isinstance(message, Request):
            return self.questions.take(arrival)
        is_sent = self.outbox.send_if_possible(encode_success(message.id, result))
        if is_sent:
            self.intake.forget(arrival)
        return is_sent or self.questions.take(arrival)

    def _cancel(self, id: object) -> bool:
        """Interrupt a request, if it runs, and those inside it; on the supervisor's thread."""
        is_running = self.guard.cancellation.request_id(id)
        if is_running:
            self.questions.wake()
        return is_running

    def _serve_batch(self, batch: list[Arrival]) -> None:
        """Answer several messages in one frame, in their order."""
        if not self.batch:
            message = "Batch requests not supported"
            self.log.warn(message)
            error = Error(INVALID_REQUEST, message, {"reason": BATCH_NOT_SUPPORTED})
            self.outbox.send(encode(Failure(None, error)))
            return
        if not 0 < len(batch) <= BATCH_MAX:
            error = Error.invalid_request(f"a batch holds 1 to {BATCH_MAX} messages")
            self.log.warn(error.message)
            self.outbox.send(encode(Failure(None, error)))
            return
        self.outbox.begin_batch()
        for arrival in batch:
            if not self.lifecycle.answering:
                break
            self.intake.forget(arrival)
            self.serve(arrival)
        self.outbox.end_batch()

    # What a handler calls.

    def run_method(self, function: Callable[..., str], *arguments: object) -> str | Refused:
        """Run a method; what was answered before is on its way by then."""
        self.outbox.flush()
        self.supervisor.check_signals()
        return self.guard.run(function, *arguments)

    def refresh_methods(self, wanted: str | None = None) -> Refused | None:
        """Bring the user's methods up to date; return a refusal where that was cancelled."""
        result = self.run_method(self.user_methods.refresh, wanted)
        self.on_look()
        self.log.start_loguru_if_imported()
        self.guard.take_logging()
        return result if isinstance(result, Refused) else None

    def _load_when_idle(self) -> None:
        if self.user_methods.are_loaded:
            return  # a call has wanted them: what it was cancelled for would be tried again
        self.guard.cancellation.begin()
        refused = self.refresh_methods()
        if refused is not None and refused.cause is not None:
            self.lifecycle.report(refused.cause)

    def notify_client(self, topic: str, params: str) -> None:
        """Tell the client something, whatever runs."""
        notification = self.handler.notification(topic, params)
        if notification is not None and not self.supervisor.is_child:
            self.reports.send_now(notification)

    def _notify_at_any_time(self, topic: str, params: object) -> None:
        """Send what `duet_rpc.notify` was given."""
        from duet_rpc.methods.signature import ENCODE  # the loader of methods has imported it

        self.notify_client(topic, ENCODE(params))
