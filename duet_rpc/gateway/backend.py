"""One server behind the gateway: its state, and what it owes.

A backend lives through several processes, each a `Child`. What it says is handed to its
owner, the gateway; what the owner has to say to it waits here until the handshake is done.
"""

from __future__ import annotations

import errno
import signal
from collections import deque
from time import monotonic

from duet_rpc.gateway.child import Child
from duet_rpc.gateway.dialects import DIALECTS, LSP, MCP, MCP_VERSION, initialize_params
from duet_rpc.gateway.loop import Alarm
from duet_rpc.jsonrpc import limits
from duet_rpc.jsonrpc.envelope import Envelope, encode_request, one_line
from duet_rpc.jsonrpc.errors import INTERNAL_ERROR, REQUEST_FAILED, TITLES
from duet_rpc.jsonrpc.framing import FRAMINGS, LINES
from duet_rpc.jsonrpc.ids import read_own
from duet_rpc.jsonrpc.messages import NULL, Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol, Union

    from duet_rpc.config.settings import BackendSettings
    from duet_rpc.gateway.loop import Loop, Timer
    from duet_rpc.gateway.watchdog import Watchdog
    from duet_rpc.log import Log

    Outcome = Union[Envelope, Failure]

    class Owner(Protocol):
        """What a backend needs of the gateway."""

        client_full: bool

        def fresh_id(self) -> int:
            """Return an id for a request of the gateway's own."""

        def take(self, backend: Backend, message: Envelope) -> None:
            """Take a request or a notification of a backend."""

        def fail(self, backend: Backend, message: Envelope, error: Exception) -> None:
            """Take note of a message that could not be dealt with."""

        def take_broken(self, backend: Backend, failure: Failure, body: bytes | bytearray) -> None:
            """Take what a backend said that is no message."""

        def settle(self, backend: Backend, id: int, outcome: Outcome) -> None:
            """Take the end of a request that came from the client."""

        def changed(self, backend: Backend) -> None:
            """Take note of a new state."""


STOPPED, STARTING, READY, STOPPING, BACKOFF, FAILED = (
    "stopped", "starting", "ready", "stopping", "backoff", "failed",
)  # fmt: skip

BROKEN_PIPE_GRACE = 0.5

# Trying again helps with none of these.
HOPELESS = (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR, errno.EPERM, errno.E2BIG)


class Times:
    """The numbers that tests shorten."""

    def __init__(self) -> None:
        self.restart: tuple[float, ...] = limits.RESTART_DELAYS
        self.stable = limits.STABLE
        self.start = limits.START_TIMEOUT
        self.list = limits.LIST_TIMEOUT
        self.read = limits.READ_TIMEOUT


class Call:
    """A request that a backend owes the answer to."""

    __slots__ = ("deadline", "method", "receive", "tokens")

    def __init__(
        self,
        method: str,
        receive: Callable[[Outcome], None] | None = None,
        tokens: tuple[str, ...] = (),
    ) -> None:
        self.method = method
        self.deadline = 0.0
        self.receive = receive  # None for a request of the client's
        self.tokens = tokens  # as the backend knows them


class Backend:
    """A server that is started, spoken to, started again and ended."""

    def __init__(
        self,
        settings: BackendSettings,
        owner: Owner,
        loop: Loop,
        log: Log,
        watchdog: Watchdog,
        times: Times,
    ) -> None:
        self.name = settings.name
        self.settings = settings
        self.dialect = DIALECTS[settings.dialect]
        self._framing = FRAMINGS[settings.framing]
        self._owner = owner
        self._loop = loop
        self._log = log
        self._watchdog = watchdog
        self._times = times
        self.state = STOPPED
        self.reason = ""  # why it is not ready, for people
        self.pid: int | None = None
        self.restarts = 0
        self.started = 0.0
        self.version = MCP_VERSION  # that an MCP server is offered
        self.handshake: Envelope | None = None  # the answer to an MCP server's initialize
        self.pending: dict[int, Call] = {}  # by age
        self.tokens: dict[str, tuple[str, int]] = {}  # its token: the client's, the request
        self.tail: deque[str] = deque(maxlen=limits.STDERR_LINES)
        self._said = 0  # of these lines, in this life
        self._deaths = 0  # in a row
        self._waiting: dict[int, bytes] = {}  # frames that wait for the handshake, by id
        self._waiting_size = 0
        self._timer: Timer | None = None  # of restart, handshake or a closed pipe
        self._deadline = Alarm(loop, self._expire)  # of the oldest request
        self._then: Callable[[], None] | None = None  # once it has stopped
        self._child: Child | None = None
        self._exit_sent = False
        self._second = self._lines = 0

    # Starting.

    def start(self) -> None:
        """Start its process, and the handshake where its dialect has one."""
        self._cancel_timer()
        try:
            child = Child(
                self.settings,
                self._framing,
                self._owner,
                self,
                self._loop,
                self._watchdog,
                self._times.read,
            )
        except (OSError, ValueError) as error:
            self._refuse_start(error)
            return
        self._child = child
        self.pid = child.pid
        self.started = monotonic()
        self._said = 0
        self.reason = ""
        self._exit_sent = False
        self._log.info(f"backend {self.name}: started, pid {child.pid}")
        if self.dialect is not MCP:
            self._become_ready()
            return
        self._set(STARTING)
        self._timer = self._loop.after(self._times.start, self._handshake_late)
        params = initialize_params(self.version, self.settings.capabilities)
        self._ask("initialize", params, self._handshake_done)

    def _refuse_start(self, error: OSError | ValueError) -> None:
        program = self.settings.command[0]
        if isinstance(error, ValueError):
            self.reason = f"can't be started: {error}"
        elif error.filename is not None and error.filename == self.settings.cwd:
            self.reason = f"its working directory is not there: {error.strerror}"
        else:
            self.reason = f"{program} can't be started: {error.strerror}"
            if error.errno == errno.ENOENT:
                self.reason += "; is it installed, and on the PATH?"
        self._log.error(f"backend {self.name}: {self.reason}")
        if isinstance(error, ValueError) or error.errno in HOPELESS:
            self._give_up_pending({})
            self._set(FAILED)
        else:
            self._died({})

    def _handshake_late(self) -> None:
        self._break(f"no answer to its handshake within {self._times.start:g} s")

    def _handshake_done(self, outcome: Outcome) -> None:
        if isinstance(outcome, Failure):
            if self._child is not None and self.state == STARTING:
                self._break("its answer to the handshake can't be read")
            return  # else it died or was stopped, which has been said
        result = outcome.value("result")
        if not isinstance(result, dict) or not isinstance(result.get("protocolVersion"), str):
            error = outcome.value("error")
            said = error.get("message") if isinstance(error, dict) else None
            self._break("it refused the handshake" + (f' with "{said}"' if said else ""))
            return
        self._cancel_timer()
        self.handshake = outcome
        self._write(encode_request("notifications/initialized", None))
        self._become_ready()

    def _become_ready(self) -> None:
        for frame in self._waiting.values():
            self._put(frame)
        self._forget_waiting()
        self._set(READY)

    def _set(self, state: str) -> None:
        self.state = state
        self._owner.changed(self)

    # Being spoken to.

    def refuse(self) -> str | None:
        """Say why it takes no request now; None where it takes one."""
        if self.state in (BACKOFF, FAILED, STOPPING):
            return f"backend {self.name} is not available: {self.reason or self.state}"
        queued = self._waiting_size + (0 if self._child is None else self._child.outlet.size)
        if queued > limits.QUEUE_MAX:
            return f"backend {self.name} does not read: its queue is full"
        if len(self.pending) >= limits.PENDING_MAX:
            return f"backend {self.name} does not answer: its queue is full"
        return None

    def request(self, id: int, method: str, params: str | None, call: Call) -> None:
        """Send a request, or keep it until it can be sent."""
        self._owe(id, call)
        self._post(id, encode_request(method, params, id))

    def notify(self, method: str, params: str | None) -> bool:
        """Send a notification; False where there is no place for it."""
        if self.refuse() is not None:
            return False
        if self.dialect is LSP and method == "exit":
            if self._child is None:
                return True
            self._exit_sent = True
        self._post(None, encode_request(method, params))
        return True

    def answer(self, text: str) -> None:
        """Send the answer to a request of its own."""
        if self._child is not None and self.state != STOPPED:
            self._child.answer(self._to_frame(text))

    def _ask(self, method: str, params: str | None, receive: Callable[[Outcome], None]) -> None:
        """Send a request of our own past those that wait."""
        id = self._owner.fresh_id()
        self._owe(id, Call(method, receive))
        self._write(encode_request(method, params, id))

    def _post(self, id: int | None, text: str) -> None:
        frame = self._to_frame(text)
        if self.state == READY:
            self._put(frame)
            return
        self._waiting[id or self._owner.fresh_id()] = frame
        self._waiting_size += len(frame)
        if self.state == STOPPED:
            self.start()

    def _write(self, text: str) -> None:
        self._put(self._to_frame(text))

    def _put(self, frame: bytes) -> None:
        if self._child is not None:
            self._child.outlet.put(frame)

    def _to_frame(self, text: str) -> bytes:
        return self._framing.encode((one_line(text) if self._framing is LINES else text).encode())

    def _forget_waiting(self) -> None:
        self._waiting = {}
        self._waiting_size = 0

    # What it owes.

    def _owe(self, id: int, call: Call) -> None:
        call.deadline = monotonic() + self.settings.timeout
        self.pending[id] = call
        if self._deadline.when is None:
            self._deadline.set(call.deadline)

    def drop(self, id: int) -> Call:
        """Forget a request, and its tokens with it."""
        call = self.pending.pop(id)
        for token in call.tokens:
            del self.tokens[token]
        return call

    def give_up(self, id: int) -> None:
        """Tell it that nobody waits for an answer any more. The request is forgotten already."""
        frame = self._waiting.pop(id, None)
        if frame is not None:
            self._waiting_size -= len(frame)
        elif self.state == READY:  # before that nothing but the handshake was sent
            params = f'{{"{self.dialect.cancel_key}":{id}}}'
            self._write(encode_request(self.dialect.cancel, params))

    def prolong(self, id: int) -> None:
        """Count a request's time anew: there was a sign of life."""
        call = self.pending.pop(id)
        call.deadline = monotonic() + self.settings.timeout
        self.pending[id] = call  # the youngest now

    def _expire(self) -> None:
        now = monotonic()
        while self.pending:
            id, call = next(iter(self.pending.items()))
            if call.deadline > now:
                self._deadline.set(call.deadline)
                return
            if self.state == STARTING and call.method == "initialize":
                self.prolong(id)  # the handshake has a time of its own
                continue
            self.drop(id)
            self.give_up(id)
            seconds = f"{self.settings.timeout:g} s"
            self._log.warn(f"backend {self.name}: no answer within {seconds}", call.method)
            self._end(id, call, f"backend {self.name} did not answer within {seconds}", "timeout")

    def _end(
        self, id: int, call: Call, text: str, reason: str, more: dict[str, object] | None = None
    ) -> None:
        data = {"backend": self.name, "reason": reason, **(more or {})}
        failure = Failure(NULL, REQUEST_FAILED, f"{TITLES[REQUEST_FAILED]}: {text}", data)
        self._fail(id, call, failure)

    def _fail(self, id: int, call: Call, failure: Failure) -> None:
        if call.receive is not None:
            call.receive(failure)
        else:
            self._owner.settle(self, id, failure)

    def end_broken(self, id: int) -> None:
        """End a request whose answer can't be read."""
        self._fail(id, self.drop(id), self.bad_reply("can't be read"))

    def bad_reply(self, what: str) -> Failure:
        """Say that an answer is of no use."""
        text = f"{TITLES[INTERNAL_ERROR]}: backend {self.name} gave an answer that {what}"
        return Failure(NULL, INTERNAL_ERROR, text, {"backend": self.name, "reason": "bad-reply"})

    def _give_up_pending(self, more: dict[str, object], reason: str = "died") -> None:
        self._forget_waiting()
        self._deadline.clear()
        pending, self.pending = self.pending, {}
        self.tokens.clear()
        for id, call in pending.items():
            self._end(id, call, f"backend {self.name}: {self.reason}", reason, more)

    # What it says.

    def update_reading(self) -> None:
        """Read it while somebody has room for what it says."""
        if self._child is not None:
            self._child.update_reading()

    def catch_up(self) -> None:
        """Go on where the client had no room."""
        if self._child is not None:
            self._child.catch_up()

    def take(self, message: Envelope) -> None:
        """Take an answer, or what it asks or says unasked."""
        call = None
        try:
            if message.method is not None:
                self._owner.take(self, message)
                return
            id = read_own(message.id)
            if id not in self.pending:
                self._log.debug(f"backend {self.name}: an answer that nobody waits for")
                return
            call = self.drop(id)
            if call.receive is not None:
                call.receive(message)
            else:
                self._owner.settle(self, id, message)
        except Exception as error:  # noqa: BLE001 - it ends nothing but what the message is about
            self._owner.fail(self, message, error)
            if call is not None:
                self._fail(id, call, self.bad_reply("can't be read"))

    def take_broken(self, failure: Failure, body: bytes | bytearray) -> None:
        """Take what is no message."""
        self._owner.take_broken(self, failure, body)

    def lose_frame(self) -> None:
        """Take note of a frame that was not complete in time."""
        self._log.warn(f"backend {self.name}: a frame was not complete in time: dropped")

    def take_line(self, line: str) -> None:
        """Take a line of its stderr."""
        self.tail.append(line)
        self._said += 1
        self.report(line)

    def report(self, text: str) -> None:
        """Log a line about it, unless there were too many in this second."""
        second = int(monotonic())
        if second != self._second:
            if self._lines > limits.STDERR_RATE:
                left_out = self._lines - limits.STDERR_RATE
                self._log.warn(f"backend {self.name}: {left_out} lines were left out")
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines <= limits.STDERR_RATE:
            self._log.info(f"backend {self.name}: {text}")

    # Ending.

    def look(self) -> None:
        """See whether its process is still there."""
        code = None if self._child is None else self._child.poll()
        if code is not None:
            self._exited(code)

    def lose_pipe(self, pipe: str) -> None:
        """Take note of a pipe that it closed: it is dying, or of no more use."""
        if self.state != STOPPING:
            self._cancel_timer()
            self._timer = self._loop.after(
                BROKEN_PIPE_GRACE, lambda: self._break(f"closed its {pipe}")
            )

    def _break(self, reason: str) -> None:
        """End a process that is of no more use; what follows is as if it had died."""
        self.reason = reason
        if self._child is not None:
            self._child.signal(signal.SIGKILL)

    def _exited(self, code: int) -> None:
        """Take what it said last, and leave nothing of it."""
        child = self._child
        assert child is not None  # noqa: S101 - for the type checker
        if self.state != STOPPING:
            child.signal(signal.SIGKILL)  # what it left behind
        child.close()
        self._child = None
        self._cancel_timer()
        how: dict[str, object] = {"exitCode": code}
        said = f"ended with exit code {code}"
        if code < 0:
            name = _signal_name(-code)
            how, said = {"signal": name}, f"was ended by {name}"
        if self.state == STOPPING:
            child.end_group(self._stopped)
            return
        child.forget_group()
        self.pid = None
        self.reason = f"{self.reason} and {said}" if self.reason else said
        if self._exit_sent:  # whatever the code: without a shutdown before, it has to be 1
            self._log.info(f"backend {self.name}: {said}, as the client asked")
            self._give_up_pending(how)
            self._set(STOPPED)
        else:
            self._log.warn(f"backend {self.name}: {self.reason}")
            self._died(how)

    def _died(self, how: dict[str, object]) -> None:
        """Tell those who wait, and try again later, or never."""
        self.handshake = None
        if self.started and monotonic() - self.started >= self._times.stable:
            self._deaths = 0
        self.started = 0.0  # or a start that fails would count as a long life
        said = list(self.tail)[-self._said :] if self._said else []
        self._give_up_pending({**how, "stderr": "\n".join(said)})
        if self._deaths < len(self._times.restart):
            delay = self._times.restart[self._deaths]
            self._deaths += 1
            self._timer = self._loop.after(delay, self._restart)
            self._set(BACKOFF)
        else:
            self._log.error(f"backend {self.name}: has failed; `gateway/restart` starts it again")
            self._set(FAILED)

    def _restart(self) -> None:
        self.restarts += 1
        self.start()

    def stop(self, then: Callable[[], None] | None = None) -> None:
        """End it: its input first, then SIGTERM, then SIGKILL."""
        self._then = then
        self._deaths = 0
        if self.state == STOPPING:
            return
        child = self._child
        if child is None:
            self._cancel_timer()
            self.reason = ""
            self._give_up_pending({}, "stopped")
            self._stopped()
            return
        self._cancel_timer()
        was_starting = self.state == STARTING
        self.reason = "was stopped"
        self._set(STOPPING)
        self._give_up_pending({}, "stopped")
        child.end()
        if self.dialect is LSP and not self._exit_sent and not was_starting:
            self._ask("shutdown", None, self._say_exit)
        else:
            child.close_input()

    def _say_exit(self, _outcome: Outcome) -> None:
        if self._child is not None:
            self._write(encode_request("exit", None))
            self._child.close_input()

    def _stopped(self) -> None:
        self.pid = None
        self._give_up_pending({}, "stopped")
        self.handshake = None
        self._set(STOPPED)
        then, self._then = self._then, None
        if then is not None:
            then()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
