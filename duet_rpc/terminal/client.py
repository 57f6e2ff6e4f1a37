"""The small client behind `call`, `console` and `doctor`.

It starts `duet-rpc rpc` as Emacs does and talks to it through the same two pipes, with
the decoder and the encoder that the daemon itself uses. One thread: `receive` waits for
the daemon, for room to write and for a signal all at once, so that neither a daemon that
does not read nor one that does not answer holds the person at the keyboard.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from select import POLLIN, POLLOUT, poll
from time import monotonic

from duet_rpc.jsonrpc.content_length import ContentLengthDecoder
from duet_rpc.jsonrpc.errors import METHOD_NOT_FOUND, OVERSIZE, TITLES, Fault, RpcError
from duet_rpc.jsonrpc.framing import encode_content_length
from duet_rpc.jsonrpc.jsontext import dumps
from duet_rpc.jsonrpc.limits import BODY_MAX, GRACE
from duet_rpc.log import escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import IO, Union

    Params = Union[dict[str, object], list[object], None]

PIECE = 64 * 1024
EXCERPT_MAX = 60

# A daemon that was told to leave has its own two seconds; after these it is ended.
PATIENCE = GRACE + 0.5


class DaemonError(Exception):
    """The daemon died, or said what no daemon says; the text is for a person."""


class Reply:
    """The answer to one request: `error` is None where it succeeded."""

    __slots__ = ("error", "id", "result")

    def __init__(self, id: object, result: object, error: RpcError | None) -> None:
        self.id = id
        self.result = result
        self.error = error


class Notification:
    """What the daemon says unasked."""

    __slots__ = ("method", "params")

    def __init__(self, method: str, params: object) -> None:
        self.method = method
        self.params = params


def archive() -> str | None:
    """Return the path of the .pyz that this program runs from, where it does."""
    loader = getattr(sys.modules["__main__"], "__loader__", None)
    path = getattr(loader, "archive", None)
    return None if path is None else os.path.abspath(path)


def daemon_command(flags: Sequence[str] = (), command: str = "rpc") -> list[str]:
    """Return the words that start a daemon: this same program, under this same Python."""
    main = sys.modules["__main__"]
    program = archive()
    if program is None and main.__spec__ is None and getattr(main, "__file__", None):
        # The installed command. `-m` would look for modules in the working directory.
        program = os.path.abspath(str(main.__file__))
    words = ["-m", "duet_rpc"] if program is None else [program]
    # Whoever shut the environment out meant the daemon too.
    ours = sys.flags
    isolation = {"-I": ours.isolated, "-E": ours.ignore_environment, "-s": ours.no_user_site}
    python = [sys.executable, *(flag for flag, given in isolation.items() if given)]
    return [*python, *words, command, *flags]


class Client:
    """The parent of one daemon. Use it in a `with` statement: that leaves no orphan."""

    def __init__(
        self,
        command: Sequence[str],
        stderr: IO[bytes] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        try:
            # A session of its own: Ctrl-C at the terminal is for us to hear, not for it.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environ,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise DaemonError(f"the daemon can't be started: {error.strerror}") from None
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        assert self._process.stdout is not None  # noqa: S101
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        os.set_blocking(self._stdin.fileno(), False)
        self._outgoing = bytearray()
        self._decoder = ContentLengthDecoder()
        self._piece = b""  # the last one read, to quote from
        self._ended = False
        self._last_id = 0
        self.clean = True  # nothing but frames has come

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.kill()
        else:
            self.close()

    # Talking.

    def send(self, method: str, params: Params = None) -> int:
        """Send a request, as far as there is room; return its id."""
        self._last_id += 1
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method}
        self._post(message if params is None else {**message, "params": params})
        return self._last_id

    def cancel(self, id: int) -> None:
        """Ask the daemon to give up a request. Its reply still comes."""
        self._post({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": id}})

    def receive(
        self, seconds: float | None = None, wakeup: int | None = None
    ) -> Reply | Notification | None:
        """Return the next message, or None once time is up or `wakeup` can be read."""
        deadline = None if seconds is None else monotonic() + seconds
        while True:
            event = self._decoder.next()
            if isinstance(event, Fault):
                self.clean = False
                raise self._nonsense(event)
            if event is not None:
                return self._read(event)
            if self._ended:
                raise DaemonError(f"{self._death()} before it answered")
            left = None if deadline is None else deadline - monotonic()
            if (left is not None and left <= 0) or not self._wait(left, wakeup):
                return None

    def call(self, method: str, params: Params = None, seconds: float = 10.0) -> object:
        """Make one call and return its result; for what is known to be quick."""
        id = self.send(method, params)
        deadline = monotonic() + seconds
        while True:
            message = self.receive(max(0.0, deadline - monotonic()))
            if message is None:
                raise DaemonError(f"the daemon did not answer within {seconds:g} s")
            if isinstance(message, Reply) and message.id in (id, None):
                if message.error is not None:
                    raise message.error
                return message.result

    @property
    def ended(self) -> str | None:
        """Say how the daemon ended, or None while it lives."""
        if not self._ended:
            self._wait(0.0, None)
        return self._death() if self._ended else None

    # Ending.

    def close(self) -> int:
        """Let the daemon leave by itself, or end it; return its exit code."""
        try:
            self._outgoing.clear()
            self._stdin.close()
            deadline = monotonic() + PATIENCE
            while not self._ended and self._wait(max(0.0, deadline - monotonic()), None):
                event = self._decoder.next()
                while event is not None:
                    self.clean &= not isinstance(event, Fault)
                    event = self._decoder.next()
            self.clean &= not self._decoder.partial
            return self._process.wait(max(0.05, deadline - monotonic()))
        except subprocess.TimeoutExpired:
            return self.kill()
        finally:
            self.kill()

    def kill(self) -> int:
        """End the daemon now, and what it started with it."""
        if self._process.poll() is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                self._process.kill()
        self._stdin.close()
        self._stdout.close()
        self._ended = True
        return self._process.wait()

    def _death(self) -> str:
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            return "the daemon closed its stdout"
        if code >= 0:
            return f"the daemon ended with exit code {code}"
        return f"the daemon was ended by {signal.Signals(-code).name}"

    # The two pipes.

    def _post(self, message: dict[str, object]) -> None:
        self._outgoing += encode_content_length(dumps(message).encode())
        self._write()

    def _write(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: os.write(self._stdin.fileno(), self._outgoing[:PIECE])]
        except BlockingIOError:
            pass
        except (BrokenPipeError, ValueError):  # it reads no more: its stdout will say so
            self._outgoing.clear()

    def _wait(self, seconds: float | None, wakeup: int | None) -> bool:
        """Sleep until something moves; False where it was the clock or `wakeup`."""
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
            self._piece = os.read(self._stdout.fileno(), PIECE)
            self._ended = not self._piece
            self._decoder.feed(self._piece)
        return bool(ready) and wakeup not in ready

    # What came.

    def _nonsense(self, fault: Fault) -> DaemonError:
        if fault.error.data == {"reason": OVERSIZE}:
            return DaemonError(f"the reply is larger than {BODY_MAX} bytes")
        excerpt = escape(self._piece.decode("utf-8", "replace").strip(), EXCERPT_MAX)
        return DaemonError(f"the daemon wrote to stdout what is no frame: {excerpt}")

    def _read(self, body: bytes | bytearray) -> Reply | Notification:
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            raise DaemonError("the daemon's reply can't be read as JSON") from None
        if isinstance(message, dict):
            method, error = message.get("method"), message.get("error")
            if isinstance(method, str):
                if "id" in message:  # a server behind a gateway asks: nobody is left waiting
                    error = {"code": METHOD_NOT_FOUND, "message": TITLES[METHOD_NOT_FOUND]}
                    self._post({"jsonrpc": "2.0", "id": message["id"], "error": error})
                return Notification(method, message.get("params"))
            if "result" in message:
                return Reply(message.get("id"), message["result"], None)
            if isinstance(error, dict) and isinstance(error.get("code"), int):
                text = str(error.get("message", ""))
                failure = RpcError(error["code"], text, error.get("data"))
                return Reply(message.get("id"), None, failure)
        raise DaemonError("the daemon's reply is no JSON-RPC")
