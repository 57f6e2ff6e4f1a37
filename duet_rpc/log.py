"""Log lines and where they go.

A line is four things: time, severity, what it is about (method and id) and a message.
loguru does the rest (see `sinks`): colour, files and their rotation, and what the user's
methods log through it. Importing it takes longer than the whole start of the daemon, so
lines wait in a list until there is nothing to answer (`settle`); and where none of this is
wanted, or the process ends before that, they are written as they are, without it: 10 MB less.
A method that uses loguru itself brings it in (`offer`); one that does not is there sooner.

Nothing here may stop the daemon. A line that can't be written is dropped and counted.
A signal handler may log: a line that comes while another is being written waits its turn.
"""

from __future__ import annotations

import os
import sys
from time import localtime, monotonic, strftime, time

from duet_rpc.jsonrpc.limits import LOG_FILE_MAX, LOG_GRACE, LOG_VALUE_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LEVELS = {"debug": 10, "info": 20, "warn": 30, "error": 40}
DEBUG, INFO, WARN, ERROR = LEVELS.values()

MESSAGE_MAX = 1000
LINE_MAX = 4096  # a pipe that takes anything at all takes this much without blocking
WAITING_MAX = 100

# Links have been followed by then; one that appears later is not ours.
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW


class Line:
    """One line, not yet written."""

    __slots__ = ("rest", "severity", "time")

    def __init__(self, severity: str, rest: str) -> None:
        now = time()
        local = localtime(now)
        zone = strftime("%z", local)
        self.time = (
            f"{strftime('%Y-%m-%dT%H:%M:%S', local)}.{int(now % 1 * 1000):03d}"
            f"{zone[:3]}:{zone[3:5]}"
        )
        self.severity = severity
        self.rest = rest

    def __str__(self) -> str:
        return f"{self.time} {self.severity:<5} {self.rest}\n"


class Log:
    """Where lines go, from which level on."""

    def __init__(self, level: str, path: str | None = None, color: bool = False) -> None:
        self.level = LEVELS[level]
        self.sink = "stderr"
        self._color = color
        self._descriptor = 2
        self._patience = 0.0
        self._path: str | None = None
        self.waiting: list[Line] = []  # for loguru
        self.unready = False  # methods may fail any time now, and loguru is not there yet
        self._write: Callable[[Line], None] | None = None
        self._shared = False
        self._busy = False
        self._dropped = 0
        if path:
            self._use_file(path)

    def _use_file(self, path: str) -> None:
        from duet_rpc.sinks import NoSink, open_file

        try:
            self.sink, descriptor = open_file(path)
        except NoSink as why:
            self.warn(f"DUET_RPC_LOG {why}; logging to stderr")
            return
        self._color = False
        if descriptor is None:
            self._path = self.sink
        else:
            self._descriptor = descriptor

    # What the rest of the program calls.

    @property
    def level_name(self) -> str:
        """The level as the command line has it."""
        return next(name for name, number in LEVELS.items() if number == self.level)

    def set_level(self, name: str) -> None:
        """Log from this level on."""
        self.level = LEVELS[name]

    def debug(self, message: str, method: str | None = None, id: str | None = None) -> None:
        """Say what was done, to a developer."""
        self._add(DEBUG, "DEBUG", message, method, id)

    def info(self, message: str, method: str | None = None, id: str | None = None) -> None:
        """Say where the daemon is in its life."""
        self._add(INFO, "INFO", message, method, id)

    def warn(self, message: str, method: str | None = None, id: str | None = None) -> None:
        """Say what the client did wrong."""
        self._add(WARN, "WARN", message, method, id)

    def error(self, message: str, method: str | None = None, id: str | None = None) -> None:
        """Say what we did wrong."""
        self._add(ERROR, "ERROR", message, method, id)

    def start_loguru(self) -> None:
        """Stand-in until the log is rewritten."""
        self.unready = False
        self.settle()
        self._writer()

    def settle(self) -> None:
        """Write the lines that wait, and get ready to write more at once."""
        if self.unready:
            self.unready = False
            self._writer()
        if self.waiting and not self._busy:
            self._drain(self._writer())

    def _writer(self) -> Callable[[Line], None]:
        if self._write is None:
            if self._path is None and not self._color:
                self._write = self._write_plain
            else:
                self.share()
        return self._write or self._write_plain

    def offer(self) -> None:
        """Use loguru as soon as code that is not ours imports it, to log through it too."""
        if "loguru" in sys.modules:
            self.share()
        else:
            from duet_rpc.sinks import Watch

            sys.meta_path.insert(0, Watch(self))
            self.unready = True

    def share(self) -> None:
        """Use loguru from now on."""
        if self.claim():
            self.use_loguru()

    def claim(self) -> bool:
        """Return True to the first who asks to set loguru up.

        Before it is imported: a tick that comes in the middle of that may log.
        """
        first, self._shared = not self._shared, True
        return first

    def use_loguru(self) -> None:
        """Set it up; whoever has claimed that calls this."""
        try:
            from duet_rpc.sinks import use_loguru

            self._write = use_loguru(self._path, self._write_stream, self._color)
        except OSError:  # the file can't be opened just now; the next line tries again
            self._shared = False
        except ImportError:  # somebody has deleted what we were loaded from
            self._write = self._write_plain

    def close(self) -> None:
        """Write what is left, within the time that leaving may take."""
        self._patience = LOG_GRACE
        if self._write is None and self.waiting:
            # Leaving is quick: loguru is not imported for the last lines alone, unless
            # the file must be rotated.
            self._write = self._writer() if self._file_is_full() else self._write_plain
        if self._write is not None and not self._busy:
            self._drain(self._write)

    # Lines.

    def _add(
        self, level: int, severity: str, message: str, method: str | None, id: str | None
    ) -> None:
        if level < self.level:
            return
        rest = escape(message, MESSAGE_MAX)
        if id is not None:
            rest = f"id={escape(id, LOG_VALUE_MAX)} {rest}"
        if method is not None:
            rest = f"method={quote(method)} {rest}"
        self.waiting.append(Line(severity, rest))
        self._drain(self._write or self._write_plain)

    def _drain(self, write: Callable[[Line], None]) -> None:
        self._busy = True
        try:
            while self.waiting:
                line = self.waiting.pop(0)
                try:
                    if self._dropped:
                        write(Line("WARN", f"{self._dropped} log lines could not be written"))
                        self._dropped = 0
                    write(line)
                except Exception:  # noqa: BLE001 - a full disk, a full pipe, a folder gone: never our end
                    self._dropped += 1
        finally:
            self._busy = False

    # Writing without loguru.

    def _file_is_full(self) -> bool:
        if self._path is None:
            return False
        try:
            return os.stat(self._path).st_size + LINE_MAX > LOG_FILE_MAX
        except OSError:
            return True

    def _write_plain(self, line: Line) -> None:
        if self._path is None:
            self._write_stream(str(line))
            return
        descriptor = os.open(self._path, APPEND, 0o600)
        try:
            os.write(descriptor, str(line).encode())
        finally:
            os.close(descriptor)

    def _write_stream(self, text: str) -> None:
        """Write one line where it does not block, or raise."""
        from select import POLLOUT, poll

        data = text.encode("utf-8", "backslashreplace")
        if len(data) > LINE_MAX:
            data = data[: LINE_MAX - 1] + b"\n"
        room = poll()
        room.register(self._descriptor, POLLOUT)
        before = monotonic()
        ready = room.poll(self._patience * 1000)
        # The last lines share one budget.
        self._patience = max(0.0, self._patience - (monotonic() - before))
        if not ready or not ready[0][1] & POLLOUT:
            raise BlockingIOError
        os.write(self._descriptor, data)


def escape(text: str, most: int) -> str:
    """Make what came from outside harmless in a log: one line, no control characters."""
    cut = text if len(text) <= most else text[: most - 1] + "…"
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)


def quote(method: str) -> str:
    """Show a method's name, in quotes where it could be taken for more than one word."""
    plain = method.replace(".", "").replace("/", "").replace("$", "").replace("_", "")
    shown = escape(method, LOG_VALUE_MAX)
    return shown if plain.isalnum() else '"' + shown.replace('"', '\\"') + '"'
