"""The names that a person probably meant. Imported only once something went wrong."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def did_you_mean(word: str, names: Iterable[str], most: int = 1) -> str:
    """Return `did you mean 'x'?` for the names closest to a word; "" where none is close."""
    lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(word.lower(), lower, most)
    return f"did you mean {' or '.join(repr(lower[each]) for each in found)}?" if found else ""
