"""Unpacking duet-rpc.pyz at its first start, and whenever what was unpacked is damaged.

In the archive this file is `_unpack`. A build is unpacked into a temporary folder, under a
lock, and renamed when every file in it is whole. So any number of processes may start at
once, and one that is killed or finds the disk full leaves nothing that a later one would
use. A manifest beside the packages has the size of each file, for the launcher's check; its
first line has the number of files, their time, a hash of them all, and the start of the machine
since which they are known to be whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import marshal
import os
import shutil
import signal
import sys
import time
import zipfile
import zlib
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from _launcher import find, is_private, leave_standard_streams, start_of_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OLD_BUILDS_KEPT = 2

INNER = "site-packages/duet-rpc.zip"
"""The archive in the archive that has all packages."""

SERVERS = ("rpc", "mcp", "gateway")

UNCHECKED = (1).to_bytes(4, "little") + bytes(8)
"""The header of a .pyc file that is never compared with its source (PEP 552): ours cannot
get out of step, since the launcher checks both."""


def prepare(archive: str, name: str) -> str:
    """Return the path of the packages, unpacked now if need be."""
    if any(variable.startswith("SHIV_") for variable in os.environ):
        # Whoever sets shiv's variables wants shiv's bootstrap. It does not return.
        from _bootstrap import bootstrap

        bootstrap()
    try:
        for root in list_roots():
            packages = find(root, name) or unpack(archive, root, name)
            if packages:
                return packages
        return keep_in_memory(archive)
    except (zipfile.BadZipFile, zlib.error):
        sys.exit(f"duet-rpc: {archive} is damaged. Download it again, or build it with make pyz.")


def import_again(archive: str, name: str, packages: str) -> Callable[[], None]:
    """Return the program's `main` after an import failed although all sizes were right.

    That happens after a power failure, when a file system has kept a file's size but not its
    contents, and where nobody can tell that there was one: all files are written again. Any other
    failure comes back as it was.
    """
    with suppress(OSError):
        Path(packages).with_name("manifest").unlink()
    for module in [each for each in sys.modules if each.partition(".")[0] == "duet_rpc"]:
        del sys.modules[module]
    sys.path_importer_cache.clear()
    sys.path[0] = prepare(archive, name)
    from duet_rpc.cli import main

    return main


def keep_in_memory(archive: str) -> str:
    """Return a path to the packages that needs no disk; every start then compiles them."""
    try:
        descriptor = leave_standard_streams(os.memfd_create("duet-rpc"))
    except (AttributeError, OSError):
        sys.exit(
            "duet-rpc: found no folder to unpack into. Set XDG_CACHE_HOME or TMPDIR to a folder "
            "that belongs to you, has 5 MB free, and that only you can write to."
        )
    with zipfile.ZipFile(archive) as outer, open(descriptor, "wb", closefd=False) as file:
        file.write(outer.read(INNER))
    return f"/proc/self/fd/{descriptor}/site-packages"


def list_roots() -> list[str]:
    """Return the folders that builds may be unpacked into, the best first."""
    environ, roots = os.environ, []
    if environ.get("XDG_CACHE_HOME", "").startswith("/"):
        roots.append(environ["XDG_CACHE_HOME"] + "/duet-rpc")
    elif environ.get("HOME", "").startswith("/"):
        roots.append(environ["HOME"] + "/.cache/duet-rpc")
    # For users without a home directory, or with one that is read-only or full.
    shared = environ.get("TMPDIR", "")
    if not shared.startswith("/"):
        shared = "/tmp"  # noqa: S108 - `find` checks who owns the folder in it
    return [*roots, f"{shared.rstrip('/')}/duet-rpc-{os.geteuid()}"]


def unpack(archive: str, root: str, name: str) -> str | None:
    """Unpack into this folder; return the path of the packages, or None if it can't be used."""
    if not Path(root).parent.parent.is_dir():
        return None  # a missing home directory is not created
    mask = os.umask(0o077)  # what is unpacked is for the user alone
    try:
        with exiting_quietly():
            os.makedirs(root, exist_ok=True)
            if not is_private(os.lstat(root)):
                return None
            with Path(root, ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                recheck(Path(root, name))
                packages: str | None = find(root, name)
                if not packages:  # or another process unpacked it in the meantime
                    replace(archive, root, name)
                    delete_old_builds(root, name)
                    packages = find(root, name)
            return packages
    except OSError:
        return None  # a folder that can't be written to, a full disk
    finally:
        os.umask(mask)


@contextmanager
def exiting_quietly() -> Iterator[None]:
    """Let a signal end a server with exit code 0, as it does once the server runs."""
    is_server = any(word in SERVERS for word in sys.argv[1:])
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM) if is_server else ()
    before = [signal.signal(number, lambda *_: os._exit(0)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)


def replace(archive: str, root: str, name: str) -> None:
    """Put a complete build where there is none, or a damaged one."""
    target, fresh = Path(root, name), Path(root, f"{name}.tmp")
    damaged = Path(root, f"{name}.damaged.tmp")
    delete(fresh)  # a process was killed in the middle of this
    delete(damaged)
    try:
        write_build(archive, fresh, target)
        if os.path.lexists(target):
            target.rename(damaged)
        fresh.rename(target)
    finally:
        delete(fresh)
        delete(damaged)


def delete(path: Path) -> None:
    """Delete a folder, or whatever else has its name."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_build(archive: str, folder: Path, target: Path) -> None:
    """Write all files of what will be in `target`; raise OSError if one is not whole."""
    # One time for all, an even number of seconds, which every file system can store.
    written = int(time.time()) // 2 * 2
    lines, digest = [], hashlib.sha256()
    for name, data in read_build(archive, target):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (written, written))
        if path.stat().st_size != len(data):
            raise OSError(f"{path} was not written in full")
        lines.append(f"{len(data)} {name}")
        digest.update(data)
    first = f"{len(lines)} {written} {digest.hexdigest()} {start_of_machine()}"
    (folder / "manifest").write_text("\n".join([first, *lines]), encoding="ascii")


def recheck(build: Path) -> None:
    """Note in the manifest that what was unpacked before the machine was started is whole.

    Where it is not, or there is nothing, nothing is done: then it is unpacked again.
    """
    manifest, digest = build / "manifest", hashlib.sha256()
    try:
        first, *lines = manifest.read_text(encoding="ascii").split("\n")
        count, written, expected, _ = first.split(" ")
        for line in lines:
            digest.update((build / line.split(" ", 1)[1]).read_bytes())
        if digest.hexdigest() == expected:
            first = f"{count} {written} {expected} {start_of_machine()}"
            fresh = manifest.with_suffix(".tmp")
            fresh.write_text("\n".join([first, *lines]), encoding="ascii")
            fresh.replace(manifest)
    except (OSError, ValueError, IndexError):
        pass


def read_build(archive: str, target: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the contents of each file; tracebacks will say that it is in `target`."""
    with zipfile.ZipFile(archive) as outer, outer.open(INNER) as inner:
        packages = zipfile.ZipFile(inner)
        for name in packages.namelist():
            source = packages.read(name)
            yield name, source
            if name.endswith(".py"):
                code = compile(source, str(target / name), "exec", dont_inherit=True, optimize=0)
                parent, _, module = name[: -len(".py")].rpartition("/")
                compiled = f"{parent}/__pycache__/{module}.{sys.implementation.cache_tag}.pyc"
                yield compiled, importlib.util.MAGIC_NUMBER + UNCHECKED + marshal.dumps(code)


def delete_old_builds(root: str, current: str) -> None:
    """Delete builds that no process runs from, except the newest few."""
    # The same build for another Python is not old: people switch between two Pythons.
    same = current.partition("-")[0]
    builds = [
        entry
        for entry in os.scandir(root)
        if entry.is_dir(follow_symlinks=False)
        and not entry.name.startswith((same, "."))
        and not entry.name.endswith(".tmp")
        and entry.name != "envs"  # the environments of workers
    ]
    builds.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
    for build in builds[OLD_BUILDS_KEPT:]:
        try:
            directory = os.open(f"{build.path}/site-packages", os.O_RDONLY)
        except OSError:
            shutil.rmtree(build.path, ignore_errors=True)  # nothing can run from it
            continue
        try:
            # Every process holds a shared lock on what it runs from.
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(build.path, ignore_errors=True)
        except OSError:
            pass
        finally:
            os.close(directory)
