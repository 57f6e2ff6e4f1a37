"""The slow ways to start duet-rpc.pyz: unpacking it once, and clearing old builds.

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

INNER = "site-packages/duet-rpc.zip"

# Commands that a signal ends with 0, at whatever moment it comes.
SERVERS = ("rpc", "mcp", "gateway")


def start(archive: str, name: str) -> None:
    """Start where there is nothing unpacked in the usual place."""
    if any(variable.startswith("SHIV_") for variable in os.environ):
        # Whoever sets shiv's own variables wants shiv's own ways.
        from _bootstrap import bootstrap

        bootstrap()
    sys.path[0] = prepare(archive, name) or in_memory(archive)
    try:
        from duet_rpc.cli import main
    except ImportError:  # files are missing in the cache
        sys.path[0] = in_memory(archive)
        sys.path_importer_cache.clear()
        from duet_rpc.cli import main
    main()


def in_memory(archive: str) -> str:
    """Return the packages where nothing can be unpacked: slower, but it works."""
    try:
        held = out_of_the_way(os.memfd_create("duet-rpc"))
    except (AttributeError, OSError):
        sys.exit(
            "duet-rpc: there is no folder to unpack into. Set XDG_CACHE_HOME or TMPDIR to one "
            "that is yours and can be written to."
        )
    with zipfile.ZipFile(archive) as outer, open(held, "wb", closefd=False) as file:
        file.write(outer.read(INNER))
    return f"/proc/self/fd/{held}/site-packages"


def prepare(archive: str, name: str) -> str | None:
    """Return the packages in the best folder that has them or takes them, or None."""
    for root in list_roots():
        packages = find(root, name)
        if packages is None:
            unpack(archive, root, name)
            packages = find(root, name)
        if packages is not None:
            return packages
    return None


def list_roots() -> list[str]:
    """Return the folders that may hold what is unpacked, the best first."""
    environ, roots = os.environ, []
    if environ.get("XDG_CACHE_HOME", "").startswith("/"):
        roots.append(environ["XDG_CACHE_HOME"] + "/duet-rpc")
    elif environ.get("HOME", "").startswith("/"):
        roots.append(environ["HOME"] + "/.cache/duet-rpc")
    # No home directory, or one that can't be written to.
    shared = environ.get("TMPDIR", "")
    if not shared.startswith("/"):
        shared = "/tmp"  # noqa: S108 - checked to be ours in `find`
    return [*roots, f"{shared.rstrip('/')}/duet-rpc-{os.geteuid()}"]


def find(root: str, name: str) -> str | None:
    """Return the packages that were unpacked here and can be trusted, locked."""
    path = f"{root}/{name}/site-packages"
    try:
        # Code is loaded only from what is the user's own and nobody else can write to.
        if not all(is_private(each) for each in (root, f"{root}/{name}", path)):
            return None
        # Held open and locked until the process ends: nobody deletes it meanwhile.
        directory = out_of_the_way(os.open(path, os.O_RDONLY))
        fcntl.flock(directory, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return None
    return path if os.fstat(directory).st_nlink else None


def out_of_the_way(descriptor: int) -> int:
    """Leave 0 to 2 as they are: whoever has closed one of them is told so later."""
    if descriptor > 2:
        return descriptor
    higher = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return higher


def unpack(archive: str, root: str, name: str) -> None:
    """Unpack here, where that can be done."""
    from _bootstrap import extract_site_packages
    from _bundle import make

    if not Path(root).parent.parent.is_dir():
        return  # a home directory that is not there is not made
    if any(word in SERVERS for word in sys.argv[1:]):
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: os._exit(0))
    # What is unpacked is the user's alone, whatever the usual mask.
    mask = os.umask(0o077)
    try:
        os.makedirs(root, exist_ok=True)
        if is_private(root):
            with zipfile.ZipFile(archive) as outer, outer.open(INNER) as inner:
                packages = zipfile.ZipFile(inner)
                target = Path(root, name)
                extract_site_packages(packages, target, compile_pyc=True, compile_workers=1)
            make(f"{root}/{name}/site-packages")
            clear(root, name)
    except OSError:
        pass  # a folder that can't be written to, a full disk
    finally:
        os.umask(mask)


def is_private(root: str) -> bool:
    """Return True where nobody else can put a file into a directory."""
    seen = os.lstat(root)
    return seen.st_uid == os.geteuid() and (seen.st_mode & 0o170022) == 0o040000


def clear(root: str, current: str) -> None:
    """Delete builds that nothing runs from, except the newest few."""
    # The same build for another Python is not old: the two may take turns.
    same = current.partition("-")[0]
    builds = [
        entry
        for entry in os.scandir(root)
        if entry.is_dir(follow_symlinks=False)
        and not entry.name.startswith((same, "."))
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
