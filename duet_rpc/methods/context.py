"""What a method can say and ask while it runs.

A parameter annotated `Context` is not part of a method's signature; the server fills it
in. What it does is handed to it as functions, so that methods know no wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


class Cancelled(BaseException):
    """The caller has lost interest. Not an Exception, so that `except Exception` lets it by."""


class MethodLog:
    """Lines of a method in the daemon's log."""

    __slots__ = ("_add",)

    def __init__(self, add: Callable[[str, str], None]) -> None:
        self._add = add

    def debug(self, message: object) -> None:
        """Log at level debug."""
        self._add("debug", str(message))

    def info(self, message: object) -> None:
        """Log at level info."""
        self._add("info", str(message))

    def warn(self, message: object) -> None:
        """Log at level warn."""
        self._add("warn", str(message))

    def error(self, message: object) -> None:
        """Log at level error."""
        self._add("error", str(message))


class Context:
    """The call that a method is answering."""

    __slots__ = ("_is_cancelled", "_send_progress", "_uninterrupted", "log")

    def __init__(
        self,
        send_progress: Callable[[dict[str, object]], None] | None,
        add_log_line: Callable[[str, str], None],
        is_cancelled: Callable[[], bool],
        uninterrupted: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._send_progress = send_progress
        self._is_cancelled = is_cancelled
        self._uninterrupted = uninterrupted
        self.log = MethodLog(add_log_line)

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the caller how far it is, if the caller wants to know."""
        if self._send_progress is not None:
            self._send_progress({"done": done, "total": total, "message": message})

    @property
    def cancelled(self) -> bool:
        """True once the caller has cancelled the call; of use inside `uninterrupted`."""
        return self._is_cancelled()

    def uninterrupted(self) -> AbstractContextManager[None]:
        """Return a context in which a cancelled call goes on to the end of the block."""
        return self._uninterrupted()
