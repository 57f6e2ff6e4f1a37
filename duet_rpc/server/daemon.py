"""The loop of `duet-rpc rpc`: read, decode, answer, write; and what the log says of it."""

from __future__ import annotations

import os
from time import monotonic

from duet_rpc import __version__
from duet_rpc.log import DEBUG, Log
from duet_rpc.methods.builtin import add_builtin
from duet_rpc.methods.registry import Method, Registry
from duet_rpc.protocol.errors import PARSE_ERROR, TITLES, Fault
from duet_rpc.protocol.framing import ContentLengthDecoder, encode
from duet_rpc.protocol.limits import FAREWELL, READ_TIMEOUT
from duet_rpc.protocol.messages import (
    Failure,
    Request,
    encode_failure,
    encode_success,
    fail,
    parse,
)
from duet_rpc.server import dispatch
from duet_rpc.server.lifecycle import Lifecycle
from duet_rpc.server.stdio import Stdio

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Importing loguru takes several times as long as all else at start, so the first lines
# wait until the client has been silent for this long.
SETTLE = 0.1

FLUSH_AT = 64 * 1024

TERMINAL_HINT = (
    "duet-rpc rpc: waiting for JSON-RPC requests, each after a Content-Length header; "
    "Ctrl-D ends it. For people there are `duet-rpc call` and `duet-rpc console`."
)


def serve(
    descriptors: tuple[int, int],
    log: Log,
    methods: Iterable[Method] = (),
    read_timeout: float = READ_TIMEOUT,
) -> None:
    """Serve one client until it or a signal ends it; does not return."""
    lifecycle = Lifecycle(log)
    code = 1
    try:
        stdio = Stdio(descriptors, lifecycle)
        lifecycle.release = stdio.release
        if stdio.is_terminal:
            os.write(2, TERMINAL_HINT.encode() + b"\n")
        log.info(
            f"duet-rpc {__version__} started: pid {os.getpid()}, level {log.level_name}, "
            f"log to {log.sink}"
        )
        daemon = Daemon(stdio, lifecycle, log, read_timeout)
        for method in methods:
            daemon.registry.add(method)
        daemon.run()
        code = 0
    except BrokenPipeError:
        log.error("stdout is closed: the client is gone")
    except OSError as error:
        log.error(f"input or output failed: {error.strerror}")
    except BaseException as error:  # noqa: BLE001 - no traceback reaches a person
        log.error(f"internal error: {log.describe(error)}")
    lifecycle.leave(code)


class Daemon:
    """One client, one registry, one request at a time."""

    def __init__(self, stdio: Stdio, lifecycle: Lifecycle, log: Log, read_timeout: float) -> None:
        self._stdio = stdio
        self._lifecycle = lifecycle
        self._log = log
        self._read_timeout = read_timeout
        self._decoder = ContentLengthDecoder()
        self._deadline: float | None = None  # for the frame that is arriving
        self._replies: list[bytes] = []
        self._waiting = 0  # bytes in _replies
        self._leaving = False
        self.registry = Registry()
        add_builtin(self.registry, log.set_level, self._shut_down)
        self._quick = frozenset(self.registry) | frozenset(self.registry.hidden.values())

    def _shut_down(self) -> None:
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
            self._log.info("shutdown requested, shutting down gracefully")
            # jsonrpc.el 1.0.25 hands a reply on later than the news of our death; where
            # both come at once its caller is told that the server died.
            self._stdio.input_closed(FAREWELL)

    # Reading.

    def _receive(self) -> bool:
        """Wait for input and feed it to the decoder; False where there is no more."""
        stdio, log = self._stdio, self._log
        while not self._lifecycle.stopping:
            limits = []
            if self._deadline is not None:
                limits.append(self._deadline - monotonic())
            if log.unsettled:
                limits.append(SETTLE)
            if stdio.wait(min(limits) if limits else None):
                piece = stdio.read()
                self._decoder.feed(piece)
                return bool(piece)
            if self._deadline is not None and monotonic() >= self._deadline:
                self._expire()
            elif not self._lifecycle.stopping:
                log.settle()
        return True

    def _expire(self) -> None:
        self._decoder.expire()
        self._deadline = None
        self._log.warn(f"a frame was not complete after {self._read_timeout:g} s: dropped")
        # What it had swallowed may hold whole frames.
        self._serve()

    def _end_input(self) -> None:
        self._lifecycle.input_ended = True
        fault = self._decoder.end()
        while fault is not None and not self._done:
            self._refuse(fail(fault))
            self._serve()
            fault = self._decoder.end()
        self._flush()
        self._log.info("stdin closed, shutting down gracefully")

    # Answering.

    def _serve(self) -> None:
        """Answer all that has arrived whole."""
        decoder = self._decoder
        moved = False
        while not self._done:
            event = decoder.next()
            if event is None:
                break
            moved = True
            if isinstance(event, Fault):
                self._refuse(fail(event))
            else:
                self._answer(event)
        self._flush()
        if not decoder.partial:
            self._deadline = None
        elif moved or self._deadline is None:
            self._deadline = monotonic() + self._read_timeout
        elif monotonic() >= self._deadline:
            self._expire()

    def _answer(self, body: bytes | bytearray) -> None:
        message = parse(body)
        if isinstance(message, Request):
            self._call(message)
        elif isinstance(message, Failure):
            if message.code == PARSE_ERROR:
                self._decoder.reject()
            self._refuse(message)
        else:
            self._log.warn("a response that nobody asked for was dropped", id=message.id)

    def _call(self, request: Request) -> None:
        method = dispatch.find(self.registry, request)
        result: bytes | Failure
        if isinstance(method, Failure):
            result = method
        elif method in self._quick:
            result = dispatch.call(method, request)
        else:
            self._flush()
            with self._lifecycle.guard():
                result = dispatch.call(method, request)
        if isinstance(result, Failure):
            self._refuse(result, request.method)
            return
        if request.id is not None:
            self._send(encode_success(request.id, result))
        if self._log.level <= DEBUG:
            self._log.debug("served", request.method, request.id)

    def _refuse(self, failure: Failure, method: str | None = None) -> None:
        """Log a failure and, unless it was a notification's, send it."""
        log = self._log
        if failure.cause is not None:
            log.error(f"{failure.message}: {log.describe(failure.cause)}", method, failure.id)
        elif method is None:  # a broken frame or message, in our own words
            log.warn(failure.message, method, failure.id)
        else:  # the message may repeat what the client sent: the log does not
            title = TITLES.get(failure.code, f"refused with error {failure.code}")
            log.warn(title, method, failure.id)
        if failure.id is not None:
            self._send(encode_failure(failure))

    # Writing.

    def _send(self, body: bytes) -> None:
        frame = encode(body)
        self._replies.append(frame)
        self._waiting += len(frame)
        if self._waiting > FLUSH_AT:
            self._flush()

    def _flush(self) -> None:
        """Write all replies to what one read brought at once: one system call, not many."""
        if self._replies:
            data = b"".join(self._replies)
            self._replies.clear()
            self._waiting = 0
            self._stdio.write(data)
