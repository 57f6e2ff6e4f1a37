"""The loop of a server: read, decode, answer, write; and what the log says of it.

What a request means is not known here. A `Face` answers it: `server.rpc` for
`duet-rpc rpc`, `mcp.face` for `duet-rpc mcp`. The loop does what is the same for both:
one request at a time, cancel while it runs, batches, the end.
"""

from __future__ import annotations

import os
import sys
from _collections import deque
from time import monotonic

from duet_rpc import __version__
from duet_rpc.jsonrpc.errors import INTERNAL_ERROR, REQUEST_CANCELLED, TITLES
from duet_rpc.jsonrpc.framing import CONTENT_LENGTH
from duet_rpc.jsonrpc.limits import BODY_MAX, FAREWELL, READ_TIMEOUT
from duet_rpc.jsonrpc.messages import (
    Batch,
    Failure,
    Request,
    encode_failure,
    encode_success,
    same_id,
    to_json,
)
from duet_rpc.jsonrpc.reader import Reader
from duet_rpc.jsonrpc.repeat import Repeat
from duet_rpc.log import DEBUG, Log
from duet_rpc.methods.context import Context
from duet_rpc.server import dispatch
from duet_rpc.server.lifecycle import OUTPUT_CLOSED, Lifecycle
from duet_rpc.server.stdio import Stdio

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, MutableSequence
    from typing import Any, Protocol

    from duet_rpc.jsonrpc.framing import Framing
    from duet_rpc.jsonrpc.messages import Response
    from duet_rpc.jsonrpc.reader import Message
    from duet_rpc.methods.registry import Method, Registry

    class Face(Protocol):
        """What requests mean."""

        command: str  # that it is started with
        registry: Registry
        cancel: str  # the notification that takes a request back,
        cancel_id: str  # and its member that names the request
        answers_cancelled: bool  # what was taken back gets a reply all the same

        def answer(self, request: Request) -> bytes | Failure:
            """Return the result as JSON, or what to say instead."""


# What a client has asked so often in a row is worth knowing by heart.
OFTEN = 16
SHORT = 128  # bytes, about a frame that asks for something without params

FLUSH_AT = 64 * 1024
LARGE = 256 * 1024

# A look at the input while a method runs waits this long for the rest of a frame, each time
# and altogether.
MOMENT = 0.002
LOOK = 0.025

TERMINAL_HINT = (
    "duet-rpc {}: waiting for JSON-RPC requests, {}; Ctrl-D ends it. "
    "For people there are `duet-rpc call` and `duet-rpc console`.\n"
)


def serve(
    descriptors: tuple[int, int],
    log: Log,
    make_face: Callable[[Daemon], Face],
    sources: list[str] | None = None,
    folder: str | None = None,
    methods: Iterable[Method] = (),
    read_timeout: float = READ_TIMEOUT,
    framing: Framing | None = CONTENT_LENGTH,
    batch: bool = False,
) -> None:
    """Serve one client until it or a signal ends it; does not return."""
    lifecycle = Lifecycle(log)
    code = 1
    try:
        stdio = Stdio(descriptors, lifecycle)
        lifecycle.output_closed = stdio.output_closed
        lifecycle.release = stdio.release
        daemon = Daemon(stdio, lifecycle, log, Reader(framing, batch), read_timeout, make_face)
        if stdio.is_terminal:
            form = "in any framing" if framing is None else framing.form
            os.write(2, TERMINAL_HINT.format(daemon.face.command, form).encode())
        log.info(
            f"duet-rpc {__version__} started: pid {os.getpid()}, level {log.level_name}, "
            f"log to {log.sink}"
        )
        for method in methods:
            daemon.face.registry.add(method)
        daemon.load_later(sources or [], folder)
        # Importing loguru takes several times as long as all else at start, so it waits, as
        # the user's methods do, until the timer finds that all is quiet.
        lifecycle.tick()
        daemon.run()
        code = 0
    except BrokenPipeError:
        log.error(OUTPUT_CLOSED)
    except OSError as error:
        log.error(f"input or output failed: {error.strerror}")
    except BaseException as error:  # noqa: BLE001 - no traceback reaches a person
        what = type(error).__name__
        try:
            from duet_rpc.failures import describe

            what = describe(error)
        except ImportError:  # somebody has deleted what we were loaded from
            pass
        log.error(f"internal error: {what}")
    lifecycle.leave(code)


class Daemon:
    """One client, one face, one request at a time."""

    def __init__(
        self,
        stdio: Stdio,
        lifecycle: Lifecycle,
        log: Log,
        reader: Reader,
        read_timeout: float,
        make_face: Callable[[Daemon], Face],
    ) -> None:
        self._stdio = stdio
        self._lifecycle = lifecycle
        self._read_timeout = read_timeout
        self._deadline: float | None = None  # for the frame that is arriving
        self._arriving = 0  # bytes of it, after the first piece
        self._queue: deque[Message] = deque()  # what came while a method ran
        self._ahead = 0  # bytes read for the queue
        self._running: Request | None = None
        self._prepared = False
        self._ended = False
        self._batch: Batch | None = None  # the one being served,
        self._answers: list[bytes] | None = None  # and the answers to it
        self._repeat = Repeat()
        self._asked = ""  # the method that was called last and always has the same result,
        self._times = 0  # and how often in a row
        self.piece: bytes | None = None  # the last one of input
        self._fed = False  # the reader may hold something
        self._replies: list[bytes] = []
        self._waiting = 0  # bytes in _replies
        self._leaving = False
        self.log = log
        self.reader = reader
        lifecycle.watch = self._look_ahead
        self.face = make_face(self)

    def shut_down(self) -> None:
        """Leave once the request that asks for it has been answered."""
        self._leaving = True

    @property
    def _done(self) -> bool:
        return self._leaving or self._lifecycle.stopping

    def run(self) -> None:
        """Serve until asked to leave."""
        while not self._done:
            if not self._receive():
                self._end_input()
                return
            self._serve()
        if self._leaving:
            self.log.info("shutdown requested, shutting down gracefully")
            # jsonrpc.el 1.0.25 hands a reply on later than the news of our death; where
            # both come at once its caller is told that the server died.
            self._stdio.input_closed(FAREWELL)

    # The user's methods.

    def load_later(self, sources: list[str], folder: str | None) -> None:
        """Load methods when somebody asks for one, or when there is nothing to answer."""
        self.face.registry.load_later(lambda: self._load(sources, folder))

    def _load(self, sources: list[str], folder: str | None) -> None:
        from duet_rpc.methods.sources import any_source

        if not any_source(sources, folder):
            return
        self._prepare()
        with self._lifecycle:
            from duet_rpc.methods.loading import Loader

            self._hear_strays()
            Loader(self.face.registry, sources, folder, self._report).load()
            self.log.start_loguru_if_imported()

    def _hear_strays(self) -> None:
        """Log what is raised where no method can catch it, instead of a traceback."""
        import threading

        from duet_rpc.failures import describe

        def hear(args: Any) -> None:
            error = args.exc_value
            if error is not None and not issubclass(type(error), SystemExit):
                self.log.error(f"{describe(error)}, ignored")

        threading.excepthook = sys.unraisablehook = hear

    def _report(self, problem: str) -> None:
        self.log.error(f"a method could not be loaded: {problem}")

    # Reading.

    def _receive(self) -> bool:
        """Wait for input and feed it to the reader; False where there is no more."""
        stdio, lifecycle = self._stdio, self._lifecycle
        while not lifecycle.stopping and not self._ended:
            if not lifecycle.ticking and self._put_in_order():
                return True  # loading may have read ahead
            piece = stdio.receive(self._deadline)
            if piece is None:
                if self._deadline is not None and monotonic() >= self._deadline:
                    self._expire()
                continue
            if self._take(piece):
                return bool(piece)
        return not self._ended

    def _take(self, piece: bytes) -> bool:
        """Take one piece of input; False where that has answered all of it."""
        repeat = self._repeat
        if 0 < repeat.size <= len(piece) and self.log.level > DEBUG:
            if self._fed:
                held = self.reader.take_back(repeat.size)
                if held is not None:
                    piece = held + piece
                    self._fed = False
            if not self._fed:
                replies, end = repeat.answer(piece)
                if end:
                    self._deadline = None
                    if end < len(piece):  # first: while replies are stuck, more may be read
                        self._feed(piece[end:])
                    self._stdio.write(replies)
                    return self._fed
        self.piece = piece
        if self._deadline is not None:
            self._arriving += len(piece)
            self.reader.reserve(LARGE, self._make_room)
        self._feed(piece)
        return True

    def _feed(self, piece: bytes) -> None:
        self._fed = True
        self.reader.feed(piece)

    def _put_in_order(self) -> bool:
        """Do what waits until nothing else is to be done; False where there is nothing."""
        log, registry = self.log, self.face.registry
        if not self._arriving and log.loguru_started and registry.load_waits is None:
            return False
        self._rest_after_large()
        if not self._prepared:
            self._prepare()
        log.start_loguru()
        registry.load()
        return True

    def _make_room(self, size: int) -> None:
        from duet_rpc.jsonrpc.large import room_for
        from duet_rpc.server.memory import make_room

        self._arriving += size  # whether or not all of it will come
        make_room(room_for(size))

    def _rest_after_large(self) -> None:
        if self._arriving > LARGE:
            from duet_rpc.jsonrpc.large import accelerate
            from duet_rpc.server.memory import give_back

            accelerate()
            give_back()
        self._arriving = 0

    def _look_ahead(self) -> bool:
        """Read while a method runs: it may be cancelled, or the input may end."""
        stdio, reader = self._stdio, self.reader
        until = monotonic() + LOOK
        while True:
            message = reader.next()
            if message is None:
                # Whoever is writing a large frame fills the pipe again within moments; to
                # leave the rest to the next look would be a pipe's worth each time.
                wait = MOMENT if reader.partial and monotonic() < until else 0.0
                if self._ended or self._ahead >= BODY_MAX or not stdio.ready(wait):
                    break
                try:
                    piece = stdio.read()
                except OSError:  # not in the middle of a method: the loop will meet it too
                    break
                self._ended = not piece
                self._ahead += len(piece)
                self._feed(piece)
            elif isinstance(message, Request) and self._is_cancel(message):
                self._cancel(message)
            else:
                if isinstance(message, Batch):
                    for each in message.messages:
                        if isinstance(each, Request) and self._is_cancel(each):
                            self._cancel(each)
                self._queue.append(message)
        return self._ended or stdio.input_closed()

    def _expire(self) -> None:
        self.reader.expire()
        self._deadline = None
        self.log.warn(f"a frame was not complete after {self._read_timeout:g} s: dropped")
        # What it had swallowed may hold whole frames.
        self._serve()

    def _end_input(self) -> None:
        self._lifecycle.input_ended = True
        self.reader.finish()
        self._serve()
        self.log.info("stdin closed, shutting down gracefully")

    # Answering.

    def _serve(self) -> None:
        """Answer all that has arrived whole."""
        moved = False
        queue, reader, lifecycle = self._queue, self.reader, self._lifecycle
        while not (self._leaving or lifecycle.stopping):
            if queue:
                message = queue.popleft()
            else:
                self._ahead = 0
                found = reader.next()
                if found is None:
                    self._flush()
                    if queue:  # it came while a reply was stuck
                        continue
                    break
                message = found
            moved = True
            if isinstance(message, Batch):
                self._serve_batch(message)
            else:
                self._serve_one(message)
        if self._replies:
            self._flush()
        if not reader.partial:
            self._deadline = None
        elif moved or self._deadline is None:
            self._deadline = monotonic() + self._read_timeout
        elif monotonic() >= self._deadline:
            self._expire()

    def _serve_one(self, message: Request | Response | Failure) -> None:
        if not isinstance(message, Request):
            if isinstance(message, Failure):
                self._refuse(message)
            else:
                self.log.warn("a response that nobody asked for was dropped", id=message.id)
            return
        id = message.id
        if id is None and self._is_cancel(message):
            return  # what it names has been answered
        self._running = message
        self._lifecycle.cancelled = False
        try:
            result = self.face.answer(message)
        except OSError:  # of our input or output: all others are caught where they belong
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours, which ends this request alone
            result = Failure(id, INTERNAL_ERROR, TITLES[INTERNAL_ERROR], cause=error)
        self._running = None
        if isinstance(result, Failure):
            self._refuse(result, message.method)
            return
        if id is not None:
            self._send(encode_success(id, result))
        if self.log.level <= DEBUG:
            self.log.debug("served", message.method, id)

    def _serve_batch(self, batch: Batch) -> None:
        """Answer several messages in one frame, in their order."""
        self._batch, self._answers = batch, []
        for message in batch.messages:
            if self._done:
                break
            self._serve_one(message)
        answers, self._batch, self._answers = self._answers, None, None
        if answers:
            self._send(b"[" + b",".join(answers) + b"]")

    # What a face calls.

    def repeats(self, piece: bytes, method: str, result: bytes) -> None:
        """Take note that a call of this method without params always has this result."""
        self.piece = None
        if method != self._asked:
            self._asked, self._times = method, 0
        self._times += 1 + len(piece) // SHORT  # of a burst, as many as it may hold
        if self._times >= OFTEN:
            self._repeat.learn(piece, method, result, self.reader.framing)

    def run_method(
        self, request: Request, run: Callable[..., bytes], *arguments: object
    ) -> bytes | Failure:
        """Run a method, watched: it can be cancelled, and it can't outlive its welcome."""
        if self._replies:
            self._flush()
        if not self._prepared:
            self._prepare()
        lifecycle = self._lifecycle
        if lifecycle.cancelled:  # while it was being loaded, or while a reply was stuck
            return Failure(request.id, REQUEST_CANCELLED, TITLES[REQUEST_CANCELLED])
        lifecycle.begin()
        with lifecycle:
            return dispatch.call(request.id, run, *arguments)

    def _prepare(self) -> None:
        """Load what the first reply went without."""
        import duet_rpc.server.later  # noqa: F401

        self._stdio.prepare()
        self._prepared = True

    @property
    def cancelled(self) -> bool:
        """True where the request that is served was taken back meanwhile."""
        return self._lifecycle.cancelled

    def context(
        self, request: Request, send_progress: Callable[[dict[str, Any]], None] | None
    ) -> Context:
        """Make what a method can say and ask while it runs."""

        def add_log_line(level: str, message: str) -> None:
            with self._lifecycle.uninterrupted():
                getattr(self.log, level)(message, request.method, request.id)

        return Context(
            send_progress,
            add_log_line,
            lambda: self._lifecycle.cancelled,
            self._lifecycle.uninterrupted,
        )

    def notify(self, request: Request, method: str, params: dict[str, object]) -> None:
        """Send a notification from inside a method, unless its request is answered."""
        body = to_json({"jsonrpc": "2.0", "method": method, "params": params})
        with self._lifecycle.uninterrupted():
            self._stdio.take_turn()
            try:
                if self._running is request:
                    self._stdio.write(self.reader.framing.encode(body))
            finally:
                self._stdio.end_turn()

    # Taking a request back.

    def _is_cancel(self, message: Request) -> bool:
        return message.id is None and message.method == self.face.cancel

    def _cancel(self, message: Request) -> None:
        """Cancel the request that is running, or one that waits."""
        face, params = self.face, message.params
        wanted = params.get(face.cancel_id) if isinstance(params, dict) else None
        if type(wanted) not in (str, int, float):
            self.log.warn("a cancel that names no request was dropped", face.cancel)
            return
        if self._running is not None and same_id(self._running.id, wanted):
            self._lifecycle.cancel()
            return
        for messages in self._waiting_messages():
            for at, waiting in enumerate(messages):
                if isinstance(waiting, Request) and same_id(waiting.id, wanted):
                    id = waiting.id if face.answers_cancelled else None
                    messages[at] = Failure(id, REQUEST_CANCELLED, TITLES[REQUEST_CANCELLED])
                    return

    def _waiting_messages(self) -> Iterator[MutableSequence[Any]]:
        if self._batch is not None:
            yield self._batch.messages
        yield self._queue
        for message in self._queue:
            if isinstance(message, Batch):
                yield message.messages

    def _refuse(self, failure: Failure, method: str | None = None) -> None:
        """Log a failure and, unless it was a notification's, send it."""
        log = self.log
        if failure.cause is not None:
            from duet_rpc.failures import describe

            log.error(f"{failure.message}: {describe(failure.cause)}", method, failure.id)
        elif failure.code == REQUEST_CANCELLED:
            log.info(failure.message, method, failure.id)
        elif method is None:  # a broken frame or message, in our own words
            log.warn(failure.message, method, None if failure.id == "null" else failure.id)
        else:  # the message may repeat what the client sent: the log does not
            title = TITLES.get(failure.code, f"refused with error {failure.code}")
            log.warn(title, method, failure.id)
        if failure.id is not None:
            self._send(encode_failure(failure))

    # Writing.

    def _send(self, body: bytes) -> None:
        if self._answers is not None:
            self._answers.append(body)
            return
        self._replies.append(self.reader.framing.encode(body))
        self._waiting += len(body)
        if self._waiting > FLUSH_AT:
            self._flush()

    def _flush(self) -> None:
        """Write all replies to what one read brought at once: one system call, not many."""
        replies = self._replies
        if replies:
            data = replies[0] if len(replies) == 1 else b"".join(replies)
            replies.clear()
            self._waiting = 0
            self._stdio.write(data)
