"""One server behind the gateway: its process, its pipes, its state and what it owes.

A backend lives through several processes. Each has a process group of its own, so that
it is ended with all that it has started, and three pipes that are never waited for. What
it says is handed to its owner, the gateway; what the owner has to say to it waits here
until the handshake is done.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections import deque
from selectors import EVENT_READ
from time import monotonic

from duet_rpc.gateway.dialects import DIALECTS, LSP, MCP, initialize_params
from duet_rpc.gateway.loop import Alarm, Outlet
from duet_rpc.protocol import limits
from duet_rpc.protocol.envelope import Envelope, EnvelopeReader, encode_request, one_line
from duet_rpc.protocol.errors import REQUEST_FAILED, TITLES
from duet_rpc.protocol.framing import FRAMINGS, LINES
from duet_rpc.protocol.messages import NULL, Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol, Union

    from duet_rpc.config import BackendSettings
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

        def take_broken(self, backend: Backend, failure: Failure, body: bytes | bytearray) -> None:
            """Take what a backend said that is no message."""

        def settle(self, backend: Backend, id: int, outcome: Outcome) -> None:
            """Take the end of a request that came from the client."""

        def changed(self, backend: Backend) -> None:
            """Take note of a new state."""


STOPPED, STARTING, READY, STOPPING, BACKOFF, FAILED = (
    "stopped", "starting", "ready", "stopping", "backoff", "failed",
)  # fmt: skip

PIECE = 64 * 1024
TURN = 32  # messages of one backend before the others have their turn
LINE_MAX = 2000  # bytes of one line of stderr
POLL = 0.02  # seconds between looks at a group whose leader is gone
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
        self.handshake: Envelope | None = None  # the answer to an MCP server's initialize
        self.pending: dict[int, Call] = {}  # by age
        self.tokens: dict[str, tuple[str, int]] = {}  # its token: the client's, the request
        self.tail: deque[str] = deque(maxlen=limits.STDERR_LINES)
        self._deaths = 0  # in a row
        self._waiting: list[tuple[int | None, bytes]] = []  # for the handshake
        self._waiting_size = 0
        self._timer: Timer | None = None  # restart, handshake, or the steps of stopping
        self._deadline = Alarm(loop, self._expire)  # of the oldest request
        self._frame = Alarm(loop, self._drop_frame)  # of a frame that is arriving
        self._then: Callable[[], None] | None = None  # once it has stopped
        self._process: subprocess.Popen[bytes] | None = None
        self._exit_sent = False
        self._stopping = 0.0
        self._reading = self._behind = self._stdout_open = self._stderr_open = False
        self._answers = 0  # bytes of answers that it has not yet read
        self._line = b""  # of stderr, not yet whole
        self._second = self._lines = 0

    # Starting.

    def start(self) -> None:
        """Start its process, and the handshake where its dialect has one."""
        settings = self.settings
        self._cancel_timer()
        try:
            process = subprocess.Popen(
                settings.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=settings.cwd,
                env={**os.environ, **settings.env},
                bufsize=0,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._refuse_start(error)
            return
        self._watchdog.add(process.pid)
        assert process.stdin is not None  # noqa: S101 - for the type checker
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        self._process = process
        self.pid = process.pid
        self.started = monotonic()
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._stdout_fd = self._stdout.fileno()
        for pipe in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(pipe.fileno(), False)
        self._reader = EnvelopeReader(self._framing, from_server=True)
        self._outlet = Outlet(self._loop, self._stdin.fileno())
        self._outlet.on_broken = lambda _error: self._lost_pipe("stdin")
        self._outlet.on_room = self._made_room
        self.reason = ""
        self._exit_sent = self._behind = False
        self._stdout_open = self._stderr_open = True
        self._answers = 0
        self._line = b""
        self._loop.watch(self._stderr.fileno(), EVENT_READ, self._read_stderr)
        self.update_reading()
        self._log.info(f"backend {self.name}: started, pid {process.pid}")
        if self.dialect is not MCP:
            self._become_ready()
            return
        self._set(STARTING)
        self._timer = self._loop.after(self._times.start, self._handshake_late)
        params = initialize_params(settings.capabilities)
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
            return  # it died, which has been said
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
        for _, frame in self._waiting:
            self._outlet.put(frame)
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
        queued = self._waiting_size + (0 if self._process is None else self._outlet.size)
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
            if self._process is None:
                return True
            self._exit_sent = True
        self._post(None, encode_request(method, params))
        return True

    def answer(self, text: str) -> None:
        """Send the answer to a request of its own."""
        if self._process is not None and self.state != STOPPED:
            data = self._to_frame(text)
            self._outlet.put(data)
            self._answers += len(data)
            self.update_reading()

    def _ask(self, method: str, params: str | None, receive: Callable[[Outcome], None]) -> None:
        """Send a request of our own past those that wait."""
        id = self._owner.fresh_id()
        self._owe(id, Call(method, receive))
        self._write(encode_request(method, params, id))

    def _post(self, id: int | None, text: str) -> None:
        frame = self._to_frame(text)
        if self.state == READY:
            self._outlet.put(frame)
            return
        self._waiting.append((id, frame))
        self._waiting_size += len(frame)
        if self.state == STOPPED:
            self.start()

    def _write(self, text: str) -> None:
        self._outlet.put(self._to_frame(text))

    def _to_frame(self, text: str) -> bytes:
        return self._framing.encode((one_line(text) if self._framing is LINES else text).encode())

    def _made_room(self) -> None:
        if self._answers and not self._outlet.size:
            self._answers = 0
            self.update_reading()

    def _forget_waiting(self) -> None:
        self._waiting = []
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
        if any(waiting == id for waiting, _ in self._waiting):
            self._waiting = [each for each in self._waiting if each[0] != id]
            self._waiting_size = sum(len(frame) for _, frame in self._waiting)
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
        if call.receive is not None:
            call.receive(failure)
        else:
            self._owner.settle(self, id, failure)

    def _give_up_pending(self, more: dict[str, object], reason: str = "died") -> None:
        self._forget_waiting()
        self._deadline.clear()
        pending, self.pending = self.pending, {}
        self.tokens.clear()
        for id, call in pending.items():
            self._end(id, call, f"backend {self.name}: {self.reason}", reason, more)

    # Reading what it says.

    def update_reading(self) -> None:
        """Read its stdout while somebody has room for what it says."""
        wanted = (
            self._stdout_open
            and not self._behind
            and not self._owner.client_full
            and self._answers <= limits.QUEUE_MAX
        )
        if wanted and not self._reading:
            self._loop.watch(self._stdout.fileno(), EVENT_READ, self._read_stdout)
        elif self._reading and not wanted:
            self._loop.ignore(self._stdout.fileno())
        self._reading = wanted

    def _read_stdout(self) -> None:
        if self._process is None:
            return  # it died in this very turn
        try:
            piece = os.read(self._stdout_fd, PIECE)
        except BlockingIOError:
            return
        if not piece:
            self._lost_pipe("stdout")
            return
        message = self._reader.take(piece)
        if message is None:
            self._take_turn()
        else:
            self._take(message)

    def _take_turn(self) -> None:
        """Hand on some messages, and the rest when the others have had their turn."""
        if self._process is None:
            return  # it died meanwhile, and all was handed on
        behind = not self._hand_on()
        if behind or self._behind or self._owner.client_full:
            self._behind = behind
            if behind and not self._owner.client_full:
                self._loop.soon(self._take_turn)
            self.update_reading()
        if not self._reader.partial:
            self._frame.clear()
        elif self._frame.when is None:
            self._frame.set(monotonic() + self._times.read)

    def catch_up(self) -> None:
        """Go on where the client had no room."""
        if self._behind:
            self._loop.soon(self._take_turn)
        else:
            self.update_reading()

    def _hand_on(self, to_the_end: bool = False) -> bool:
        """Hand messages on, as many as it is their turn; False where there may be more."""
        self._loop.alone = False
        reader = self._reader
        left = TURN
        while to_the_end or (left and not self._owner.client_full):
            left -= 1
            message = reader.next()
            if message is None:
                return True
            if isinstance(message, Failure):
                self._owner.take_broken(self, message, reader.body)
            else:
                self._take(message)
            if not reader.more:
                return True
        return False

    def _take(self, message: Envelope) -> None:
        if message.method is not None:
            self._owner.take(self, message)
            return
        id = int(message.id) if message.id is not None and message.id.isdigit() else 0
        if id not in self.pending:
            self._log.debug(f"backend {self.name}: an answer that nobody waits for")
            return
        call = self.drop(id)
        if call.receive is not None:
            call.receive(message)
        else:
            self._owner.settle(self, id, message)

    def _drop_frame(self) -> None:
        if self._process is not None and self._reader.partial:
            self._reader.expire()
            self._log.warn(f"backend {self.name}: a frame was not complete in time: dropped")
            self._take_turn()

    def _read_stderr(self) -> bool:
        """Keep and log some lines; False where there is nothing more now."""
        if self._process is None:
            return False
        try:
            piece = os.read(self._stderr.fileno(), PIECE // 4)
        except BlockingIOError:
            return False
        if not piece:
            self._loop.ignore(self._stderr.fileno())
            self._stderr_open = False
        *lines, self._line = (self._line + piece).split(b"\n")
        if self._line and (not piece or len(self._line) > LINE_MAX):
            lines.append(self._line)
            self._line = b""
        for line in lines:
            text = line[:LINE_MAX].decode("utf-8", "replace").rstrip()
            self.tail.append(text)
            self.report(text)
        return bool(piece)

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
        if self._process is None:
            return
        code = self._process.poll()
        if code is not None:
            self._exited(code)

    def _lost_pipe(self, pipe: str) -> None:
        """Take note of a pipe that it closed: it is dying, or of no more use."""
        if pipe == "stdout":
            self._stdout_open = False
            self.update_reading()
        if self.state != STOPPING:
            self._cancel_timer()
            self._timer = self._loop.after(
                BROKEN_PIPE_GRACE, lambda: self._break(f"closed its {pipe}")
            )

    def _break(self, reason: str) -> None:
        """End a process that is of no more use; what follows is as if it had died."""
        self.reason = reason
        self._signal(signal.SIGKILL)

    def _exited(self, code: int) -> None:
        """Take what it said last, and leave nothing of it."""
        process = self._process
        assert process is not None  # noqa: S101 - for the type checker
        if self.state != STOPPING:
            self._signal(signal.SIGKILL)  # what it left behind
        self._drain()
        for pipe in (self._stdout, self._stderr):
            self._loop.ignore(pipe.fileno())
        self._outlet.drop()
        self._stdout_open = self._reading = False
        self._process = None
        for each in (self._stdin, self._stdout, self._stderr):
            each.close()
        self._cancel_timer()
        self._frame.clear()
        how: dict[str, object] = {"exitCode": code}
        said = f"ended with exit code {code}"
        if code < 0:
            name = _signal_name(-code)
            how, said = {"signal": name}, f"was ended by {name}"
        if self.state == STOPPING:
            self._await_group()
            return
        self._watchdog.remove(process.pid)
        self.pid = None
        self.reason = f"{self.reason} and {said}" if self.reason else said
        if self._exit_sent and code == 0:
            self._log.info(f"backend {self.name}: {said}, as the client asked")
            self._give_up_pending(how)
            self._set(STOPPED)
        else:
            self._log.warn(f"backend {self.name}: {self.reason}")
            self._died(how)

    def _drain(self) -> None:
        """Read what is left in the pipes of a process that has ended."""
        for _ in range(64):
            if not self._stdout_open:
                break
            try:
                piece = os.read(self._stdout.fileno(), PIECE)
            except OSError:
                break
            if not piece:
                break
            message = self._reader.take(piece)
            if message is not None:
                self._take(message)
            else:
                self._hand_on(to_the_end=True)
        self._reader.finish()
        self._hand_on(to_the_end=True)
        for _ in range(64):
            if not self._stderr_open or not self._read_stderr():
                break

    def _died(self, how: dict[str, object]) -> None:
        """Tell those who wait, and try again later, or never."""
        self.handshake = None
        if self.started and monotonic() - self.started >= self._times.stable:
            self._deaths = 0
        self._give_up_pending({**how, "stderr": "\n".join(self.tail)})
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
        if self._process is None:
            self._cancel_timer()
            self.reason = ""
            self._give_up_pending({}, "stopped")
            self._stopped()
            return
        self._cancel_timer()
        was_starting = self.state == STARTING
        self.reason = "was stopped"
        self._stopping = monotonic()
        self._set(STOPPING)
        self._give_up_pending({}, "stopped")
        self._timer = self._loop.after(limits.TERM_AFTER, self._terminate)
        if self.dialect is LSP and not self._exit_sent and not was_starting:
            self._ask("shutdown", None, self._say_exit)
        else:
            self._close_input()

    def _say_exit(self, _outcome: Outcome) -> None:
        if self._process is not None:
            self._write(encode_request("exit", None))
            self._close_input()

    def _close_input(self) -> None:
        self._outlet.flush()
        self._outlet.drop()
        self._stdin.close()

    def _terminate(self) -> None:
        self._signal(signal.SIGTERM)
        self._timer = self._loop.after(
            limits.KILL_AFTER - limits.TERM_AFTER, lambda: self._signal(signal.SIGKILL)
        )

    def _await_group(self) -> None:
        """Wait, after its leader, for the rest of the group that is being stopped."""
        until = self._stopping + limits.KILL_AFTER
        self._signal(signal.SIGTERM)

        def look() -> None:
            if self._signal(0) and monotonic() < until:
                self._timer = self._loop.after(POLL, look)
            else:
                self._signal(signal.SIGKILL)
                self._stopped()

        look()

    def _stopped(self) -> None:
        if self.pid is not None:
            self._watchdog.remove(self.pid)
            self.pid = None
        self._give_up_pending({}, "stopped")
        self.handshake = None
        self._set(STOPPED)
        then, self._then = self._then, None
        if then is not None:
            then()

    def _signal(self, number: int) -> bool:
        """Signal the whole group; False where there is none."""
        if self.pid is None:
            return False
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
