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
    from duet_rpc.config import xdg_folder

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


def _write(lines: list[str], environ: Mapping[str, str]) -> None:
    path = record_path(environ)
    if path is None:
        raise NoRecord("there is no home directory to keep the record in: set HOME")
    fresh = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(
            descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="\n"
        ) as file:
            file.writelines(f"{line}\n" for line in lines)
        os.replace(fresh, path)
    except OSError as error:
        raise NoRecord(f"{path} can't be written: {error.strerror}") from None


def is_trusted(path: str, text: str, environ: Mapping[str, str]) -> bool:
    """Return True for a file whose very text the user has trusted."""
    return _entry(path, text) in _read(environ)


def forget(path: str, environ: Mapping[str, str]) -> bool:
    """Withdraw the trust in a file; True where there was any."""
    lines = _read(environ)
    suffix = f" {_name(path)}"
    left = [line for line in lines if not line.endswith(suffix)]
    if left != lines:
        _write(left, environ)
    return left != lines


def remember(path: str, text: str, environ: Mapping[str, str]) -> None:
    """Trust a file as it is now."""
    forget(path, environ)
    _write([*_read(environ), _entry(path, text)], environ)


# The commands.


def trust(path: str, yes: bool, environ: Mapping[str, str]) -> int:
    """Show what a project's file would run, ask, and record the answer."""
    from duet_rpc.config_file import read, read_backends, resolve
    from duet_rpc.log import escape

    text, tables = read(path)
    print(f"{escape(path, SHOWN_MAX)} would run, whenever duet-rpc starts in its folder:")
    named = False
    methods, backends = tables.get("methods"), tables.get("backends")
    sources = methods.get("load") if isinstance(methods, dict) else None
    for source in sources if isinstance(sources, list) else ():
        print(f"  {escape(resolve(str(source), path), SHOWN_MAX)}")
        named = True
    for backend in read_backends(path, text, backends) if isinstance(backends, dict) else ():
        print(f"  {escape(str(backend), SHOWN_MAX)}  (backend {backend.name})")
        named = True
    if not named:
        print("  nothing")
    if is_trusted(path, text, environ):
        print("It is trusted already.")
        return 0
    if not yes:
        if not sys.stdin.isatty():
            print("duet-rpc: not trusted: add --yes where nobody can be asked", file=sys.stderr)
            return 1
        try:
            answer = input("Trust this file as it is now? [y/N] ")
        except EOFError:
            answer = ""
        if answer.strip().lower() not in ("y", "yes"):
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
