"""What a request tells the client before its reply: progress, pieces, notifications, lines.

It may do so from any thread. `notify`, which belongs to no request, is sent from here, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from duet_rpc.jsonrpc.messages import Notification, encode
from duet_rpc.jsonrpc.values import RawJson
from duet_rpc.methods.context import Context
from duet_rpc.server.author import id_text
from duet_rpc.server.intake import id_of
from duet_rpc.server.pacing import Paced, Pacer

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.jsonrpc.messages import Message
    from duet_rpc.log import Log
    from duet_rpc.methods.asking import Caller
    from duet_rpc.server.cancellation import Cancellation
    from duet_rpc.server.intake import Call
    from duet_rpc.server.outbox import Outbox


class Reports:
    """Sends messages that are not replies."""

    def __init__(self, outbox: Outbox, cancellation: Cancellation, log: Log) -> None:
        self._outbox = outbox
        self._cancellation = cancellation
        self._log = log
        self._pacer = Pacer(cancellation.hold)
        self.paced: list[Paced] = []  # the reports of the request that has its turn

    def flush(self) -> None:
        """Send the reports that wait."""
        for each in self.paced:
            each.flush()

    def context(
        self,
        message: Call,
        send_progress: Callable[[dict[str, Any]], None] | None,
        caller: Caller | None = None,
    ) -> Context:
        """Return what a method can report and ask while it runs."""
        id, cancellation = id_text(message), self._cancellation
        turn = cancellation.turn

        def add_log_line(level: str, text: str) -> None:
            with cancellation.hold():
                getattr(self._log, level)(text, message.method, id)

        return Context(
            send_progress, add_log_line, lambda: turn.requested, cancellation.hold, caller
        )

    def pace(self, send: Callable[[list[str]], None], only_newest: bool = False) -> Paced:
        """Return a stream of reports of the request that has its turn."""
        paced = Paced(self._pacer, send, only_newest)
        self.paced.append(paced)
        return paced

    def notify(self, message: Call, method: str, params: str | None = None) -> None:
        """Send a notification from inside a method, unless its request is answered."""
        with self._cancellation.hold(), self._outbox.lock:
            if self._cancellation.is_running(id_of(message)):
                self.send_notification(method, params)

    def send_now(self, message: Message) -> None:
        """Send a message that is not a reply of the main thread's; from any thread."""
        with self._cancellation.hold():
            self._outbox.send_now(encode(message))

    def send_notification(self, method: str, params: str | None = None) -> None:
        """Send a notification at once, from whatever thread."""
        raw = None if params is None else RawJson(params, None)
        self._outbox.send_now(encode(Notification(method, raw)))
