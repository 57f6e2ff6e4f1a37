"""The client behind `call`, `console` and `doctor`.

It starts `duet-rpc rpc` as Emacs does and talks to it through two pipes, with the decoder and
the encoder that the daemon itself uses. It has one thread: `receive` waits for the daemon's
output, for room in its input and for a signal at the same time, so that a daemon that does
not read or does not answer cannot block Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import subprocess
from select import POLLIN, POLLOUT, poll
from time import monotonic
from typing import TYPE_CHECKING

from duet_rpc.jsonrpc import (
    CONTENT_LENGTH,
    Error,
    Failure,
    InvalidMessage,
    MessageReader,
    Notification,
    Request,
    Success,
    encode,
)
from duet_rpc.jsonrpc.errors import OVERSIZE, PARSE_ERROR, RpcError
from duet_rpc.jsonrpc.limits import BODY_MAX, GRACE
from duet_rpc.log import escape
from duet_rpc.peer import Outgoing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import IO, Union

    from duet_rpc.jsonrpc import Message

    Params = Union[dict[str, object], list[object], None]

CHUNK_SIZE = 64 * 1024
EXCERPT_MAX = 60

EXIT_TIMEOUT = GRACE + 0.5
"""Seconds for a graceful exit; then the daemon is killed."""


class DaemonError(Exception):
    """The daemon exited, or its output is not JSON-RPC; the text is for a person."""


def result_of(reply: Success | Failure) -> object:
    """Return the result that a reply has, or raise its error."""
    if isinstance(reply, Success):
        return reply.result
    error = reply.error
    raise RpcError(error.code, error.message, error.data)


class Client:
    """A daemon started as a child process. A `with` statement makes sure that it ends."""

    def __init__(
        self,
        command: Sequence[str],
        stderr: IO[bytes] | None = None,
        environ: Mapping[str, str] | None = None,
        cwd: str | None = None,
        descriptors: Sequence[int] = (),
    ) -> None:
        """Start it; it inherits `descriptors` beside its pipes."""
        try:
            # In a session of its own: Ctrl-C at the terminal goes to this process only.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environ,
                cwd=cwd,
                pass_fds=descriptors,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            what = f"cannot start the daemon, {escape(command[0], 200)}"
            raise DaemonError(f"{what}: {error.strerror}") from None
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        assert self._process.stdout is not None  # noqa: S101
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        os.set_blocking(self._stdin.fileno(), False)
        self._outgoing = bytearray()
        self._reader = MessageReader(CONTENT_LENGTH)
        self._chunk = b""  # the last one read, to quote from
        self._ended = False  # its stdout has ended
        self._pending: Outgoing[str] = Outgoing()
        self.clean = True  # its stdout had nothing but frames
        self.tracebacks = False  # the person wants to see them
        self.asks = True  # it asks back; servers behind a gateway are not told how
        self.said: list[str] = []  # what it had a person told during the last request

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.kill()
        else:
            self.close()

    # Messages.

    def send(self, method: str, params: Params = None) -> int:
        """Send a request without blocking; return its id. `receive` sends what is left."""
        id = self._pending.add(method)
        self._send(Request(method, params, id))
        assert isinstance(id, int)  # noqa: S101 - for the type checker
        return id

    def cancel(self, id: int) -> None:
        """Cancel a request. Its reply still comes."""
        self._send(Notification("$/cancelRequest", {"id": id}))

    def answer(self, request: Request, result: object) -> None:
        """Answer a request of the daemon's."""
        self._send(Success(request.id, result))

    def refuse(self, request: Request, error: Error | None = None) -> None:
        """Answer a request of the daemon's by an error; without one it is unknown here."""
        self._send(Failure(request.id, error or Error.method_not_found()))

    def receive(
        self, seconds: float | None = None, wakeup: int | None = None
    ) -> Success | Failure | Notification | Request | None:
        """Return the next message, or None once time is up or `wakeup` can be read.

        A request of the daemon's is to be answered, or refused.
        """
        deadline = None if seconds is None else monotonic() + seconds
        while True:
            message = self._reader.next()
            if isinstance(message, InvalidMessage):
                raise self._error_for(message)
            if isinstance(message, list):
                raise DaemonError("the daemon's reply is not valid JSON-RPC")
            if isinstance(message, (Success, Failure)) and message.id is not None:
                if self._pending.pop(message.id) is not None:  # else nobody asked
                    return message
            elif message is not None:
                return message
            elif self._ended:
                raise DaemonError(f"{self._wait_for_exit()} before it answered")
            else:
                left = None if deadline is None else deadline - monotonic()
                if (left is not None and left <= 0) or not self._wait(left, wakeup):
                    return None

    def call(self, method: str, params: Params = None, seconds: float = 10.0) -> object:
        """Call a method and return its result; raise DaemonError after a timeout."""
        id = self.send(method, params)
        deadline = monotonic() + seconds
        while True:
            message = self.receive(max(0.0, deadline - monotonic()))
            if message is None:
                raise DaemonError(f"the daemon did not answer within {seconds:g} s")
            if isinstance(message, Request):
                self.refuse(message)
            if isinstance(message, (Success, Failure)) and message.id in (id, None):
                return result_of(message)

    @property
    def exit_reason(self) -> str | None:
        """How the daemon exited, as a sentence; None while it runs."""
        if not self._ended:
            self._wait(0.0, None)
        return self._wait_for_exit() if self._ended else None

    # Exit.

    def close(self) -> int:
        """Close the daemon's stdin and wait for its exit, or kill it; return its exit code."""
        try:
            self._outgoing.clear()
            self._stdin.close()
            deadline = monotonic() + EXIT_TIMEOUT
            while not self._ended and self._wait(max(0.0, deadline - monotonic()), None):
                message = self._reader.next()
                while message is not None:
                    self.clean &= not isinstance(message, InvalidMessage)
                    message = self._reader.next()
            self.clean &= not self._reader.partial
            return self._process.wait(max(0.05, deadline - monotonic()))
        except subprocess.TimeoutExpired:
            return self.kill()
        finally:
            self.kill()

    def kill(self) -> int:
        """Kill the daemon and what it has started; return its exit code."""
        if self._process.poll() is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                self._process.kill()
        self._stdin.close()
        self._stdout.close()
        self._ended = True
        return self._process.wait()

    def _wait_for_exit(self) -> str:
        """Wait for the exit of a daemon whose stdout has ended; return how it exited."""
        try:
            code = self._process.wait(EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
            return "the daemon closed its stdout"
        if code >= 0:
            return f"the daemon exited with code {code}"
        return f"the daemon was killed by {signal.Signals(-code).name}"

    # The two pipes.

    def _send(self, message: Message) -> None:
        self._outgoing += CONTENT_LENGTH.encode(encode(message))
        self._write()

    def _write(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: os.write(self._stdin.fileno(), self._outgoing[:CHUNK_SIZE])]
        except BlockingIOError:
            pass
        except (BrokenPipeError, ValueError):  # it no longer reads; `receive` finds out why
            self._outgoing.clear()

    def _wait(self, seconds: float | None, wakeup: int | None) -> bool:
        """Wait for the pipes and serve them; return False on a timeout or for `wakeup`."""
        waiting = poll()
        waiting.register(self._stdout, POLLIN)
        if wakeup is not None:
            waiting.register(wakeup, POLLIN)
        if self._outgoing:
            waiting.register(self._stdin, POLLOUT)
        ready = [each for each, _ in waiting.poll(None if seconds is None else seconds * 1000)]
        if self._outgoing and self._stdin.fileno() in ready:
            self._write()
        if self._stdout.fileno() in ready:
            self._chunk = os.read(self._stdout.fileno(), CHUNK_SIZE)
            self._ended = not self._chunk
            self._reader.feed(self._chunk)
        return bool(ready) and wakeup not in ready

    # What was received.

    def _error_for(self, invalid: InvalidMessage) -> DaemonError:
        error = invalid.failure.error
        if error.data == {"reason": OVERSIZE}:
            return DaemonError(f"the reply is larger than {BODY_MAX} bytes")
        if self._reader.is_frame:
            kind = "JSON" if error.code == PARSE_ERROR else "JSON-RPC"
            return DaemonError(f"the daemon's reply is not valid {kind}")
        self.clean = False
        excerpt = escape(self._chunk.decode("utf-8", "replace").strip(), EXCERPT_MAX)
        return DaemonError(f"the daemon's stdout has text that is not a frame: {excerpt}")
