"""One request that a person waits for: its progress, and Ctrl-C.

The first Ctrl-C cancels the request, and its reply is still waited for; the second gives
up the daemon. While this waits a signal sets no exception loose: it wakes the wait, so
that no reply is torn in half.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

from duet_rpc.jsonrpc.errors import REQUEST_CANCELLED
from duet_rpc.terminal.client import Client, Reply
from duet_rpc.terminal.pretty import is_terminal, say
from duet_rpc.terminal.progress import Bar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

    from duet_rpc.terminal.client import Params


class Cancelled(Exception):
    """The request was given up because the person asked for it."""


class Abandoned(KeyboardInterrupt):
    """The person did not want to wait for that either."""


class Interrupts:
    """Counts Ctrl-C, and has a descriptor that each of them makes readable."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Interrupts:
        self.wakeup, self._awake = os.pipe()
        os.set_blocking(self.wakeup, False)
        os.set_blocking(self._awake, False)
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is not signal.SIG_IGN:  # a job in the background is not meant
            signal.signal(signal.SIGINT, self._note)
        self._wakeup_before = signal.set_wakeup_fd(self._awake, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        signal.signal(signal.SIGINT, self._before)
        os.close(self.wakeup)
        os.close(self._awake)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1

    def awake(self) -> None:
        """Make the descriptor quiet again."""
        with suppress(BlockingIOError):
            os.read(self.wakeup, 4096)


def run(client: Client, method: str, params: Params) -> object:
    """Call a method and return its result; raises RpcError, Cancelled or Abandoned."""
    bar = Bar()
    if bar.visible and (params is None or isinstance(params, dict)):
        # The caller's own `_meta` wins; its token is then the one we hear of.
        params = {"_meta": {"progressToken": "bar"}, **(params or {})}
    with Interrupts() as interrupts:
        try:
            reply = _await(client, client.send(method, params), bar, interrupts)
        finally:
            bar.erase()
    if reply.error is None:
        return reply.result
    if interrupts.count and reply.error.code == REQUEST_CANCELLED:
        raise Cancelled
    raise reply.error


def _await(client: Client, id: int, bar: Bar, interrupts: Interrupts) -> Reply:
    cancelled = False
    while True:
        message = client.receive(wakeup=interrupts.wakeup)
        if message is None:
            interrupts.awake()
        elif not isinstance(message, Reply):
            if message.method == "$/progress":
                bar.show(message.params)
        elif message.id in (id, None):  # of a request that it can't read it has no id
            return message
        if interrupts.count > 1:
            raise Abandoned
        if interrupts.count and not cancelled:
            cancelled = True
            client.cancel(id)
            if is_terminal(sys.stderr):
                bar.erase()
                say("cancelling; Ctrl-C once more ends it at once")


def leave_on_signals() -> None:
    """Let a signal that ends us be an exception, so that the daemon is ended too."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        # Whoever started us with `nohup` means it.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, leave)
