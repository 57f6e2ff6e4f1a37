"""What is logged about a backend: its stderr, prefixed and at a limited rate, and its state."""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.limits import STDERR_LINES, STDERR_RATE, STDERR_SHOWN_MAX

if TYPE_CHECKING:
    from duet_rpc.log import Log


class BackendLog:
    """The log of one backend, and the end of its stderr."""

    def __init__(self, title: str, log: Log) -> None:
        self._prefix = f"{title}: "
        self._log = log
        self.tail: deque[str] = deque(maxlen=STDERR_LINES)
        self._since_start = 0  # lines of stderr
        self._second = self._count = 0  # lines logged in this second

    def debug(self, text: str) -> None:
        """Log what helps a developer."""
        self._log.debug(self._prefix + text)

    def info(self, text: str) -> None:
        """Log a step of its lifecycle."""
        self._log.info(self._prefix + text)

    def warn(self, text: str, method: str | None = None) -> None:
        """Log what the backend did wrong."""
        self._log.warn(self._prefix + text, method)

    def error(self, text: str) -> None:
        """Log that the backend can't be used."""
        self._log.error(self._prefix + text)

    def output(self, text: str, severity: str | None = None) -> None:
        """Log what the backend can cause without end; lines beyond the rate are counted.

        With a severity, whatever the level.
        """
        second = int(monotonic())
        if second != self._second:
            if self._count > STDERR_RATE:
                self.warn(f"{self._count - STDERR_RATE} lines were left out")
            self._second, self._count = second, 0
        self._count += 1
        if self._count > STDERR_RATE:
            return
        if severity is None:
            self.info(text)
        else:
            self._log.output(self._prefix + text, severity=severity)

    def keep(self, line: str) -> None:
        """Keep a line of its stderr, to be shown if it exits."""
        self.tail.append(line)
        self._since_start += 1

    def started(self) -> None:
        """Note that a new process writes from now on."""
        self._since_start = 0

    def since_start(self) -> str:
        """Return the end of what the current process has written to stderr."""
        return self.end_of(list(self.tail)[-self._since_start :] if self._since_start else [])

    def end(self) -> str:
        """Return the end of what its processes have written to stderr."""
        return self.end_of(list(self.tail))

    @staticmethod
    def end_of(lines: list[str]) -> str:
        """Return the last lines, cut: thousands of errors may have them."""
        return "\n".join(lines)[-STDERR_SHOWN_MAX:]
