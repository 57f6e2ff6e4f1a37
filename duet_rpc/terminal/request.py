"""One request that a person waits for, with its progress bar and Ctrl-C.

The first Ctrl-C cancels the request, and its reply is still awaited; the second kills the
daemon. During the wait a signal raises no exception but wakes the wait, so that no reply is
read by half.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from duet_rpc import __version__
from duet_rpc.jsonrpc.errors import REQUEST_CANCELLED, UNSUPPORTED, Error, RpcError
from duet_rpc.jsonrpc.jsontext import dumps
from duet_rpc.jsonrpc.messages import Failure, Notification, Request, Success
from duet_rpc.log import escape
from duet_rpc.methods.asking import Question
from duet_rpc.terminal.client import Client, DaemonError, result_of
from duet_rpc.terminal.output import is_terminal, print_error, print_stderr
from duet_rpc.terminal.progress import Bar
from duet_rpc.terminal.questions import ANSWERS, AtTerminal, can_ask
from duet_rpc.terminal.stream import STREAMED, Stream
from duet_rpc.workers.order import FAILED, PREPARING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from duet_rpc.terminal.client import Params


TEXT_MAX = 2000
"""Characters of a line from the daemon."""


WAITING = (PREPARING, FAILED, "gateway/stateChanged")
"""What tells of a worker that is not ready."""


class Cancelled(Exception):
    """The request was cancelled by Ctrl-C."""


class Abandoned(KeyboardInterrupt):
    """A second Ctrl-C came before the cancelled request was answered."""


class Interrupts:
    """Counts Ctrl-C instead of raising KeyboardInterrupt; each makes `wakeup` readable."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Interrupts:
        self.wakeup, self._writer = os.pipe()
        os.set_blocking(self.wakeup, False)
        os.set_blocking(self._writer, False)
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is not signal.SIG_IGN:  # as for a job in the background
            signal.signal(signal.SIGINT, self._count)
        self._wakeup_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        signal.signal(signal.SIGINT, self._before)
        os.close(self.wakeup)
        os.close(self._writer)

    def _count(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Let Ctrl-C raise KeyboardInterrupt in the block, and count it all the same."""
        if self._before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            yield
        except KeyboardInterrupt:
            self.count += 1
            raise
        finally:
            if self._before is not signal.SIG_IGN:
                signal.signal(signal.SIGINT, self._count)

    def reset(self) -> None:
        """Read what the signals wrote, so that `wakeup` is no longer readable."""
        with suppress(BlockingIOError):
            os.read(self.wakeup, 4096)


def run(client: Client, method: str, params: Params, color: bool = False) -> object:
    """Call a method and return its result; raise RpcError, Cancelled or Abandoned.

    What comes piece by piece is printed, and the result is STREAMED.
    """
    bar, stream = Bar(), Stream(color)
    client.said.clear()
    if params is None or isinstance(params, dict):
        # A `_meta` of the caller's own wins; progress then comes with its token.
        meta = _meta(client, bar)
        params = {**({"_meta": meta} if meta else {}), **(params or {})} or None
    with Interrupts() as interrupts:
        try:
            id = client.send(method, params)
            reply = _await(client, id, Listener(client, bar, stream), interrupts)
        finally:
            bar.erase()
            stream.finish()
    if isinstance(reply, Failure) and interrupts.count and reply.error.code == REQUEST_CANCELLED:
        raise Cancelled
    if isinstance(reply, Failure) and reply.error.code == UNSUPPORTED and not can_ask():
        hint = "to be asked, run this with stdin and stderr at a terminal"
        raise RpcError(UNSUPPORTED, f"{reply.error.message}; {hint}", reply.error.data)
    result = result_of(reply)
    return STREAMED if result is None and stream.used else result


def _meta(client: Client, bar: Bar) -> dict[str, object]:
    """Return what the daemon is to know of us."""
    meta: dict[str, object] = {"progressToken": "bar"} if bar.visible else {}
    if client.asks:
        can = [*ANSWERS, "say"] if can_ask() else ["say"]
        meta["client"] = {"name": "terminal", "version": __version__, "can": can}
        meta["partialResultToken"] = STREAM
    return meta


STREAM = "stream"


class Listener:
    """Shows what comes before the reply."""

    def __init__(self, client: Client, bar: Bar, stream: Stream) -> None:
        self._client = client
        self._bar = bar
        self._stream = stream

    def erase(self) -> None:
        """Make room for a line."""
        self._bar.erase()

    def show(self, message: Notification) -> None:
        """Show a notification."""
        params = message.params if isinstance(message.params, dict) else {}
        if message.method == "$/progress" and params.get("token") == STREAM:
            self._bar.erase()
            self._stream.show(params.get("value"))
        elif message.method == "$/progress":
            self._bar.show(params)
        elif message.method == "client/say":
            self._bar.erase()
            _say(self._client, params)
        elif message.method == "client/notify":
            self._bar.erase()
            text = escape(dumps(params.get("params")), TEXT_MAX)
            print_stderr(f"{escape(str(params.get('topic')), TEXT_MAX)}: {text}")
        elif message.method in WAITING:
            self._bar.erase()
            _tell_what_is_done(message)

    def answer(self, request: Request, interrupts: Interrupts) -> None:
        """Ask the person what the daemon wants to know; Ctrl-C leaves it without an answer."""
        kind = request.method.removeprefix("client/")
        if kind not in ANSWERS or not isinstance(request.params, dict) or not can_ask():
            self._client.refuse(request)
            return
        self._bar.erase()
        self._stream.finish()
        try:
            with interrupts.raised():
                answer = AtTerminal().answer(Question(kind, request.params))
        except KeyboardInterrupt:
            print_stderr("")
        except RpcError as error:
            self._client.refuse(request, Error(error.code, error.message))
        else:
            self._client.answer(request, answer)


def _await(
    client: Client, id: int, listener: Listener, interrupts: Interrupts
) -> Success | Failure:
    cancelled = False
    while True:
        message = client.receive(wakeup=interrupts.wakeup)
        if message is None:
            interrupts.reset()
        elif isinstance(message, Notification):
            listener.show(message)
        elif isinstance(message, Request):
            listener.answer(message, interrupts)
        elif message.id in (id, None):  # null where the request was unreadable
            return message
        if interrupts.count > 1:
            raise Abandoned
        if interrupts.count and not cancelled:
            cancelled = True
            client.cancel(id)
            if is_terminal(sys.stderr):
                listener.erase()
                print_stderr("cancelling; press Ctrl-C again to stop at once")


def _tell_what_is_done(note: Notification) -> None:
    """Print what a worker does before it is ready; raise DaemonError where it never will be."""
    params = note.params if isinstance(note.params, dict) else {}
    text = params.get("message") or params.get("reason")
    if note.method == FAILED:
        raise DaemonError(str(text))
    if isinstance(text, str) and text and params.get("state", "starting") == "starting":
        print_stderr(escape(text, TEXT_MAX))


def _say(client: Client, params: object) -> None:
    """Print what the daemon has to tell a person."""
    params = params if isinstance(params, dict) else {}
    text = params.get("text")
    if isinstance(text, str):
        client.said.append(text)
        shown = "\n".join(escape(line, TEXT_MAX) for line in text.splitlines())
        if params.get("level") in ("warn", "error"):
            print_error(shown)
        else:
            print_stderr(shown)
        traceback = params.get("traceback")
        if client.tracebacks and isinstance(traceback, str):
            print_stderr("\n".join(escape(line, TEXT_MAX) for line in traceback.splitlines()))


def exit_on_signals() -> None:
    """Raise SystemExit on SIGTERM and SIGHUP, so that the daemon is stopped too."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        # An ignored signal stays ignored: `nohup`.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, leave)
