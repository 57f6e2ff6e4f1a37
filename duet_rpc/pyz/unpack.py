"""The slow part of starting duet-rpc.pyz: unpacking it once, and clearing old builds.

In the archive this file is `_unpack`, beside shiv's `_bootstrap`, whose extraction it
uses: into a temporary folder, under a lock, moved into place when whole. So ten
processes may start at once, and one that is killed on the way does no harm.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import zipfile
from pathlib import Path

OLD_BUILDS_KEPT = 2

# Commands that a signal ends with 0, at whatever moment it comes.
SERVERS = ("rpc", "mcp", "gateway")


def unpack(archive: str, roots: list[str], name: str) -> None:
    """Unpack into the first root that can be used, or into none."""
    from _bootstrap import extract_site_packages

    if any(word in SERVERS for word in sys.argv[1:]):
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: os._exit(0))
    # What is unpacked is the user's alone, whatever the usual mask.
    mask = os.umask(0o077)
    try:
        for root in roots:
            try:
                if not Path(root).parent.parent.is_dir():
                    continue  # a home directory that is not there is not made
                os.makedirs(root, exist_ok=True)
                if not is_private(root):
                    continue
                with zipfile.ZipFile(archive) as opened:
                    extract_site_packages(
                        opened, Path(root, name), compile_pyc=True, compile_workers=1
                    )
                clear(root, name)
            except OSError:
                continue
            return
    finally:
        os.umask(mask)


def is_private(root: str) -> bool:
    """Return True where nobody else can put a file into a directory."""
    seen = os.lstat(root)
    return seen.st_uid == os.geteuid() and (seen.st_mode & 0o170022) == 0o040000


def clear(root: str, current: str) -> None:
    """Delete builds that nothing runs from, except the newest few."""
    builds = [
        entry
        for entry in os.scandir(root)
        if entry.is_dir(follow_symlinks=False)
        and not entry.name.startswith((current, "."))
        and not entry.name.endswith(".tmp")
    ]
    builds.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
    for build in builds[OLD_BUILDS_KEPT:]:
        # Every process holds a shared lock on what it runs from.
        directory = os.open(f"{build.path}/site-packages", os.O_RDONLY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(build.path, ignore_errors=True)
            Path(root, f".{build.name}_lock").unlink()
        except OSError:
            pass
        finally:
            os.close(directory)
