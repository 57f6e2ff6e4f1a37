"""One life of a backend: a process group, and three pipes that are never waited for.

A process has a group of its own, so that it is ended with all that it has started. What it
says is handed to the backend, some messages at a time: one that floods has its turn, and so
have the others. Of states, of what is owed and of starting again nothing is known here.
"""

from __future__ import annotations

import os
import signal
import subprocess
from selectors import EVENT_READ
from time import monotonic

from duet_rpc.gateway.loop import Inlet, Outlet
from duet_rpc.jsonrpc import limits
from duet_rpc.jsonrpc.envelope import Envelope, EnvelopeReader
from duet_rpc.jsonrpc.messages import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from duet_rpc.config.settings import BackendSettings
    from duet_rpc.gateway.loop import Loop, Timer
    from duet_rpc.gateway.watchdog import Watchdog
    from duet_rpc.jsonrpc.framing import Framing

    class Client(Protocol):
        """Who reads what comes of all this."""

        client_full: bool

    class Listener(Protocol):
        """Who hears what the process does."""

        def take(self, message: Envelope) -> None:
            """Take a message."""

        def take_broken(self, failure: Failure, body: bytes | bytearray) -> None:
            """Take what is no message."""

        def take_line(self, line: str) -> None:
            """Take a line of its stderr."""

        def lose_frame(self) -> None:
            """Take note of a frame that was not complete in time."""

        def lose_pipe(self, pipe: str) -> None:
            """Take note of a pipe that it closed."""


PIECE = 64 * 1024
TURN = 32  # messages of one backend before the others have their turn
LINE_MAX = 2000  # bytes of one line of stderr
PIECES_LEFT = 64  # in the pipes of a process that has ended
POLL = 0.02  # seconds between looks at a group whose leader is gone


class Child:
    """A process, from its start to the end of its group."""

    def __init__(
        self,
        settings: BackendSettings,
        framing: Framing,
        client: Client,
        listener: Listener,
        loop: Loop,
        watchdog: Watchdog,
        read_timeout: float,
    ) -> None:
        """Start it; OSError or ValueError where that can't be."""
        watchdog.start()
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
        watchdog.add(process.pid)
        assert process.stdin is not None  # noqa: S101 - for the type checker
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        self.pid = process.pid
        self._process = process
        self._client = client
        self._listener = listener
        self._loop = loop
        self._watchdog = watchdog
        self._pipes = process.stdin, process.stdout, process.stderr
        self._stdin, self._stdout, self._stderr = (pipe.fileno() for pipe in self._pipes)
        for descriptor in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(descriptor, False)
        self.outlet = Outlet(loop, self._stdin)
        self.outlet.on_broken = lambda _error: listener.lose_pipe("stdin")
        self.outlet.on_room = self._made_room
        self._reader = EnvelopeReader(framing, from_server=True)
        self._inlet = Inlet(
            loop, self._stdout, self._reader, self._read_stdout, read_timeout, self._drop_frame
        )
        self._behind = self._closed = False
        self._stdout_open = self._stderr_open = True
        self._answers = 0  # bytes of answers that it has not yet read, at most
        self._line = b""  # of stderr, not yet whole
        self._timer: Timer | None = None  # of the steps of ending
        self._kill_at = 0.0
        loop.watch(self._stderr, EVENT_READ, self._read_stderr)
        self.update_reading()

    # Its input.

    def answer(self, data: bytes) -> None:
        """Write an answer; who does not read answers is not read either."""
        self.outlet.put(data)
        self._answers += len(data)
        if self._answers > limits.QUEUE_MAX:
            self.outlet.flush()  # what is left then waits for room, and `_made_room` for that
        self._made_room()

    def _made_room(self) -> None:
        if self._answers:
            self._answers = min(self._answers, self.outlet.size)
            self.update_reading()

    def close_input(self) -> None:
        """Write what there is room for, and no more."""
        self.outlet.flush()
        self.outlet.drop()
        self._pipes[0].close()

    # Its output.

    def update_reading(self) -> None:
        """Read its stdout while somebody has room for what it says."""
        self._inlet.watch(
            self._stdout_open
            and not self._behind
            and not self._client.client_full
            and self._answers <= limits.QUEUE_MAX
        )

    def _read_stdout(self) -> None:
        try:
            piece = os.read(self._stdout, PIECE)
        except BlockingIOError:
            return
        if not piece:
            self._stdout_open = False
            self.update_reading()
            self._listener.lose_pipe("stdout")
            return
        message = self._reader.take(piece)
        if message is not None:
            self._listener.take(message)
        else:
            self._take_turn()

    def _take_turn(self) -> None:
        """Hand on some messages, and the rest when the others have had their turn."""
        if self._closed:
            return  # it died meanwhile, and all was handed on
        client = self._client
        behind = not self._hand_on()
        if behind or self._behind or client.client_full:
            self._behind = behind
            if behind and not client.client_full:
                self._loop.soon(self._take_turn)
            self.update_reading()
        self._inlet.time_frame()

    def catch_up(self) -> None:
        """Go on where the client had no room."""
        if self._behind:
            self._loop.soon(self._take_turn)
        else:
            self.update_reading()

    def _hand_on(self, to_the_end: bool = False) -> bool:
        """Hand messages on, as many as it is their turn; False where there may be more."""
        self._loop.alone = False
        reader, listener = self._reader, self._listener
        left = TURN
        more = True
        while more and (to_the_end or (left and not self._client.client_full)):
            message = reader.next()
            if message is None:
                more = False
                break
            left -= 1
            if isinstance(message, Failure):
                listener.take_broken(message, reader.body)
            else:
                listener.take(message)
            more = reader.more
        if left < TURN:
            self._inlet.end_frame()
        return not more

    def _drop_frame(self) -> None:
        if self._reader.partial:
            self._reader.expire()
            self._listener.lose_frame()
            self._take_turn()

    def _read_stderr(self) -> bool:
        """Hand on some lines; False where there is nothing more now."""
        try:
            piece = os.read(self._stderr, PIECE // 4)
        except BlockingIOError:
            return False
        if not piece:
            self._loop.ignore(self._stderr)
            self._stderr_open = False
        *lines, self._line = (self._line + piece).split(b"\n")
        if self._line and (not piece or len(self._line) > LINE_MAX):
            lines.append(self._line)
            self._line = b""
        for line in lines:
            self._listener.take_line(line[:LINE_MAX].decode("utf-8", "replace").rstrip())
        return bool(piece)

    # Its end.

    def poll(self) -> int | None:
        """Return its exit code, or the signal's number below zero; None while it runs."""
        return self._process.poll()

    def signal(self, number: int) -> bool:
        """Signal the whole group; False where there is none."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def end(self) -> None:
        """Let SIGTERM, then SIGKILL follow the end of its input."""
        self._kill_at = monotonic() + limits.KILL_AFTER
        self._timer = self._loop.after(limits.TERM_AFTER, self._terminate)

    def _terminate(self) -> None:
        self.signal(signal.SIGTERM)
        self._timer = self._loop.after(
            limits.KILL_AFTER - limits.TERM_AFTER, lambda: self.signal(signal.SIGKILL)
        )

    def close(self) -> None:
        """Hand on what it said last, and leave nothing of its pipes."""
        self._drain()
        self._stdout_open = False
        self._inlet.watch(False)
        self._loop.ignore(self._stderr)
        self.outlet.drop()
        self._closed = True
        for pipe in self._pipes:
            pipe.close()
        if self._timer is not None:
            self._timer.cancel()

    def _drain(self) -> None:
        for _ in range(PIECES_LEFT):
            if not self._stdout_open:
                break
            try:
                piece = os.read(self._stdout, PIECE)
            except OSError:
                break
            if not piece:
                break
            message = self._reader.take(piece)
            if message is not None:
                self._listener.take(message)
            else:
                self._hand_on(to_the_end=True)
        self._reader.finish()
        self._hand_on(to_the_end=True)
        for _ in range(PIECES_LEFT):
            if not self._stderr_open or not self._read_stderr():
                break

    def end_group(self, then: Callable[[], None]) -> None:
        """Wait, after its leader, for the rest of the group."""
        self.signal(signal.SIGTERM)

        def look() -> None:
            if self.signal(0) and monotonic() < self._kill_at:
                self._loop.after(POLL, look)
            else:
                self.signal(signal.SIGKILL)
                self.forget_group()
                then()

        look()

    def forget_group(self) -> None:
        """Take note that nothing of the group is left."""
        self._watchdog.remove(self.pid)
