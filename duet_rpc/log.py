"""Log lines and where they go.

A line is four things: time, severity, what it is about (method and id) and a message.
loguru does the rest: colour, files and their rotation, and what the user's methods log
through it. Importing it takes longer than the whole start of the daemon, so lines wait in
a list until there is nothing to answer (`settle`); and where none of this is wanted, or
the process ends before that, they are written as they are, without it: 10 MB less.

Nothing here may stop the daemon. A line that can't be written is dropped and counted.
A signal handler may log: a line that comes while another is being written waits its turn.
"""

from __future__ import annotations

import os
from stat import S_ISLNK, S_ISREG
from time import localtime, monotonic, strftime, time

from duet_rpc.protocol.limits import LOG_FILE_MAX, LOG_FILES_KEPT, LOG_GRACE, LOG_VALUE_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LEVELS = {"debug": 10, "info": 20, "warn": 30, "error": 40}
DEBUG, INFO, WARN, ERROR = LEVELS.values()

MESSAGE_MAX = 1000
LINE_MAX = 4096  # a pipe that takes anything at all takes this much without blocking
WAITING_MAX = 100

# Links have been followed by then; one that appears later is not ours.
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW

LINKS_MAX = 40
HIDDEN_MIN = 8
OURS = os.path.dirname(__file__) + os.sep


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
        self._write: Callable[[Line], None] | None = None
        self._busy = False
        self._dropped = 0
        if path:
            path = os.path.abspath(os.path.expanduser(path))
            if is_planted(path):
                self.warn("DUET_RPC_LOG leads through a link of another user; logging to stderr")
            else:
                # What a link leads to, /dev/stderr for one: rotation must not rename the link.
                self._use_file(os.path.realpath(path))

    def _use_file(self, path: str) -> None:
        try:
            # O_NONBLOCK: a named pipe that nobody reads is refused, not waited for.
            descriptor = os.open(path, APPEND | os.O_NONBLOCK, 0o600)
            if S_ISREG(os.fstat(descriptor).st_mode):
                os.fchmod(descriptor, 0o600)
                os.close(descriptor)
                self._path = path
            else:
                self._descriptor = descriptor
        except OSError as error:
            self.warn(f"DUET_RPC_LOG can't be written ({error.strerror}); logging to stderr")
            return
        self.sink = path
        self._color = False

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

    @staticmethod
    def describe(error: BaseException, params: object = None) -> str:
        """Say what was raised and where, in one line, without a directory or what came in."""
        text = hide(say_what(error), params)
        place = where = None
        trace = error.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            # The line of the method is of more use than that of a library it calls.
            if where is None or where.startswith((OURS, "<")) or where == code.co_filename:
                where = code.co_filename
                place = f"{os.path.basename(where)}:{trace.tb_lineno} in {code.co_name}"
            trace = trace.tb_next
        return text if place is None else f"{text} ({place})"

    def settle(self) -> None:
        """Write the lines that wait."""
        if self.waiting:
            self._drain(self._writer())

    def _writer(self) -> Callable[[Line], None]:
        if self._write is None:
            if self._path is None and not self._color:
                self._write = self._write_plain
            else:
                self.share()
        return self._write or self._write_plain

    def share(self) -> None:
        """Use loguru from now on: code that is not ours may log through it too."""
        try:  # noqa: SIM105 - contextlib takes long to import
            self._write = self._load()
        except OSError:  # the file can't be opened just now; the next line tries again
            pass

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
        if self._busy:
            return
        if self._write is not None or len(self.waiting) > WAITING_MAX:
            self.settle()

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

    # Writing with loguru.

    def _load(self) -> Callable[[Line], None]:
        from loguru import logger

        shared: Any = logger
        # One of our own, made as loguru makes the one that all share: `logger.remove()` in a
        # method's file must not be the end of ours.
        own = type(shared)(
            core=type(shared._core)(), exception=None, depth=0, record=False, lazy=False,
            colors=False, raw=False, capture=True, patchers=[], extra={},
        )  # fmt: skip
        options: Any = {"level": 0, "catch": False, "diagnose": False}
        form = "<dim>{extra[time]}</dim> <level>{extra[severity]:<5}</level> {message}\n"
        if self._path is None:
            own.add(self._write_stream, colorize=self._color, format=lambda _: form, **options)
        else:
            own.add(
                self._path,
                rotation=LOG_FILE_MAX,
                retention=LOG_FILES_KEPT,
                opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o600),
                watch=True,
                encoding="utf-8",
                format=lambda _: form,
                **options,
            )
        try:
            shared.remove(0)
        except ValueError:
            pass  # the user has a way of logging already
        else:
            form_of_others = (
                "<dim>{time:YYYY-MM-DDTHH:mm:ss.SSSZ}</dim> <level>{level:<5}</level> {message}\n"
            )
            shared.add(
                lambda text: own.opt(raw=True).info(text),
                colorize=self._color,
                format=lambda _: form_of_others,
                **options,
            )
        names = {"WARN": "WARNING"}

        def write(line: Line) -> None:
            own.bind(time=line.time, severity=line.severity).log(
                names.get(line.severity, line.severity), line.rest
            )

        return write


def say_what(error: BaseException) -> str:
    """Say what was raised, without a directory."""
    text = str(error)
    if isinstance(error, OSError) and isinstance(error.filename, (str, bytes)):
        text = f"{error.strerror}: {os.path.basename(os.fsdecode(error.filename))}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def hide(text: str, params: object) -> str:
    """Take out of a text what the caller sent, unless it is too short to be a secret."""
    text = text[: 4 * MESSAGE_MAX]
    waiting = [params]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value
        else:
            for form in (str(value), repr(value)[1:-1]):
                if len(form) >= HIDDEN_MIN:
                    text = text.replace(form, "…")
    return text


def is_planted(path: str) -> bool:
    """Return True where a link on the way may have been put there by another user."""
    ours = (os.geteuid(), 0)
    for _ in range(LINKS_MAX):
        parts = path.split("/")
        for count in range(2, len(parts) + 1):
            place, folder = "/".join(parts[:count]), "/".join(parts[: count - 1]) or "/"
            try:
                link = os.lstat(place)
                if not S_ISLNK(link.st_mode):
                    continue
                around = os.stat(folder)
                open_to_others = around.st_uid not in ours or around.st_mode & 0o022
                if open_to_others and link.st_uid not in ours:
                    return True
                path = os.path.normpath(os.path.join(folder, os.readlink(place), *parts[count:]))
                break
            except OSError:  # opening it will say what is wrong
                return False
        else:
            return False
    return True


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
