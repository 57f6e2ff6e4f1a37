"""Lists that are kept on disk, so that nobody has to be started to be listed.

One file for each worker or server, written whole or not at all, for the user alone. What can't be
read or written, what is too large, and what is not as it was written, is as if it had never
been kept. The name of a file begins with our version: those of others are removed.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from hashlib import sha256
from stat import S_ISREG
from typing import TYPE_CHECKING

from duet_rpc import __version__
from duet_rpc.config.files import xdg_folder
from duet_rpc.jsonrpc.jsontext import NOT_JSON, loads
from duet_rpc.methods.changes import changed_at
from duet_rpc.methods.sources import files_in
from duet_rpc.workers.order import read_order

if TYPE_CHECKING:
    from duet_rpc.gateway.backend import Backend

FOLDER = "lists"
SIZE_MAX = 4 * 1024 * 1024
"""Bytes of one file."""

VERSION = f"{__version__}-"
"""How the names of files begin that this version can read."""

UNREADABLE = (OSError, ValueError, RecursionError)


class Kept:
    """The list of one worker or server, as it was when it last ran."""

    def __init__(self, owner: str) -> None:
        base = xdg_folder(os.environ, "XDG_CACHE_HOME", ".cache")
        self._folder = base and os.path.join(base, "duet-rpc", FOLDER)
        self._name = VERSION + sha256(owner.encode("utf-8", "replace")).hexdigest()[:32]

    @property
    def _path(self) -> str:
        return os.path.join(self._folder or "", f"{self._name}.json")

    def read(self, stamp: str) -> object:
        """Return the list that was kept under a stamp; None where another or none was."""
        if self._folder is None:
            return None
        with suppress(*UNREADABLE), open(self._path, "rb", opener=_own_file) as file:
            kept = json.loads(file.read(SIZE_MAX))
            if isinstance(kept, dict) and kept.get("stamp") == stamp:
                return kept.get("list")
        return None

    def write(self, stamp: str, value: object) -> None:
        """Write a list to disk, with the stamp that it is valid for."""
        if self._folder is None:
            return
        fresh = f"{self._path}.{os.getpid()}.tmp"
        try:
            text = json.dumps({"stamp": stamp, "list": value})
            if len(text) < SIZE_MAX:
                os.makedirs(self._folder, mode=0o700, exist_ok=True)
                with open(fresh, "w", opener=_private) as file:
                    file.write(text)
                os.replace(fresh, self._path)
                _remove_old(self._folder)
        except UNREADABLE:
            with suppress(OSError):
                os.unlink(fresh)


def _remove_old(folder: str) -> None:
    """Remove the lists of other versions: they are written again where one is still in use."""
    for entry in os.scandir(folder):
        if not entry.name.startswith(VERSION) and entry.is_file(follow_symlinks=False):
            os.unlink(entry.path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _own_file(path: str, flags: int) -> int:
    """Open a file, if it is one and the user's own: neither a pipe nor somebody else's."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    found = os.fstat(descriptor)
    if S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
        return descriptor
    os.close(descriptor)
    raise OSError(f"{path} is not a file of this user's")


class KeptLists:
    """What MCP servers have listed: the texts of their entries, by the method that lists them."""

    def __init__(self) -> None:
        self._documents: dict[str, tuple[str, dict[str, list[str]]]] = {}  # by name; and the stamp

    def read(self, backend: Backend, method: str) -> list[str] | None:
        """Return what a server listed the last time; None where that is not known."""
        return self._document(backend).get(method)

    def write(self, backend: Backend, method: str, texts: list[str]) -> None:
        """Keep what a server lists, if it is something else than before."""
        document = self._document(backend)
        if document.get(method) != texts:
            document[method] = texts
            Kept(_owner_of(backend)).write(_stamp_of(backend), document)

    def _document(self, backend: Backend) -> dict[str, list[str]]:
        stamp = _stamp_of(backend)
        known = self._documents.get(backend.name)
        if known is None or known[0] != stamp:
            found = Kept(_owner_of(backend)).read(stamp)
            document = {
                str(method): texts
                for method, texts in (found.items() if isinstance(found, dict) else ())
                if isinstance(texts, list) and all(map(_is_object, texts))
            }
            known = self._documents[backend.name] = (stamp, document)
        return known[1]


def _stamp_of(backend: Backend) -> str:
    """Return what a list depends on: the version of MCP, and the files of the user's methods."""
    params = backend.session.params
    stamp = "" if params is None else params.version
    files: list[str] = []
    if backend.settings.kind == "worker":
        order = read_order(backend.settings.env)
        files = [*order.methods, *files_in(order.folder)]
    return json.dumps([stamp, [[each, changed_at(each)] for each in files]])


def _owner_of(backend: Backend) -> str:
    settings = backend.settings
    tools = getattr(settings, "tools", None)
    return json.dumps(["mcp", settings.command, settings.cwd, settings.env, tools])


def _is_object(text: object) -> bool:
    try:
        return isinstance(text, str) and isinstance(loads(text), dict)
    except NOT_JSON:
        return False
