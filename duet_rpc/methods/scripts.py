"""Which files of methods are workers of their own: those with a block that PEP 723 describes.

The daemon asks that of every file before its first reply and whenever it looks for methods, so
a file is read once, and again when it has changed.
"""

from __future__ import annotations

import os

from duet_rpc.environments.script import find_block
from duet_rpc.methods.changes import changed_at, is_being_saved, read


class Scripts:
    """The blocks of files, as they were when each was looked at last."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, str | None]] = {}  # when it was changed; the block

    def block_of(self, path: str) -> str | None:
        """Return the text of a file's block; None where it has none, or can't be read."""
        found = self._look(path)
        return None if found is None else found[1]

    def is_plain(self, path: str) -> bool:
        """Return whether there is such a file, and it has no block."""
        found = self._look(path)
        return found is not None and found[1] is None

    def _look(self, path: str) -> tuple[int, str | None] | None:
        time = changed_at(path)
        if time is None:
            self._known.pop(path, None)
            return None
        known = self._known.get(path)
        if known is None or known[0] != time:
            text = (read(path) or b"").decode("utf-8", "replace")
            if not text and known is not None and is_being_saved(path):
                return known  # an editor has emptied it and is about to write
            known = self._known[path] = time, find_block(text)
        return known

    def is_script(self, source: str) -> bool:
        """Return whether a source of methods is a file with a block."""
        return os.path.isabs(source) and self.block_of(source) is not None
