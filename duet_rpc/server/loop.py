"""The loop of a server: read, decode, dispatch, write.

What a request means is not known here. A `Handler` answers it: `server.rpc` for
`duet-rpc rpc`, `mcp.handler` for `duet-rpc mcp`. The loop does what is the same for both:
one request at a time, to its end, then the next; batches; the log; the end.
"""

from __future__ import annotations

import atexit
import os
from time import monotonic
from typing import TYPE_CHECKING, Any, Union

from duet_rpc import __version__
from duet_rpc.failures import describe
from duet_rpc.jsonrpc.errors import (
    BATCH_NOT_SUPPORTED,
    INVALID_REQUEST,
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
from duet_rpc.methods.notify import connect
from duet_rpc.server.author import Author, id_text
from duet_rpc.server.children import Children
from duet_rpc.server.dispatch import CANCELLED, Refused, call
from duet_rpc.server.guard import Guard
from duet_rpc.server.handover import Passed, replace_process
from duet_rpc.server.intake import NOBODY, Arrival, Intake
from duet_rpc.server.lifecycle import Lifecycle, State
from duet_rpc.server.outbox import Outbox
from duet_rpc.server.pacing import Paced, Pacer
from duet_rpc.server.questions import Questions
from duet_rpc.server.signals import Signals
from duet_rpc.server.stdio import Stdio
from duet_rpc.server.supervisor import Supervisor, Watch
from duet_rpc.server.user_methods import UserMethods

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Protocol

    from duet_rpc.jsonrpc.framing import Framing
    from duet_rpc.jsonrpc.messages import Message
    from duet_rpc.log import Log
    from duet_rpc.methods.asking import Caller
    from duet_rpc.methods.method import Method
    from duet_rpc.methods.registry import Registry
    from duet_rpc.server.handover import Handover
    from duet_rpc.server.intake import CancelForm
    from duet_rpc.server.worker import WorkerRole

    class Handler(Protocol):
        """Turns a request into a result; one for `rpc`, one for `mcp`."""

        registry: Registry
        cancel: CancelForm
        immediate: Collection[str]  # methods that are served while another one waits
        answers_cancelled: bool  # a cancelled request gets a reply all the same
        is_for_authors: bool  # its client may be the author of the methods

        @property
        def passed_on(self) -> tuple[bool, str | None]:
            """What a router has to know of this connection, see `Passed`."""

        def answer(self, arrival: Arrival, request: Call) -> str | Refused:
            """Return the result as JSON text, or the refusal."""

        def reply_now(self, request: Request) -> str | None:
            """Return the result of a request that the supervisor's thread can answer, if it can."""

        def notification(self, topic: str, params: str) -> Notification | None:
            """Return what tells the client of something at any time, if it can be told."""


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
    debug: bool = False,
    log_refusals: bool = True,
    handover: Handover | None = None,
    worker: WorkerRole | None = None,
) -> None:
    """Serve one client until it or a signal ends it; does not return."""
    lifecycle = Lifecycle(log)
    try:
        stdio = Stdio(descriptors)
        children = Children()

        def clean_up() -> None:
            stdio.release()
            children.end()

        lifecycle.before_exit = clean_up
        reader = MessageReader(framing)
        guard = Guard(log, explains=debug)
        author = Author(log, debug, log_refusals, guard.cancellation.hold)
        server = Server(
            stdio, lifecycle, log, reader, read_timeout, make_handler, batch, author, guard
        )
        log.info(
            f"duet-rpc {__version__} started: pid {os.getpid()}, level {log.level_name}, "
            f"log to {log.sink}"
        )
        for method in methods:
            server.handler.registry.add(method)
        others = worker or handover  # who knows which files are not for this process
        if handover is not None:
            server.on_look = lambda: server.hand_over(handover, descriptors, children)
        server.user_methods = UserMethods(
            server.handler.registry,
            sources or [],
            folder,
            author.report_load_problem,
            debug,
            (lambda _source: False) if others is None else others.is_elsewhere,
        )
        if worker is not None:
            worker.begin(server)
        server.run()
        server.leave(children)
    except BrokenPipeError:
        lifecycle.lose_output()
    except OSError as error:
        lifecycle.lose_output(f"input or output failed: {error.strerror}")
    except BaseException as error:  # noqa: BLE001 - no traceback reaches a person
        lifecycle.lose_output(f"internal error: {describe(error)}")
    lifecycle.exit()


def run_exit_handlers() -> str:
    """Run the handlers of `atexit`, which os._exit leaves out; in Python 3.9 they may raise."""
    atexit._run_exitfuncs()
    return ""


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
        self._stdio = stdio
        self.lifecycle = lifecycle
        self.log = log
        self.batch = batch  # arrays are taken
        self.author = author
        self.guard = guard
        self.handler = make_handler(self)
        self._intake = Intake(
            reader, read_timeout, self.handler.cancel, self.handler.immediate, log
        )
        watch = Watch(stdio, self._intake, lifecycle, guard.cancellation)
        self._supervisor = guard.supervisor = Supervisor(
            watch, stdio.wake_up, Signals(stdio.wake_up, guard.cancellation.on_signal)
        )
        self._outbox = Outbox(stdio, reader, self._supervisor)
        self.questions = watch.questions = Questions(
            self._intake,
            guard.cancellation,
            self._supervisor,
            self.send_now,
            self._serve_inside,
            lambda: self._intake.ended or lifecycle.state is State.STOPPING,
            can_cancel=self.handler.answers_cancelled,
        )
        self._intake.take = self._take
        self._intake.accepts_batches = lambda: self.batch
        self._intake.cancel_running = self._cancel
        self._pacer = Pacer(guard.cancellation.hold)
        self._paced: list[Paced] = []  # the reports of the request that has its turn
        if self.handler.is_for_authors:
            author.notify = self.send_notification
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
            item = self._intake.next()
            if item is None:
                self._supervisor.restore_signals()
                self._outbox.flush()
                if not self._receive():
                    break
            elif isinstance(item, list):
                self._serve_batch(item)
            else:
                self._serve(item)
        self._outbox.flush()

    def _end_methods(self, children: Children) -> None:
        """Let the user's files do what they want to do at the end."""
        self.run_method(self.user_methods.stop)
        with self._supervisor:
            children.end_pools()
            call(run_exit_handlers)

    def hand_over(
        self, handover: Handover, descriptors: tuple[int, int], children: Children
    ) -> None:
        """Become the router, with all that has no answer, where a file needs a worker."""
        if not handover.is_due or self._outbox.in_batch or len(self._intake.running) > 1:
            return  # not in the middle of a batch, or of a question
        handover.is_due = False
        while self._intake.reader.partial and self.lifecycle.answering and self._receive():
            self._intake.decode_ahead()
        for fault in self._intake.take_faults():  # to read them once more might end otherwise
            self._serve(fault)
        self.log.info("a file of methods is a worker of its own: becoming the router")
        self._outbox.flush()
        self._end_methods(children)
        children.end()
        self._stdio.release()
        replace_process(
            descriptors,
            Passed(
                self.log.level_name,
                self.user_methods.loaded,
                *self.handler.passed_on,
                input=self._intake.unanswered(),
            ),
        )

    def leave(self, children: Children) -> None:
        """Run what the user's files want to be done, and see to it that replies arrive."""
        self._end_methods(children)
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
        elif self._deferred:
            self._deferred.pop(0)()
        return True

    def _patience(self) -> float | None:
        """Return how long to wait for input."""
        deadline = self._intake.frame_deadline
        if deadline is not None:
            return deadline - monotonic()
        return IDLE if self._deferred else None

    # Answering.

    def _serve(self, arrival: Arrival) -> None:
        message = arrival.message
        if isinstance(message, (Request, Notification)):
            outer, self._intake.current = self._intake.current, arrival
            self._serve_call(arrival, message)
            self._intake.current = outer
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
            self._refuse(message, result)
        elif isinstance(message, Request):
            self._outbox.send(encode_success(message.id, result))
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
            self._outbox.send(encode(Failure(message.id, error)))

    def _answer(self, arrival: Arrival, message: Call) -> str | Refused:
        if arrival.refusal is not None:
            return Refused(arrival.refusal)
        cancellation, running, output = (
            self.guard.cancellation,
            self._intake.running,
            self.guard.output,
        )
        if len(running) == 1:
            cancellation.begin()
            running[0] = id_of(message)
        turn, source, paced = cancellation.turn, output.source, self._paced
        output.source, self._paced = (message.method, id_text(message)), []
        try:
            result = self.handler.answer(arrival, message)
            for each in self._paced:
                each.flush()
            return result
        except OSError:  # of our input or output: all others are caught where they belong
            raise
        except BaseException as error:  # noqa: BLE001 - a fault of ours, which ends this request alone
            return Refused(Error.internal_error(), error)
        finally:
            turn.over = True
            running[-1] = NOBODY
            output.source, self._paced = source, paced
            self.questions.wake()  # threads that still wait for an answer

    def _serve_inside(self, arrival: Arrival) -> None:
        """Serve a call while a method waits for an answer."""
        intake, cancellation = self._intake, self.guard.cancellation
        with self._supervisor.exclusive:
            intake.forget(arrival)
            intake.running.append(id_of(arrival.message))
            cancellation.nest()
        try:
            with self._outbox.outside_batch():
                self._serve(arrival)
                self._outbox.flush()
        finally:
            with self._supervisor.exclusive:
                intake.running.pop()
                cancellation.unnest()

    def _take(self, arrival: Arrival) -> bool:
        """Take what does not wait its turn; on the supervisor's thread."""
        message = arrival.message
        result = self.handler.reply_now(message) if isinstance(message, Request) else None
        if result is None or not isinstance(message, Request):
            return self.questions.take(arrival)
        is_sent = self._outbox.send_if_possible(encode_success(message.id, result))
        if is_sent:
            self._intake.forget(arrival)
        return is_sent or self.questions.take(arrival)

    def _cancel(self, depth: int) -> None:
        """Interrupt a request that runs, and those inside it; on the supervisor's thread."""
        self.guard.cancellation.request(depth)
        self.questions.wake()

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

    # What a handler calls.

    def run_method(self, function: Callable[..., str], *arguments: object) -> str | Refused:
        """Run a method; what was answered before is on its way by then."""
        self._outbox.flush()
        self._supervisor.check_signals()
        return self.guard.run(function, *arguments)

    def refresh_methods(self, wanted: str | None = None) -> Refused | None:
        """Bring the user's methods up to date; return a refusal where that was cancelled."""
        result = self.run_method(self.user_methods.refresh, wanted)
        self.on_look()
        self.log.start_loguru_if_imported()
        self.guard.take_logging()
        return result if isinstance(result, Refused) else None

    def _load_when_idle(self) -> None:
        self.guard.cancellation.begin()
        with self._intake.everybody_waits():
            refused = self.refresh_methods()
        if refused is not None and refused.cause is not None:
            self.lifecycle.report(refused.cause)

    def context(
        self,
        message: Call,
        send_progress: Callable[[dict[str, Any]], None] | None,
        caller: Caller | None = None,
    ) -> Context:
        """Return what a method can report and ask while it runs."""
        id, cancellation = id_text(message), self.guard.cancellation
        turn = cancellation.turn

        def add_log_line(level: str, text: str) -> None:
            with cancellation.hold():
                getattr(self.log, level)(text, message.method, id)

        return Context(
            send_progress, add_log_line, lambda: turn.requested, cancellation.hold, caller
        )

    def pace(self, send: Callable[[list[str]], None], only_newest: bool = False) -> Paced:
        """Return a stream of reports of the request that has its turn."""
        paced = Paced(self._pacer, send, only_newest)
        self._paced.append(paced)
        return paced

    def notify(self, message: Call, method: str, params: str | None = None) -> None:
        """Send a notification from inside a method, unless its request is answered."""
        with self.guard.cancellation.hold(), self._stdio.lock:
            if id_of(message) in self._intake.running:
                self.send_notification(method, params)

    def send_now(self, message: Message) -> None:
        """Send a message that is not a reply of the main thread's; from any thread."""
        with self.guard.cancellation.hold():
            self._outbox.send_now(encode(message))

    def send_notification(self, method: str, params: str | None = None) -> None:
        """Send a notification at once, from whatever thread."""
        raw = None if params is None else RawJson(params, None)
        self._outbox.send_now(encode(Notification(method, raw)))

    def notify_client(self, topic: str, params: str) -> None:
        """Tell the client something, whatever runs."""
        notification = self.handler.notification(topic, params)
        if notification is not None and not self._supervisor.is_child:
            self.send_now(notification)

    def _notify_at_any_time(self, topic: str, params: object) -> None:
        """Send what `duet_rpc.notify` was given."""
        from duet_rpc.methods.signature import ENCODE  # the loader of methods has imported it

        self.notify_client(topic, ENCODE(params))


def id_of(message: object) -> object:
    """Return a request's id; a notification has none."""
    return message.id if isinstance(message, Request) else message
