"""What methods print and log, on its way to the daemon's log.

`print`, `warnings` and the `logging` of the standard library become lines of the daemon's own
log, with time and severity, wherever that is written. What a method writes to `sys.stderr`, or
C code to descriptors 1 and 2, goes to stderr as it is. Methods that log through loguru are
dealt with in `log`.
"""

from __future__ import annotations

import sys
from io import TextIOBase
from threading import get_ident
from types import ModuleType
from typing import TYPE_CHECKING, Any

from duet_rpc.log import WARN

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from duet_rpc.log import Log

LINE_MAX = 64 * 1024
"""Characters after which a line that does not end is logged all the same."""


class MethodOutput:
    """Takes what methods print, warn of and log, and writes it to the log."""

    def __init__(self, log: Log, hold: Callable[[], AbstractContextManager[None]]) -> None:
        self._log = log
        self._hold = hold  # a cancel must not cut a line in half
        self._printed = Printed(self)
        self._takes_logging = False
        self.source: tuple[str | None, str | None] = None, None  # the method that runs, the id

    def install(self) -> None:
        """Take what is printed, and warnings."""
        import warnings  # imported by Python itself

        sys.stdout = self._printed
        warnings.showwarning = self._log_warning

    def take_logging(self) -> str:
        """Take what is logged through `logging`, where somebody has imported that."""
        logging: Any = sys.modules.get("logging")
        if self._takes_logging or type(logging) is not ModuleType or not hasattr(logging, "root"):
            return ""
        self._takes_logging = True
        log, hold = self._log, self._hold

        class Handler(logging.Handler):  # type: ignore[misc]
            """Hands records on."""

            def emit(self, record: Any) -> None:
                """Log a record."""
                error = record.exc_info[1] if record.exc_info else None
                try:
                    text = f"{record.name}: {record.getMessage()}"
                except Exception as wrong:  # noqa: BLE001 - as `logging` does, let the method go on
                    error, place = wrong, f"{record.filename}:{record.lineno}"
                    text = f"{record.name}: a line that can't be formatted ({place})"
                with hold():
                    log.add(record.levelno, text, error)

        logging.root.addHandler(Handler())
        if log.with_texts and logging.root.level == logging.WARNING:
            logging.root.setLevel(log.level)  # the author wants to see it all
        # What `basicConfig` has added would write everything a second time.
        for each in [*logging.root.handlers]:
            stream = getattr(each, "stream", None)
            if stream is not None and (stream is sys.stdout or stream is sys.stderr):
                logging.root.removeHandler(each)
        return ""

    def log_line(self, line: str) -> None:
        """Log a line that was printed."""
        with self._hold():
            self._log.output(line, *self.source)

    def finish(self) -> None:
        """Log a line that was begun, and take what others print, whatever a method has done."""
        self._printed.finish()
        sys.stdout = self._printed

    def _log_warning(
        self, message: object, category: type, filename: str, lineno: int, *_: object, **__: object
    ) -> None:
        place = f"{filename.rpartition('/')[2]}:{lineno}"
        text = f"{category.__name__}: {message} ({place})"
        with self._hold():
            self._log.add(WARN, text)


class Printed(TextIOBase):
    """Stands in for `sys.stdout`."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, output: MethodOutput) -> None:
        super().__init__()
        self._output = output
        self._begun: dict[int, str] = {}  # by thread, so that lines of several stay whole

    @property
    def buffer(self) -> Any:
        """Where bytes can be written."""
        return getattr(sys.__stderr__, "buffer", None)

    def fileno(self) -> int:
        """Return the descriptor that a child process can be given."""
        return 2

    def writable(self) -> bool:
        """Return True, as for any stream that is written to."""
        return True

    def close(self) -> None:
        """Stay open: it is not the method's own."""

    def write(self, text: str) -> int:
        """Log each line that is complete."""
        thread = get_ident()
        *lines, begun = (self._begun.pop(thread, "") + text).split("\n")
        if len(begun) > LINE_MAX:
            lines.append(begun)
        elif begun:
            self._begun[thread] = begun
        for line in lines:
            self._output.log_line(line)
        return len(text)

    def finish(self) -> None:
        """Log the lines that were begun."""
        for thread in [*self._begun]:
            begun = self._begun.pop(thread, "")
            if begun:
                self._output.log_line(begun)
