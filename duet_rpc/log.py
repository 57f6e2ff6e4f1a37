"""The log: what a line says, and that it is written at once.

A line is four things: time, severity, what it is about (method and id) and a message. It is on
its sink (see `sinks`) before the call that logs it returns, so neither SIGKILL nor a crash in C
code can lose it.

loguru writes the lines. Importing it takes longer than the whole start of the daemon, so that
is done in the first idle moment (`start_loguru`); lines before that are written directly and
look the same. What the user's methods log through loguru goes to the same sink.

Nothing here may stop the daemon. A line that can't be written is dropped and counted. Any
thread may log, and a line may be logged in the middle of another (a finalizer fails while
memory is collected): loguru refuses that one, and it is written directly.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from time import localtime, strftime, time
from typing import Any

from duet_rpc.failures import FAILURES, describe, name_of, traceback_of
from duet_rpc.jsonrpc.limits import LOG_GRACE, LOG_VALUE_MAX
from duet_rpc.sinks import File, SinkError, Stream, open_sink

LEVELS = {"debug": 10, "info": 20, "warn": 30, "error": 40}
DEBUG, INFO, WARN, ERROR = LEVELS.values()

MESSAGE_MAX = 1000  # characters

LOCK_TIMEOUT = 0.5
"""Seconds that a line waits for another thread's; then it is written all the same."""

AUTOINIT = "LOGURU_AUTOINIT"

# The same line twice: for loguru, and as it is written before loguru is imported.
FORMAT = "<dim>{time:YYYY-MM-DDTHH:mm:ss.SSSZ}</dim> <level>{level:<5}</level> {message}"
WARN_COLOR = "<yellow><bold>"
COLORS = {
    "DEBUG": "\x1b[34m\x1b[1m",
    "INFO": "\x1b[1m",
    "WARN": "\x1b[33m\x1b[1m",
    "ERROR": "\x1b[31m\x1b[1m",
}


class Log:
    """The lines from a level on, and the sink that they are written to."""

    def __init__(self, level: str, path: str | None = None, color: bool = False) -> None:
        self.level = LEVELS[level]
        self.with_texts = False  # of exceptions, with their tracebacks, for the author
        self.logs_refusals = True  # unless the client shows them where the log is shown
        self.logs_lifecycle = True  # unless a router tells of it
        self.loguru_started = False
        self._target: Stream | File = Stream(2, "stderr")
        self._color = color
        self._loguru: Any = None
        self._dropped = 0
        self._make_lock()
        # A method may fork while another thread is logging.
        os.register_at_fork(after_in_child=self._make_lock)
        if path:
            try:
                self._target = open_sink(path)
                self._color = False
            except SinkError as why:  # said whatever the level
                self._write("WARN", f"DUET_RPC_LOG {why}; logging to stderr")

    def _make_lock(self) -> None:
        self._lock = threading.RLock()

    @property
    def sink(self) -> str:
        """The path of the file that lines go to, or `stderr`."""
        return self._target.name

    @property
    def level_name(self) -> str:
        """The level as the command line has it."""
        return next(name for name, number in LEVELS.items() if number == self.level)

    def set_level(self, name: str) -> None:
        """Log from this level on."""
        self.level = LEVELS[name]

    def debug(self, message: str, method: str | None = None, id: str | None = None) -> None:
        """Log what a developer of a client wants to know."""
        self._add(DEBUG, message, method, id)

    def info(self, message: str, method: str | None = None, id: str | None = None) -> None:
        """Log what is worth knowing, and no fault."""
        self._add(INFO, message, method, id)

    def lifecycle(self, message: str) -> None:
        """Log that the process has started, or why it ends."""
        if self.logs_lifecycle:
            self.info(message)

    def warn(self, message: str, method: str | None = None, id: str | None = None) -> None:
        """Log a fault of the client's."""
        self._add(WARN, message, method, id)

    def error(
        self,
        message: str,
        method: str | None = None,
        id: str | None = None,
        traceback: str = "",
    ) -> None:
        """Log a fault of the daemon's, or of a method."""
        self._add(ERROR, message, method, id, traceback)

    def output(
        self,
        line: str,
        method: str | None = None,
        id: str | None = None,
        severity: str = "INFO",
    ) -> None:
        """Log what a method has printed, whatever the level: somebody wants to see it."""
        self._add(ERROR, line, method, id, severity=severity)

    def start_loguru(self) -> None:
        """Import loguru, and write every line through it from now on."""
        if self.loguru_started:
            return
        self.loguru_started = True
        try:
            logger, unused = import_loguru()
            self._loguru = make_logger(logger, self._target, self._color)
            if unused:
                logger.add(self._relay, level=0, format=lambda _: "", catch=False)
        except BaseException as error:  # noqa: BLE001 - whatever has that name, or its imports have
            self.warn(f"loguru can't be used ({name_of(error)}); writing log lines without it")

    def start_loguru_if_imported(self) -> None:
        """Start loguru where the user's methods have imported it, to have their lines too."""
        if "loguru" in sys.modules:
            self.start_loguru()

    def close(self) -> None:
        """Say what was dropped; this line and later ones may wait for room, 0.5 s in all."""
        self._target.allow_waiting(LOG_GRACE)
        with suppress(Exception):
            self._report_dropped()

    def _relay(self, message: Any) -> None:
        """Log a line that a method has logged through loguru."""
        record = message.record
        exception = record["exception"]
        error = None if exception is None else exception.value
        self.add(record["level"].no, record["message"], error)

    def add(self, number: int, message: str, error: BaseException | None = None) -> None:
        """Log what a method has logged through another logger, at that one's level."""
        traceback = ""
        if error is not None:
            message = f"{message}: {describe(error)}"
            if self.with_texts:
                traceback = traceback_of(error)
        self._add(number, message, traceback=traceback)

    def _add(
        self,
        number: int,
        message: str,
        method: str | None = None,
        id: str | None = None,
        traceback: str = "",
        severity: str | None = None,
    ) -> None:
        if number < self.level:
            return
        text = escape(message, MESSAGE_MAX)
        if id is not None:
            text = f"id={escape(id, LOG_VALUE_MAX)} {text}"
        if method is not None:
            text = f"method={quote(method)} {text}"
        for line in traceback.splitlines():
            text += f"\n  {escape(line, MESSAGE_MAX)}"
        self._write(severity or severity_of(number), text)

    def _write(self, severity: str, text: str) -> None:
        locked = self._lock.acquire(timeout=LOCK_TIMEOUT)
        try:
            self._report_dropped()
            self._emit(severity, text)
        except Exception:  # noqa: BLE001 - a full disk, a full pipe, a folder that is gone
            self._dropped += 1
        finally:
            if locked:
                self._lock.release()

    def _report_dropped(self) -> None:
        if self._dropped:
            self._emit("WARN", f"{self._dropped} log lines could not be written")
            self._dropped = 0

    def _emit(self, severity: str, text: str) -> None:
        if self._loguru is None or not self._emit_by_loguru(severity, text):
            self._target.write(render(severity, text, self._color))

    def _emit_by_loguru(self, severity: str, text: str) -> bool:
        """Return False where loguru did not write the line, and the sink is not to blame."""
        try:
            self._loguru.log(severity, text)
        except OSError:
            raise
        except FAILURES:  # it is in the middle of another line, or a method has broken it
            return False
        return True


def import_loguru() -> tuple[Any, bool]:
    """Return the logger that everybody shares, and whether nobody has set up a sink for it.

    Where this is its first import it gets no sink of its own, so that the one it is given has
    the number 0, which `logger.remove(0)` in a method's file removes.
    """
    if "loguru" in sys.modules:
        from loguru import logger

        try:
            logger.remove(0)
        except ValueError:
            return logger, False
        return logger, True
    before = os.environ.get(AUTOINIT)
    os.environ[AUTOINIT] = "no"
    try:
        from loguru import logger
    finally:
        del os.environ[AUTOINIT]
        if before is not None:
            os.environ[AUTOINIT] = before
    return logger, True


def make_logger(shared: Any, target: Stream | File, color: bool) -> Any:
    """Make a logger with a sink of its own, as loguru makes the one that everybody shares.

    `logger.remove()` in a method's file must not remove the daemon's sink.
    """
    logger = type(shared)(
        core=type(shared._core)(), exception=None, depth=0, record=False, lazy=False,
        colors=False, raw=False, capture=True, patchers=[], extra={},
    )  # fmt: skip
    logger.level("WARN", no=WARN, color=WARN_COLOR)
    logger.add(target, level=0, format=FORMAT, colorize=color, catch=False)
    return logger


def render(severity: str, text: str, color: bool) -> str:
    """Return a line that looks as loguru would write it."""
    now = time()
    local = localtime(now)
    zone = strftime("%z", local)
    date = strftime("%Y-%m-%dT%H:%M:%S", local)
    when = f"{date}.{int(now % 1 * 1000):03d}{zone[:3]}:{zone[3:5]}"
    if color:
        return f"\x1b[2m{when}\x1b[0m {COLORS[severity]}{severity:<5}\x1b[0m {text}\n"
    return f"{when} {severity:<5} {text}\n"


def severity_of(number: int) -> str:
    """Return the severity of a level; loguru has more levels than there are severities."""
    if number >= ERROR:
        return "ERROR"
    if number >= WARN:
        return "WARN"
    return "INFO" if number >= INFO else "DEBUG"


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
