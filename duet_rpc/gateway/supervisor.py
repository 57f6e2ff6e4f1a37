"""Starts, restarts and stops the process of a backend.

A backend outlives its processes: one that exits unexpectedly is started again after a delay
that grows, until it is given up; one that ran for long enough begins with the first delay.
"""

from __future__ import annotations

import errno
import signal
from time import monotonic
from typing import TYPE_CHECKING

from duet_rpc.gateway.child import Child
from duet_rpc.gateway.state import Event, State, StateMachine
from duet_rpc.jsonrpc.framing import FRAMINGS

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from duet_rpc.config.processes import ProcessSettings
    from duet_rpc.gateway.backend_log import BackendLog
    from duet_rpc.gateway.child import MessageHandler
    from duet_rpc.gateway.loop import Timer
    from duet_rpc.gateway.runtime import Runtime, Times
    from duet_rpc.workers.start import Start

    class Supervised(MessageHandler, Protocol):
        """Who is told what happens to the process."""

        log: BackendLog

        def find_start(self) -> Start:
            """Return how the process is started."""

        def handle_started(self) -> None:
            """Begin the handshake, or call `connected`."""

        def handle_stopping(self) -> None:
            """Ask the process to exit; it is killed where it does not."""

        def handle_gone(self, text: str, data: dict[str, object]) -> None:
            """Fail all pending requests; the data says why."""

        def handle_state(self) -> None:
            """Handle a new state."""


PIPE_CLOSED_GRACE = 0.5  # seconds in which a process that closes a pipe should exit

# Trying again helps with none of these.
PERMANENT_ERRORS = (
    errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR, errno.EPERM, errno.E2BIG,
)  # fmt: skip


class RestartPolicy:
    """When a backend is started again."""

    __slots__ = ("_crashes", "_started", "_times", "count")

    def __init__(self, times: Times) -> None:
        self._times = times
        self._crashes = 0  # in a row
        self._started: float | None = None
        self.count = 0  # restarts so far

    def started(self) -> None:
        """Note that a process has been started."""
        self._started = monotonic()

    @property
    def uptime(self) -> float:
        """Seconds since the start of the process."""
        return 0.0 if self._started is None else monotonic() - self._started

    @property
    def is_first(self) -> bool:
        """True while it is started again after the first of its crashes."""
        return self._crashes == 1

    def next_delay(self) -> float | None:
        """Return the seconds until the next start after a crash; None: give up."""
        if self.uptime >= self._times.stable:
            self._crashes = 0
        self._started = None  # a start that fails has no uptime
        if self._crashes == len(self._times.restart):
            return None
        self._crashes += 1
        return self._times.restart[self._crashes - 1]

    def reset(self) -> None:
        """Forget the crashes."""
        self._crashes = 0


class Supervisor:
    """The process of one backend, and the backend's state."""

    def __init__(self, settings: ProcessSettings, runtime: Runtime, owner: Supervised) -> None:
        self._settings = settings
        self._runtime = runtime
        self._owner = owner
        self._machine = StateMachine()
        self._timer: Timer | None = None  # of restart, handshake or a closed pipe
        self._after_stop: Callable[[], None] | None = None
        self.child: Child | None = None
        self.restarts = RestartPolicy(runtime.times)
        self.reason = ""  # why it is not ready, for people
        self.exit_expected = False  # a client has asked its language server to exit

    @property
    def state(self) -> State:
        """The state of the backend."""
        return self._machine.state

    @property
    def pid(self) -> int | None:
        """The process id, where there is a process."""
        return None if self.child is None else self.child.pid

    @property
    def restarts_soon(self) -> bool:
        """True while a process is gone, or going, and the next one is worth waiting for."""
        if self.state is State.STOPPING:
            return self._is_restarting
        return self.state is State.BACKOFF and self.restarts.is_first

    @property
    def _is_restarting(self) -> bool:
        """True while it is stopped to be started again."""
        return self._after_stop == self.start_now

    def _transition(self, event: Event) -> None:
        self._machine.handle(event)
        self._owner.handle_state()

    # Starting.

    def start(self) -> None:
        """Start a process, when it is this backend's turn."""
        self._runtime.starts.add(self.start_now)

    def start_now(self) -> None:
        """Start a process."""
        self._cancel_timer()
        start = self._owner.find_start()
        try:
            self.child = Child(
                start,
                self._settings.cwd,
                FRAMINGS[self._settings.framing],
                self._runtime,
                self._owner,
                self._handle_pipe_closed,
            )
        except (OSError, ValueError) as error:
            self._handle_failed_start(start.command[0], error)
            return
        self.restarts.started()
        self.reason = ""
        self.exit_expected = False
        self._owner.log.started()
        self._owner.log.info(f"started, pid {self.child.pid}")
        self._owner.handle_started()

    def limit_handshake(self) -> None:
        """Limit the time of the handshake that has begun."""
        seconds = self._runtime.times.start
        self._set_timer(
            seconds, lambda: self.fail(f"no reply to the handshake within {seconds:g} s")
        )

    def prepare(self) -> None:
        """Note that the process has something to do before it takes requests."""
        self._transition(Event.SPAWNED)

    def connected(self) -> None:
        """Note that the process takes requests."""
        self._cancel_timer()
        self._transition(Event.CONNECTED)

    def _handle_failed_start(self, program: str, error: OSError | ValueError) -> None:
        permanent = isinstance(error, ValueError) or error.errno in PERMANENT_ERRORS
        if isinstance(error, ValueError):
            self.reason = f"can't be started: {error}"
        elif error.filename is not None and error.filename == self._settings.cwd:
            self.reason = f"working directory can't be entered: {error.strerror}"
        else:
            self.reason = f"{program} can't be started: {error.strerror}"
            if error.errno == errno.ENOENT:
                self.reason += "; is it installed, and on the PATH?"
        self._owner.log.error(self.reason)
        if permanent:
            self._owner.handle_gone(self.reason, {"reason": "died"})
            self._transition(Event.GIVEN_UP)
        else:
            self._handle_crash({})

    # Exits.

    def check(self) -> None:
        """Find out whether the process has exited."""
        child = self.child
        code = None if child is None or child.is_draining else child.poll()
        if child is None or code is None:
            return
        if self.state is not State.STOPPING:
            child.kill_group()  # what it left behind
        child.drain(lambda: self._handle_exit(child, code))

    def _handle_pipe_closed(self, pipe: str) -> None:
        if self.state is not State.STOPPING:
            self._set_timer(PIPE_CLOSED_GRACE, lambda: self.fail(f"closed its {pipe}"))

    def fail(self, reason: str) -> None:
        """Kill a process that is of no more use; what follows is as if it had crashed."""
        self.reason = reason
        if self.child is not None:
            self.child.signal(signal.SIGKILL)

    def _handle_exit(self, child: Child, code: int) -> None:
        child.close()
        self.child = None
        self._cancel_timer()
        if self.state is State.STOPPING:
            child.end_group(self._handle_stopped)
            return
        how: dict[str, object] = {"exitCode": code}
        text = f"ended with exit code {code}"
        if code < 0:
            name = _signal_name(-code)
            how, text = {"signal": name}, f"was ended by {name}"
        self.reason = f"{self.reason} and {text}" if self.reason else text
        if self.exit_expected:  # whatever the code: without a shutdown before, it has to be 1
            self._owner.log.info(f"{text}, as it was asked to")
            self._owner.handle_gone(self.reason, {"reason": "died", **how})
            self._transition(Event.STOPPED)
        else:
            self._owner.log.warn(self.reason)
            self._handle_crash(how)

    def _handle_crash(self, how: dict[str, object]) -> None:
        delay = self.restarts.next_delay()
        if delay is None:
            self._owner.log.error("has failed; `gateway/restart` starts it again")
            self._machine.handle(Event.GIVEN_UP)
        else:
            self._set_timer(delay, self._restart)
            self._machine.handle(Event.CRASHED)
        # In the new state: what waits for the next process depends on it.
        stderr = self._owner.log.since_start()
        self._owner.handle_gone(self.reason, {"reason": "died", **how, "stderr": stderr})
        self._owner.handle_state()

    def _restart(self) -> None:
        self.restarts.count += 1
        self.start()

    # Stopping.

    def restart(self) -> None:
        """End the process and start another; what was not sent to it waits for that."""
        self.stop(self.start_now)

    def stop(self, then: Callable[[], None] | None = None) -> None:
        """End the process: its input first, then SIGTERM, then SIGKILL; then call a function."""
        self._after_stop = then
        self.restarts.reset()
        if self.state is State.STOPPING:
            return
        self._cancel_timer()
        self._runtime.starts.remove(self.start_now)
        if self.child is None:
            self.reason = ""
            if not self._is_restarting:  # else what waits goes on waiting
                self._owner.handle_gone("was stopped", {"reason": "stopped"})
            self._finish_stop()
            return
        self.reason = "was stopped"
        self._transition(Event.STOP_REQUESTED)
        self._owner.handle_gone(self.reason, {"reason": "stopped"})
        if self.child is not None:
            self.child.schedule_kill()
            self._owner.handle_stopping()

    def _handle_stopped(self) -> None:
        self._owner.handle_gone(self.reason, {"reason": "stopped"})
        self._finish_stop()

    def _finish_stop(self) -> None:
        self._transition(Event.STOPPED)
        then, self._after_stop = self._after_stop, None
        if then is not None:
            then()

    # The timer.

    def _set_timer(self, seconds: float, function: Callable[[], object]) -> None:
        self._cancel_timer()
        self._timer = self._runtime.loop.call_later(seconds, function)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
