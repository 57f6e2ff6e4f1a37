"""The pieces of a stream, printed as they come."""

from __future__ import annotations

import sys

from duet_rpc.terminal.output import is_terminal
from duet_rpc.terminal.pretty import write_json
from duet_rpc.terminal.results import CONTROL

STREAMED = object()
"""The result of a method whose result has been printed, piece by piece."""


class Stream:
    """Prints pieces to stdout: texts one behind the other, other values as JSON."""

    def __init__(self, color: bool) -> None:
        self._color = color
        self._in_line = False  # the last text has not ended its line
        self.used = False

    def show(self, value: object) -> None:
        """Print what one message has brought."""
        self.used = True
        if isinstance(value, str):
            self._write(value)
        elif isinstance(value, list):
            for piece in value:
                if isinstance(piece, str):
                    self._write(piece + "\n")
                else:
                    write_json(piece, self._color)

    def _write(self, text: str) -> None:
        if is_terminal(sys.stdout):
            text = CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._in_line = not text.endswith("\n")

    def finish(self) -> None:
        """End the last line."""
        if self._in_line:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._in_line = False
