"""One worker behind the router: a daemon of ours, with some of the user's methods.

It is a backend that we know well. It serves one request at a time, so the others wait here and
not in its pipe: a crash costs the one that runs, the rest wait for the next process. It makes
its environment before it is ready, and reports what it is doing. And it answers a cancel: one that
neither answers nor reports that the method was interrupted is stuck in C code, and is killed.
"""

from __future__ import annotations

import os
import re
from time import monotonic
from typing import TYPE_CHECKING

from duet_rpc.gateway.backend import Backend
from duet_rpc.gateway.dialects import MCP
from duet_rpc.gateway.state import State
from duet_rpc.gateway.wire import params_of, value_at
from duet_rpc.jsonrpc.errors import REQUEST_FAILED, Error
from duet_rpc.jsonrpc.limits import CANCEL_GRACE
from duet_rpc.jsonrpc.messages import Failure, Notification, Request
from duet_rpc.workers.order import CANCELLED, FAILED, FINISHED, PREPARING, READY
from duet_rpc.workers.start import find_start

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.config.processes import WorkerSettings
    from duet_rpc.gateway.backend import Owner
    from duet_rpc.gateway.loop import Timer
    from duet_rpc.gateway.pending import Call
    from duet_rpc.gateway.runtime import Runtime
    from duet_rpc.jsonrpc.messages import Id, Message
    from duet_rpc.mcp.versions import Version
    from duet_rpc.workers.start import Start

LOG_LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\S+ (DEBUG|INFO|WARN|ERROR) +"
    r'(method=(?:"(?:[^"\\]|\\.)*"|\S+) )?(?:id=(\d+) )?(.*)'
)
"""A line as `log` writes it: severity, method, the id that the request has here, text."""


class Running:
    """The request that a worker is busy with."""

    __slots__ = ("began", "id", "is_cancelled", "kill_timer", "method")

    def __init__(self, id: Id, method: str) -> None:
        self.id = id
        self.method = method
        self.began = monotonic()
        self.is_cancelled = False
        self.kill_timer: Timer | None = None  # since it was cancelled

    def keep_alive(self) -> None:
        """Do not kill the worker: it has reacted to the cancel."""
        if self.kill_timer is not None:
            self.kill_timer.cancel()
            self.kill_timer = None


class Worker(Backend):
    """A process for some of the user's methods."""

    settings: WorkerSettings

    def __init__(
        self,
        settings: WorkerSettings,
        owner: Owner,
        runtime: Runtime,
        show_message: Callable[[str, str], None],
    ) -> None:
        super().__init__(settings, owner, runtime)
        self._show_message = show_message  # to the user: the level, the text
        self._loop = runtime.loop
        self.running: Running | None = None
        self.python = ""  # that runs it, once it is ready
        self._restart_wanted = False
        self._failure: Error | None = None  # why it could not make its environment

    @property
    def queued(self) -> int:
        """How many requests wait for the one that runs."""
        return len(self._backlog)

    @property
    def is_idle(self) -> bool:
        """True where a request would be served at once."""
        return self.state is State.READY and self.running is None

    # One request at a time.

    def _adapt(self, message: Request | Notification) -> Request | Notification:
        """Return the message unchanged: a worker understands both eras and our own metadata."""
        return message

    def speaks_stateless(self, version: Version) -> bool:
        """Return whether a request of a client's version goes to it without translation."""
        return version.stateless

    def can_take(self, message: Request | Notification) -> bool:
        """Return whether a message is written at once, and does not have to wait."""
        if not super().can_take(message):
            return False
        if not isinstance(message, Request):
            return not len(self._backlog)  # in its turn
        if self.running is not None:
            return value_at(params_of(message), "_meta", "during") in self.pending.questions
        self.running = Running(message.id, message.method)
        return True

    def _send_next(self) -> None:
        """Send what waits, up to the next request."""
        while self.is_idle:
            waiting = self._backlog.pop_first()
            if waiting is None:
                return
            id, message = waiting
            call = self.pending.get(id)
            if call is not None:
                self.running = Running(id, call.method)
            self._write(message)

    def _become_ready(self) -> None:
        self.process.connected()
        self._send_next()

    def _finish(self, id: Id) -> None:
        if self.running is not None and self.running.id == id:
            self._end_running()
            if self._restart_wanted:
                self.restart_when_idle()
            else:
                self._send_next()

    def restart_when_idle(self) -> None:
        """Start another process, between two calls, if there is one."""
        self._restart_wanted = self.running is not None
        if not self._restart_wanted and self.process.child is not None:
            self.process.restart()

    def tool_name(self, tool: str) -> str:
        """Return the name that one of its tools has for the client."""
        return tool

    def client_name(self, method: str) -> str:
        """Return the name that one of its methods, or of its messages, has for the client."""
        return method

    def handle_message(self, message: Message) -> None:
        """Handle a reply or a notification about the worker; hand on what its methods send."""
        if isinstance(message, Notification) and message.method.startswith("worker/"):
            self._handle_note(message)
            return
        super().handle_message(message)
        if not isinstance(message, (Request, Notification)):
            self._finish(message.id)

    def drop_queue(self, error: Error) -> None:
        """Fail all requests but the one that is running."""
        self._backlog.pop_all()
        running = None if self.running is None else self.running.id
        for call in self.pending.pop_where(lambda id: id != running):
            call.receive(Failure(None, error))

    def finish_input(self) -> None:
        """Send all that waits, and then the end of input: it answers what it can, and exits."""
        child = self.process.child
        if child is None or self.state is not State.READY or self.process.exit_expected:
            return
        for message in self._backlog.pop_all():
            self._write(message)
        child.input.flush()
        if not child.input.size:  # else there is no room now
            self.process.exit_expected = True
            child.close_input()

    # Its process.

    def find_start(self) -> Start:
        """Return how its process is started: with its environment's Python, if there is one."""
        return find_start(self.settings.command, {**os.environ, **self.settings.env})

    def handle_started(self) -> None:
        """Wait for its notification that it is ready: it may have to make its environment."""
        self.process.prepare()

    def _handle_note(self, note: Notification) -> None:
        self.pending.note_activity()
        text = str(value_at(params_of(note), "message") or "")
        if note.method == READY and self.state is State.STARTING:
            self.python = text
            if self.dialect is MCP:
                self._begin_handshake()
            else:
                self._become_ready()
        elif note.method == PREPARING:
            self.process.reason = text
            self.log.info(text)
            self._owner.handle_preparing(self, text)
        elif note.method == FAILED:
            self._fail_to_start(text)
        elif note.method == CANCELLED and self.running is not None:
            self.running.keep_alive()  # what is left of the method is its clean-up
        elif note.method == FINISHED and self.running is not None:
            self._finish(self.running.id)

    def _fail_to_start(self, text: str) -> None:
        """Fail what waits: to try again now would take as long and end in the same way."""
        self.log.error(text.partition("\n")[0])
        data = {"backend": self.name, "reason": "environment"}
        self._failure = Error.of(REQUEST_FAILED, text, data)
        self.process.exit_expected = True
        self._fail_all(self._failure)

    def _fail_all(self, error: Error) -> None:
        self._backlog.pop_all()
        for call in self.pending.pop_all():
            call.receive(Failure(None, error))

    # Cancel.

    def _send_cancel(self, id: int) -> None:
        super()._send_cancel(id)
        running = self.running
        if running is not None and running.id == id and not running.is_cancelled:
            running.is_cancelled = True
            running.kill_timer = self._loop.call_later(CANCEL_GRACE, lambda: self._kill(running))

    def _end_running(self) -> None:
        if self.running is not None:
            self.running.keep_alive()
            self.running = None

    def _kill(self, running: Running) -> None:
        what = f"{running.method} did not react to its cancellation within {CANCEL_GRACE:g} s"
        self._show_message("warn", f"{what}; {self.title} is being killed and started again")
        self.process.fail(what)

    def handle_gone(self, text: str, data: dict[str, object]) -> None:
        """Fail the request that was running; the others wait where a new process comes soon."""
        self._end_running()
        failure, self._failure = self._failure, None
        if failure is not None:  # it exits because of that, and nobody was told since
            self._fail_all(failure)
        super().handle_gone(text, data)

    # What people are told.

    def explain_timeout(self, id: int, call: Call, seconds: str) -> str:
        """Return what a caller is told that has waited for too long."""
        text = f"{call.method}: no answer within {seconds}"
        running = self.running
        if self.state is State.STARTING:
            text += f"; {self.title} is starting"
            return f"{text}: {self.process.reason}" if self.process.reason else text
        if running is not None and running.id != id:
            took = monotonic() - running.began
            text += f"; {running.method} has been running for {took:.0f} s in the same worker"
        return text

    def handle_stderr(self, line: str) -> None:
        """Log a line of its stderr; one of its log with its severity, and the client's id."""
        self.log.keep(line)
        found = LOG_LINE.fullmatch(line)
        if found is None:  # what a method has written itself, or a line of a traceback
            self.log.output(line, "INFO")
            return
        severity, method, id, text = found.groups(default="")
        original = self._owner.original_id(int(id)) if id else None
        self.log.output(f"{method}{f'id={original} ' if original else ''}{text}", severity)
