"""Lists that are kept on disk, so that nobody has to be started to be listed.

One file for each worker or server, written whole or not at all. What can't be read or written
is as if it had never been kept.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from hashlib import sha256

from duet_rpc import __version__
from duet_rpc.config.files import xdg_folder

FOLDER = "lists"
SIZE_MAX = 4 * 1024 * 1024
"""Bytes of one list."""


class Kept:
    """The list of one worker or server, as it was when it last ran."""

    def __init__(self, owner: str) -> None:
        base = xdg_folder(os.environ, "XDG_CACHE_HOME", ".cache")
        self._folder = base and os.path.join(base, "duet-rpc", FOLDER)
        self._name = sha256(f"{__version__}\n{owner}".encode()).hexdigest()[:32]

    @property
    def _path(self) -> str:
        return os.path.join(self._folder or "", f"{self._name}.json")

    def read(self, stamp: str) -> object:
        """Return the list that was kept under a stamp; None where another or none was."""
        if self._folder is None:
            return None
        with suppress(OSError, ValueError, RecursionError), open(self._path, "rb") as file:
            kept = json.loads(file.read(SIZE_MAX))
            if isinstance(kept, dict) and kept.get("stamp") == stamp:
                return kept.get("list")
        return None

    def write(self, stamp: str, value: object) -> None:
        """Keep a list."""
        if self._folder is None:
            return
        fresh = f"{self._path}.{os.getpid()}.tmp"
        with suppress(OSError, ValueError, RecursionError):
            text = json.dumps({"stamp": stamp, "list": value})
            if len(text) < SIZE_MAX:
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
                with open(fresh, "w", opener=_private) as file:
                    file.write(text)
                os.replace(fresh, self._path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
