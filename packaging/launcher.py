"""Start the program from what an earlier start of duet-rpc.pyz has unpacked.

In the archive this file is `_launcher`. shiv's own bootstrap spends about 40 ms on imports
before it looks into its cache, more than twice what Python itself takes to start. This
looks first, using modules that the program needs anyway, and leaves the first start and
whatever is not as usual to `_unpack`.
"""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import sys

BUILD = "@BUILD@"
"""A hash of everything in the archive, filled in by build.py."""


def launch() -> None:
    """Run the program, unpacking it first if need be."""
    # Ctrl-C during an import can turn into any other exception. Until `main` handles it, it
    # ends the process silently.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    archive = sys.path[0]
    # What is unpacked holds code that was compiled for exactly this Python.
    name = f"{BUILD}-{sys.implementation.cache_tag}-{sys.hexversion:x}"
    packages = find_in_usual_place(name)
    if not packages:
        from _unpack import prepare

        packages = prepare(archive, name)
    sys.path[0] = packages
    # Nothing of what is imported now is garbage, and to look for some takes 1.1 ms of the 25
    # until the first reply (Python 3.11, warm disk).
    gc.disable()
    try:
        from duet_rpc.cli import main
    except Exception:  # noqa: BLE001 - whatever a damaged file can lead to
        sys.path[0] = archive
        from _unpack import import_again

        main = import_again(archive, name, packages)
    gc.freeze()
    gc.enable()
    main()


def find_in_usual_place(name: str) -> str | None:
    """Return the packages in the user's cache, unless shiv's variables ask for another place."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME", "") + "/.cache"
    if not cache.startswith("/") or any(each.startswith("SHIV_") for each in os.environ):
        return None
    return find(f"{cache}/duet-rpc", name)


def find(root: str, name: str) -> str | None:
    """Return the path of the packages of a build, or None if they are not fit for use.

    They stay locked until the process ends, so that no other process deletes them.
    """
    build = f"{root}/{name}"
    packages = f"{build}/site-packages"
    try:
        directory = leave_standard_streams(os.open(packages, os.O_RDONLY))
    except OSError:
        return None
    try:
        # Code is loaded only from folders that nobody else can write to. Inside of these no
        # part of the path can be exchanged between this check and the import.
        if all(map(is_private, (os.lstat(root), os.lstat(build), os.fstat(directory)))):
            fcntl.flock(directory, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if is_complete(build):
                return packages
    except (OSError, ValueError):
        pass  # deleted, being deleted, or with a damaged manifest
    os.close(directory)
    return None


def leave_standard_streams(descriptor: int) -> int:
    """Return a copy above 2, so that a standard stream that was closed stays closed."""
    if descriptor > 2:
        return descriptor
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return copy


def is_private(status: os.stat_result) -> bool:
    """Return whether this is a folder of the user's own that nobody else can write to."""
    return status.st_uid == os.geteuid() and status.st_mode & 0o170022 == 0o040000


def is_complete(build: str) -> bool:
    """Return whether all files still have the size and the time they were written with.

    That finds files that were cut short, changed or deleted. Reading them to compare hashes
    would take four times as long, and far longer from a cold disk. Only a power failure leaves
    a file's size and time and not its contents, so hashes are compared once after each start of
    the machine (`_unpack.recheck`).
    """
    with open(f"{build}/manifest", encoding="ascii") as manifest:
        first, *lines = manifest.read().split("\n")
    count, written, _, checked = first.split(" ")
    if checked != start_of_machine() or len(lines) != int(count):
        return False
    # Names are looked up from the folder: the whole path, 500 times, takes a quarter longer.
    folder, time = os.open(build, os.O_RDONLY), int(written)
    try:
        for line in lines:
            size, name = line.split(" ", 1)
            status = os.stat(name, dir_fd=folder)
            if status.st_size != int(size) or status.st_mtime != time:
                return False
    finally:
        os.close(folder)
    return True


def start_of_machine() -> str:
    """Return a name for the time since the machine was started; empty where there is none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
