"""The record of the project files that the user trusts.

A file is trusted by its path and the hash of its text, so that a change of the file
withdraws the trust. The record is a file of the user's, with one line for each trusted file.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from fcntl import LOCK_EX, flock
from typing import TYPE_CHECKING

from duet_rpc.config.files import xdg_folder

if TYPE_CHECKING:
    from collections.abc import Mapping


class RecordError(Exception):
    """The record cannot be written; the text says why."""


def is_trusted(path: str, text: str, environ: Mapping[str, str]) -> bool:
    """Return whether the user trusts the file with exactly this text."""
    return _entry(path, text) in _read(environ)


def remember(path: str, text: str, environ: Mapping[str, str]) -> None:
    """Record that the user trusts the file with this text."""
    _replace(path, [_entry(path, text)], environ)


def forget(path: str, environ: Mapping[str, str]) -> bool:
    """Remove the file from the record; return whether it was there."""
    recorded = _name(path) in [line.partition(" ")[2] for line in _read(environ)]
    if recorded:
        _replace(path, [], environ)
    return recorded


def record_path(environ: Mapping[str, str]) -> str | None:
    """Return the path of the record; None where there is no home directory for it."""
    base = xdg_folder(environ, "XDG_STATE_HOME", ".local/state")
    return base and os.path.join(base, "duet-rpc", "trusted")


def _entry(path: str, text: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{digest} {_name(path)}"


def _name(path: str) -> str:
    """Return a file's path with its real folder, in one line.

    A link to the file is not followed: the file names others beside it, and those are not
    beside the link.
    """
    folder, file = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), file).replace("\\", "\\\\").replace("\n", "\\n")


def _read(environ: Mapping[str, str]) -> list[str]:
    path = record_path(environ)
    try:
        with open(path or "", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            return file.read().split("\n")[:-1]
    except OSError:
        return []


def _replace(path: str, entries: list[str], environ: Mapping[str, str]) -> None:
    """Replace all entries for a file by these."""
    record = record_path(environ)
    if record is None:
        raise RecordError("no home directory for the record of trusted files; set HOME")
    try:
        os.makedirs(os.path.dirname(record), mode=0o700, exist_ok=True)
        lock = os.open(f"{record}.lock", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            with suppress(OSError):  # a file system without locks
                flock(lock, LOCK_EX)
            name = _name(path)
            others = [line for line in _read(environ) if line.partition(" ")[2] != name]
            _write(record, [*others, *entries])
        finally:
            os.close(lock)
    except OSError as error:
        raise RecordError(f"cannot write {record}: {error.strerror}") from None


def _write(record: str, lines: list[str]) -> None:
    """Replace the record atomically."""
    temporary = f"{record}.{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with open(
            descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="\n"
        ) as file:
            file.writelines(f"{line}\n" for line in lines)
        os.replace(temporary, record)
    except OSError:
        os.unlink(temporary)
        raise
