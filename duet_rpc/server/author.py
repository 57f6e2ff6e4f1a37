"""What the author of the methods is told, and what the log says instead to everybody else.

By itself the daemon keeps the text of an exception to itself. With `--debug` the client and the
author are the same person: the log has texts and tracebacks, and what the author should know at
once is sent to the client as `client/say`.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from duet_rpc.failures import SafeText, describe, traceback_of
from duet_rpc.jsonrpc.errors import REQUEST_CANCELLED, TITLES
from duet_rpc.jsonrpc.jsontext import dumps, write_id
from duet_rpc.jsonrpc.messages import Request
from duet_rpc.program import archive_path, program_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from duet_rpc.log import Log
    from duet_rpc.server.dispatch import Refused
    from duet_rpc.server.intake import Call


class Author:
    """Tells the author what went wrong, as much as this client may know."""

    def __init__(
        self,
        log: Log,
        debug: bool,
        hold: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._log = log
        self.debug = log.with_texts = debug
        self._hold = hold  # a cancel must not cut a message in half
        self.notify: Callable[[str, str], None] | None = None  # the client, where it is the author

    # Calls.

    def log_refusal(self, refused: Refused, message: Call) -> None:
        """Log a call that has no result."""
        if not self._log.logs_refusals and (refused.cause is None or refused.details):
            return
        error, method, id = refused.error, message.method, id_text(message)
        if refused.cause is not None:
            self.log_failure(TITLES.get(error.code, error.message), refused, message)
        elif error.code == REQUEST_CANCELLED:
            self._log.info(error.message, method, id)
        else:  # the message may repeat what the client sent: the log does not
            title = TITLES.get(error.code, f"refused with error {error.code}")
            self._log.warn(title, method, id)

    def log_failure(self, what: str, refused: Refused, message: Call) -> None:
        """Log what a method has raised: type and place, and for its author all of it."""
        assert refused.cause is not None  # noqa: S101 - for the type checker
        described, details = describe(refused.cause), refused.details or {}
        text = details.get("text")
        if text and not issubclass(type(refused.cause), SafeText):
            described = described.replace(" (", f": {text} (", 1)
        trace = details.get("traceback", "")
        self._log.error(f"{what}: {described}", message.method, id_text(message), trace)

    # Files.

    def report_load_problem(self, problem: str, traceback: str) -> None:
        """Say what is wrong with a file of the user's."""
        if self._log.logs_refusals:
            self._log.error(f"a method could not be loaded: {problem}", traceback=traceback)
        self._say(problem, "error", traceback)

    def _say(self, text: str, level: str, traceback: str = "") -> None:
        if self.notify is not None and self.debug:
            said = {"text": text, "level": level}
            params = dumps({**said, "traceback": traceback} if traceback else said)
            with self._hold():
                self.notify("client/say", params)

    # What Python itself would print.

    def install_hooks(self) -> None:
        """Log what is raised where no method can catch it, instead of a traceback."""
        threading.excepthook = sys.unraisablehook = self._report_uncaught
        if not os.environ.get("PYTHONBREAKPOINT"):  # which names a debugger of the user's own
            sys.breakpointhook = self._ignore_breakpoint

    def _report_uncaught(self, args: Any) -> None:
        error = args.exc_value
        if error is not None and not issubclass(type(error), SystemExit):
            trace = traceback_of(error) if self.debug else ""
            self._log.error(f"{describe(error)}, ignored", traceback=trace)

    def _ignore_breakpoint(self, *_: object, **__: object) -> None:
        """Say how to debug a method: there is no terminal here."""
        frame = sys._getframe(1)
        place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        archive = archive_path()  # a client of ours starts it where the PATH has none
        program = program_name() if archive is None else f"python3 {archive}"
        text = f"breakpoint() at {place} is ignored in the daemon; "
        text += f"to stop there, run `{program} call --pdb METHOD ...` in a terminal"
        if self._log.logs_refusals:
            with self._hold():
                self._log.warn(text)
        self._say(text, "warn")


def id_text(message: Call) -> str | None:
    """Return a request's id as the log shows it; a notification has none."""
    return write_id(message.id) if isinstance(message, Request) else None
