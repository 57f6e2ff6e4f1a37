"""One process of a backend: a process group and three pipes, none of which is waited for.

The process leads a group of its own, so that it is ended together with all that it has
started. What its messages mean, and what follows when it exits, is decided elsewhere.
"""

from __future__ import annotations

import os
import signal
import subprocess
from select import POLLIN
from time import monotonic
from typing import TYPE_CHECKING

from duet_rpc.gateway.leftovers import VARIABLE
from duet_rpc.gateway.streams import CHUNK, MessageStream, WriteQueue
from duet_rpc.jsonrpc import limits
from duet_rpc.jsonrpc.messages import InvalidMessage
from duet_rpc.jsonrpc.reader import MessageReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol, Union

    from duet_rpc.gateway.loop import Loop, Timer
    from duet_rpc.gateway.runtime import Runtime
    from duet_rpc.jsonrpc.framing import Framing
    from duet_rpc.jsonrpc.messages import Message
    from duet_rpc.workers.start import Start

    Invalid = Union[InvalidMessage, list[Union[Message, InvalidMessage]]]

    class MessageHandler(Protocol):
        """Who is told what a process writes."""

        def handle_message(self, message: Message) -> None:
            """Handle a message."""

        def handle_invalid(self, message: Invalid, body: bytes) -> None:
            """Handle output that is not a message; a list is a batch."""

        def handle_stderr(self, line: str) -> None:
            """Handle a line of stderr."""

        def handle_expired_frame(self) -> None:
            """Handle a frame that was not complete in time."""


TURN = 32  # messages of one backend before the others have their turn
STDERR_LINE_MAX = 2000  # bytes
CHUNKS_LEFT_MAX = 64  # read from the pipes of a process that has exited
GROUP_POLL = 0.02  # seconds between looks at a group whose leader has exited


class Child:
    """A process, from its start until nothing of its group is left."""

    def __init__(
        self,
        start: Start,
        cwd: str | None,
        framing: Framing,
        runtime: Runtime,
        handler: MessageHandler,
        on_pipe_closed: Callable[[str], None],
    ) -> None:
        """Start the process; raises OSError or ValueError where that fails."""
        self._mark = runtime.leftovers.new_mark()
        runtime.watchdog.start()
        try:
            process = subprocess.Popen(
                start.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env={**start.environ, VARIABLE: self._mark},
                pass_fds=start.descriptors,
                bufsize=0,
                start_new_session=True,
                preexec_fn=runtime.watchdog.add_self,
            )
        except BaseException:
            runtime.watchdog.forget_failed()
            raise
        finally:
            start.close()
        runtime.watchdog.add(process.pid)
        assert process.stdin is not None  # noqa: S101 - for the type checker
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        self._process = process
        self._runtime = runtime
        for pipe in (process.stdin, process.stdout, process.stderr):
            os.set_blocking(pipe.fileno(), False)
        self.input = WriteQueue(runtime.loop, process.stdin.fileno())
        self.input.on_error = lambda _error: on_pipe_closed("stdin")
        self.input.on_drain = self._handle_drain
        self.output = Output(process.stdout.fileno(), framing, runtime, handler, on_pipe_closed)
        self._stderr = StderrReader(process.stderr.fileno(), runtime.loop, handler.handle_stderr)
        self._timer: Timer | None = None  # of the next step of ending it
        self._kill_at = 0.0
        self._ended = False  # nothing is left of the group, and its number may be another's
        self.is_draining = False  # it has exited, and its output is not yet handled
        self.output.update()

    @property
    def pid(self) -> int:
        """The process id, which is also that of its group."""
        return self._process.pid

    # Its input.

    def reply(self, data: bytes) -> None:
        """Write a reply; a process that does not read its replies is not read either."""
        self.input.put(data)
        self.output.unread_replies += len(data)
        if self.output.unread_replies > limits.QUEUE_MAX:
            self.input.flush()  # what is left waits for room, and `_handle_drain` for that
        self._handle_drain()

    def _handle_drain(self) -> None:
        if self.output.unread_replies:
            self.output.unread_replies = min(self.output.unread_replies, self.input.size)
            self.output.resume()

    def close_input(self) -> None:
        """Write what there is room for, then close its stdin."""
        self.input.flush()
        self.input.close()
        if self._process.stdin is not None:
            self._process.stdin.close()

    # Its end.

    def poll(self) -> int | None:
        """Return its exit code, or the signal's number below zero; None while it runs."""
        return self._process.poll()

    def signal(self, number: int) -> bool:
        """Signal the whole group; return False where there is none."""
        if self._ended:
            return False
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def schedule_kill(self) -> None:
        """Send SIGTERM and then SIGKILL, unless it exits before."""
        self._kill_at = monotonic() + limits.KILL_AFTER
        self._timer = self._runtime.loop.call_later(limits.TERM_AFTER, self._terminate)

    def _terminate(self) -> None:
        self.signal(signal.SIGTERM)
        self._timer = self._runtime.loop.call_later(
            limits.KILL_AFTER - limits.TERM_AFTER, lambda: self.signal(signal.SIGKILL)
        )

    def drain(self, then: Callable[[], object]) -> None:
        """Handle what an exited process wrote last, and call a function."""
        self.is_draining = True
        self._stderr.close()
        self.output.drain(then)

    def close(self) -> None:
        """Close the pipes of an exited process."""
        self.input.close()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        if self._timer is not None:
            self._timer.cancel()

    def end_group(self, then: Callable[[], None]) -> None:
        """End what is left of the group of an exited process, then call a function."""
        self.signal(signal.SIGTERM)

        def check() -> None:
            if self.signal(0) and monotonic() < self._kill_at:
                self._runtime.loop.call_later(GROUP_POLL, check)
            else:
                self.kill_group()
                then()

        check()

    def kill_group(self) -> None:
        """Kill what is left of the group at once, and end what has left it."""
        self.signal(signal.SIGKILL)
        if not self._ended:
            self._ended = True
            self._runtime.watchdog.remove(self.pid)
            self._runtime.leftovers.end(self._mark)


class Output:
    """A process's stdout: its messages are handled a few at a time, while there is room."""

    def __init__(
        self,
        descriptor: int,
        framing: Framing,
        runtime: Runtime,
        handler: MessageHandler,
        on_pipe_closed: Callable[[str], None],
    ) -> None:
        self._stream = MessageStream(
            runtime.loop,
            descriptor,
            MessageReader(framing, raw=True, from_server=True),
            runtime.times.read,
            self._handle_input,
            self._handle_timeout,
        )
        self._loop = runtime.loop
        self._handler = handler
        self._client = runtime.client
        self._on_pipe_closed = on_pipe_closed
        self._open = True
        self._behind = False  # the stream holds messages, perhaps
        self._scheduled = False  # has its next turn soon
        self.unread_replies = 0  # bytes of replies that the process has not yet read, at most

    @property
    def _is_blocked(self) -> bool:
        return self._client.full or self.unread_replies > limits.QUEUE_MAX

    def update(self) -> None:
        """Read on, unless there is enough to do or no room for more."""
        self._stream.watch(self._open and not self._behind and not self._is_blocked)

    def resume(self) -> None:
        """Go on after there was no room."""
        if self._behind and not self._is_blocked:
            self._schedule()
        else:
            self.update()

    def _handle_input(self) -> None:
        got = self._stream.read()
        if got:
            self._take_turn()
        elif got is False:
            self._open = False
            self.update()
            self._on_pipe_closed("stdout")

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._take_scheduled_turn)

    def _take_scheduled_turn(self) -> None:
        self._scheduled = False
        if self._open:  # else it was closed meanwhile, and all was handled
            self._take_turn()

    def _take_turn(self) -> None:
        """Handle some messages now, and the rest when the others have had their turn."""
        was_behind, self._behind = self._behind, True
        for _ in range(TURN):
            if self._is_blocked:
                break
            if not self._handle_next():
                self._behind = False
                break
        if self._behind or was_behind:
            self.resume()
            self.update()

    def _handle_next(self) -> bool:
        message = self._stream.next()
        if message is None:
            return False
        if isinstance(message, (InvalidMessage, list)):
            self._handler.handle_invalid(message, self._stream.reader.body)
        else:
            self._handler.handle_message(message)
        return True

    def _handle_timeout(self) -> None:
        self._stream.reader.expire()
        self._handler.handle_expired_frame()
        self._take_turn()

    def drain(self, then: Callable[[], object]) -> None:
        """Handle what an exited process has left in its pipe, in turns, then call a function.

        Only garbage takes long; of that, what is left in the end is dropped.
        """
        chunks = CHUNKS_LEFT_MAX if self._open else 0
        until = monotonic() + limits.DRAIN_MAX
        is_finished = False
        self._open = False
        self.update()

        def take_turn() -> None:
            nonlocal chunks, is_finished
            for _ in range(TURN):
                if self._handle_next():
                    continue
                if chunks and self._stream.read():
                    chunks -= 1
                elif not is_finished:
                    is_finished = True
                    self._stream.reader.finish()
                else:
                    then()
                    return
            if monotonic() < until:
                self._loop.call_soon(take_turn)
            else:
                then()

        take_turn()


class StderrReader:
    """A process's stderr, line by line."""

    def __init__(self, descriptor: int, loop: Loop, on_line: Callable[[str], None]) -> None:
        self._descriptor = descriptor
        self._loop = loop
        self._on_line = on_line
        self._partial = b""  # line
        self._open = True
        loop.watch(descriptor, POLLIN, self._read)

    def _read(self) -> bool:
        """Handle a chunk; return False where there is nothing more now."""
        try:
            chunk = os.read(self._descriptor, CHUNK // 4)
        except BlockingIOError:
            return False
        if not chunk:
            self._loop.unwatch(self._descriptor)
            self._open = False
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        if self._partial and (not chunk or len(self._partial) > STDERR_LINE_MAX):
            lines.append(self._partial)
            self._partial = b""
        for line in lines:
            self._on_line(line[:STDERR_LINE_MAX].decode("utf-8", "replace").rstrip())
        return bool(chunk)

    def close(self) -> None:
        """Handle what is left in the pipe of a process that has exited."""
        for _ in range(CHUNKS_LEFT_MAX):
            if not self._open or not self._read():
                break
        self._loop.unwatch(self._descriptor)
