"""One request that a person waits for, with its progress bar and Ctrl-C.

The first Ctrl-C cancels the request, and its reply is still awaited; the second kills the
daemon. During the wait a signal raises no exception but wakes the wait, so that no reply is
read by half.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.errors import REQUEST_CANCELLED
from duet_rpc.jsonrpc.messages import Failure, Notification, Success
from duet_rpc.terminal.client import Client, result_of
from duet_rpc.terminal.output import is_terminal, print_stderr
from duet_rpc.terminal.progress import Bar

if TYPE_CHECKING:
    from types import FrameType

    from duet_rpc.terminal.client import Params


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

    def reset(self) -> None:
        """Read what the signals wrote, so that `wakeup` is no longer readable."""
        with suppress(BlockingIOError):
            os.read(self.wakeup, 4096)


def run(client: Client, method: str, params: Params) -> object:
    """Call a method and return its result; raise RpcError, Cancelled or Abandoned."""
    bar = Bar()
    if bar.visible and (params is None or isinstance(params, dict)):
        # A `_meta` of the caller's own wins; progress then comes with its token.
        params = {"_meta": {"progressToken": "bar"}, **(params or {})}
    with Interrupts() as interrupts:
        try:
            reply = _await(client, client.send(method, params), bar, interrupts)
        finally:
            bar.erase()
    if isinstance(reply, Failure) and interrupts.count and reply.error.code == REQUEST_CANCELLED:
        raise Cancelled
    return result_of(reply)


def _await(client: Client, id: int, bar: Bar, interrupts: Interrupts) -> Success | Failure:
    cancelled = False
    while True:
        message = client.receive(wakeup=interrupts.wakeup)
        if message is None:
            interrupts.reset()
        elif isinstance(message, Notification):
            if message.method == "$/progress":
                bar.show(message.params)
        elif message.id in (id, None):  # null where the request was unreadable
            return message
        if interrupts.count > 1:
            raise Abandoned
        if interrupts.count and not cancelled:
            cancelled = True
            client.cancel(id)
            if is_terminal(sys.stderr):
                bar.erase()
                print_stderr("cancelling; press Ctrl-C again to stop at once")


def exit_on_signals() -> None:
    """Raise SystemExit on SIGTERM and SIGHUP, so that the daemon is stopped too."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        # An ignored signal stays ignored: `nohup`.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, leave)
