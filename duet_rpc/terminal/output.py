"""Text for a person: colour where it can be seen, and lines on stderr that never fail."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

COLORS = {
    "key": "34",
    "string": "32",
    "number": "36",
    "literal": "35",
    "good": "32",
    "bad": "31",
    "warning": "33",
    "faint": "2",
}


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal; one that was closed before the start is None."""
    return stream is not None and stream.isatty()


def wants_color(stream: TextIO | None, no_color: bool) -> bool:
    """Return whether to use colour on a stream."""
    if no_color or os.environ.get("NO_COLOR") or not is_terminal(stream):
        return False
    return os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, color: bool) -> str:
    """Return a text in the colour of its style, or as it is without colour."""
    return f"\x1b[{COLORS[style]}m{text}\x1b[0m" if color else text


def print_error(message: str, color: bool = False) -> None:
    """Print an error message to stderr, with the program's name in front."""
    print_stderr(f"{paint('duet-rpc:', 'bad', color)} {message}")


def print_stderr(text: str, end: str = "\n") -> None:
    """Print to stderr; ignore a stderr that is closed, full or gone."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text + end)
        sys.stderr.flush()
    except OSError:
        # What is left in the buffer would fail again when the process exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
