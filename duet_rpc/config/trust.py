"""Which project files the user has looked at and found good.

A file is trusted by its path and the hash of its text, so that changing it withdraws
the trust. The record is the user's own file, one line for each trusted file.
"""

from __future__ import annotations

import hashlib
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


SHOWN_MAX = 4000  # characters of one command


class NoRecord(Exception):
    """The record can't be written; the text says why and what to do."""


def record_path(environ: Mapping[str, str]) -> str | None:
    """Return where the record is kept; None without a home directory to keep it in."""
    from duet_rpc.config.files import xdg_folder

    base = xdg_folder(environ, "XDG_STATE_HOME", ".local/state")
    return base and os.path.join(base, "duet-rpc", "trusted")


def _name(path: str) -> str:
    """Name a file by its real folder, in one line.

    Not by what a link leads to: the file names others beside it, and those are not beside
    the link.
    """
    folder, file = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), file).replace("\\", "\\\\").replace("\n", "\\n")


def _entry(path: str, text: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{digest} {_name(path)}"


def _read(environ: Mapping[str, str]) -> list[str]:
    path = record_path(environ)
    try:
        with open(path or "", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            return file.read().split("\n")[:-1]
    except OSError:
        return []


def _replace(path: str, entries: list[str], environ: Mapping[str, str]) -> None:
    """Let the record hold these entries for a file, and no others for it."""
    from contextlib import suppress
    from fcntl import LOCK_EX, flock

    record = record_path(environ)
    if record is None:
        raise NoRecord("there is no home directory to keep the record in: set HOME")
    try:
        os.makedirs(os.path.dirname(record), mode=0o700, exist_ok=True)
        lock = os.open(f"{record}.lock", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            with suppress(OSError):  # where there are no locks we go without
                flock(lock, LOCK_EX)
            name = _name(path)
            others = [line for line in _read(environ) if line.partition(" ")[2] != name]
            _write(record, [*others, *entries])
        finally:
            os.close(lock)
    except OSError as error:
        raise NoRecord(f"{record} can't be written: {error.strerror}") from None


def _write(record: str, lines: list[str]) -> None:
    """Put a new record in the place of the old one, whole or not at all."""
    fresh = f"{record}.{os.getpid()}"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with open(
            descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="\n"
        ) as file:
            file.writelines(f"{line}\n" for line in lines)
        os.replace(fresh, record)
    except OSError:
        os.unlink(fresh)
        raise


def is_trusted(path: str, text: str, environ: Mapping[str, str]) -> bool:
    """Return True for a file whose very text the user has trusted."""
    return _entry(path, text) in _read(environ)


def forget(path: str, environ: Mapping[str, str]) -> bool:
    """Withdraw the trust in a file; True where there was any."""
    there = _name(path) in [line.partition(" ")[2] for line in _read(environ)]
    if there:
        _replace(path, [], environ)
    return there


def remember(path: str, text: str, environ: Mapping[str, str]) -> None:
    """Trust a file as it is now."""
    _replace(path, [_entry(path, text)], environ)


# The commands.


def trust(path: str, yes: bool, environ: Mapping[str, str]) -> int:
    """Show what a project's file would run, ask, and record the answer."""
    from duet_rpc.config.files import Config
    from duet_rpc.config.settings import fill, read
    from duet_rpc.log import escape
    from duet_rpc.terminal.pretty import is_terminal, say

    text, tables = read(path)
    config = Config()
    fill(config, path, text, tables)  # trust in a file that no command can read is of no use
    print(f"{escape(path, SHOWN_MAX)} would run, whenever duet-rpc starts in its folder:")
    for source in config.methods:
        print(f"  {escape(source, SHOWN_MAX)}")
    for backend in config.backends.values():
        print(f"  {escape(str(backend), SHOWN_MAX)}  (backend {backend.name})")
    if not config.methods and not config.backends:
        print("  nothing")
    if is_trusted(path, text, environ):
        print("It is trusted already.")
        return 0
    if not yes:
        if not is_terminal(sys.stdin) or sys.stdout is None:
            say("duet-rpc: not trusted: add --yes where nobody can be asked")
            return 1
        # Not `input`, which wants a stderr too, and an answer that is text.
        print("Trust this file as it is now? [y/N] ", end="", flush=True)
        answer = sys.stdin.buffer.readline().strip().lower()
        if answer not in (b"y", b"yes"):
            print("Not trusted.")
            return 1
    remember(path, text, environ)
    print("Trusted. Changing the file withdraws the trust; so does `duet-rpc untrust`.")
    return 0


def untrust(path: str, environ: Mapping[str, str]) -> int:
    """Withdraw the trust in a project's file."""
    from duet_rpc.log import escape

    there = forget(path, environ)
    print(f"{escape(path, SHOWN_MAX)} is {'no longer' if there else 'not'} trusted.")
    return 0
