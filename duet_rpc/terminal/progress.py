"""A progress bar on stderr while a method runs, erased when it is done.

The cursor stays at the beginning of the bar, so that a line which the daemon logs meanwhile
overwrites the bar instead of being appended to it.
"""

from __future__ import annotations

import os
import sys
from time import monotonic
from unicodedata import combining, east_asian_width

from duet_rpc.log import escape
from duet_rpc.terminal.output import is_terminal

WIDTH = 30
INTERVAL = 0.05
"""Seconds between two drawings at least: a method may report faster than a terminal draws."""


class Bar:
    """A progress bar; visible where stderr is a terminal that can erase a line."""

    def __init__(self) -> None:
        self.visible = is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"
        self._drawn = False
        self._next = 0.0

    def show(self, params: object) -> None:
        """Draw the params of a $/progress notification; ignore malformed ones."""
        value = params.get("value") if isinstance(params, dict) else None
        if not self.visible or not isinstance(value, dict) or monotonic() < self._next:
            return
        text = bar_text(value.get("done"), value.get("total"), value.get("message"))
        if text:
            sys.stderr.write(f"\r\x1b[K{fit(text, self._columns() - 1)}\r")
            sys.stderr.flush()
            self._drawn = True
            self._next = monotonic() + INTERVAL

    def erase(self) -> None:
        """Erase the bar, if it was drawn."""
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False

    @staticmethod
    def _columns() -> int:
        try:
            return os.get_terminal_size(sys.stderr.fileno()).columns or 80
        except OSError:
            return 80


def bar_text(done: object, total: object, message: object) -> str:
    """Return the bar: a percentage where the total is known, else a count."""
    if not isinstance(done, (int, float)):
        return ""
    if isinstance(total, (int, float)) and total > 0:
        share = min(1.0, max(0.0, done / total))
        full = int(share * WIDTH)
        text = f"[{'#' * full}{'-' * (WIDTH - full)}] {int(share * 100):3d}%"
    else:
        text = f"[{done:g}]" if isinstance(done, float) else f"[{done}]"
    return f"{text} {escape(message, 200)}" if isinstance(message, str) and message else text


def fit(text: str, columns: int) -> str:
    """Cut a text to a number of columns: a line that wraps cannot be erased."""
    used = 0
    for index, character in enumerate(text):
        wide = east_asian_width(character) in "WF"
        used += 0 if combining(character) else 2 if wide else 1
        if used > columns:
            return text[:index]
    return text
