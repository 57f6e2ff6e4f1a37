"""The `__main__` of duet-rpc.pyz.

shiv unpacks the archive's packages into a cache the first time and imports them from
there. Its own bootstrap looks that cache up with a dozen imports, three times the start
of Python itself. This one opens the directory and goes; everything else (the first
start, no cache to write to) is in `_unpack`. Kept short, because Python compiles it anew
at every start.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass

BUILD = "@BUILD@"


def _roots() -> list[str]:
    environ, roots = os.environ, []
    if environ.get("XDG_CACHE_HOME", "").startswith("/"):
        roots.append(environ["XDG_CACHE_HOME"] + "/duet-rpc")
    elif environ.get("HOME", "").startswith("/"):
        roots.append(environ["HOME"] + "/.cache/duet-rpc")
    # No home directory, or one that can't be written to.
    shared = environ.get("TMPDIR") or "/tmp"  # noqa: S108 - checked to be ours in `_find`
    return [*roots, f"{shared.rstrip('/')}/duet-rpc-{os.geteuid()}"]


def _find(roots: list[str], name: str) -> str | None:
    from fcntl import LOCK_NB, LOCK_SH, flock

    for root in roots:
        path = f"{root}/{name}/site-packages"
        try:
            # Held open and locked until the process ends: nobody deletes it meanwhile.
            directory = os.open(path, os.O_RDONLY)
            flock(directory, LOCK_SH | LOCK_NB)
        except OSError:
            continue
        seen = os.fstat(directory)
        # Code is loaded only from what is the user's own and nobody else can write to.
        if seen.st_nlink and seen.st_uid == os.geteuid() and not seen.st_mode & 0o022:
            return path
    return None


def _main() -> None:
    archive = os.path.dirname(os.path.abspath(__file__))
    if any(name.startswith("SHIV_") for name in os.environ):
        # Whoever sets shiv's own variables wants shiv's own ways.
        from _bootstrap import bootstrap

        bootstrap()
    name = f"{BUILD}-{sys.implementation.cache_tag}"
    roots = _roots()
    packages = _find(roots, name)
    if packages is None:
        from _unpack import unpack

        unpack(archive, roots, name)
        packages = _find(roots, name)
    # Where nothing can be unpacked the archive itself serves: slower, but it works.
    sys.path[0] = packages or f"{archive}/site-packages"
    try:
        from duet_rpc.cli import main
    except ImportError:  # files are missing in the cache
        sys.path[0] = f"{archive}/site-packages"
        sys.path_importer_cache.clear()
        from duet_rpc.cli import main
    main()


try:
    _main()
except KeyboardInterrupt:
    os._exit(130)
