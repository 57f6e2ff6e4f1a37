"""The `__main__` of duet-rpc.pyz.

shiv unpacks the archive's packages into a cache the first time and imports them from
there. Its own bootstrap looks that cache up with a dozen imports, three times the start
of Python itself. This one opens the directory and goes; everything else (the first
start, no cache to write to) is in `_unpack`. Kept short, because Python compiles it anew
at every start; and in words that a Python of any age can compile, so that one that is too
old can say so.
"""

import os
import sys

BUILD = "@BUILD@"


def _roots():
    # type: () -> list[str]
    environ, roots = os.environ, []
    if environ.get("XDG_CACHE_HOME", "").startswith("/"):
        roots.append(environ["XDG_CACHE_HOME"] + "/duet-rpc")
    elif environ.get("HOME", "").startswith("/"):
        roots.append(environ["HOME"] + "/.cache/duet-rpc")
    # No home directory, or one that can't be written to.
    shared = environ.get("TMPDIR", "")
    if not shared.startswith("/"):
        shared = "/tmp"  # noqa: S108 - checked to be ours in `_find`
    roots.append(shared.rstrip("/") + "/duet-rpc-" + str(os.geteuid()))
    return roots


def _find(roots, name):
    # type: (list[str], str) -> str
    from fcntl import LOCK_NB, LOCK_SH, flock

    for root in roots:
        build = root + "/" + name
        path = build + "/site-packages"
        try:
            # Code is loaded only from what is the user's own and nobody else can write to;
            # in such a folder no part of the path can be changed under us.
            if not _is_private(os.lstat(root)) or not _is_private(os.lstat(build)):
                continue
            # Held open and locked until the process ends: nobody deletes it meanwhile.
            directory = os.open(path, os.O_RDONLY)
            flock(directory, LOCK_SH | LOCK_NB)
        except OSError:
            continue
        seen = os.fstat(directory)
        if seen.st_nlink and _is_private(seen):
            return path
    return ""


def _is_private(seen):
    # type: (os.stat_result) -> bool
    return seen.st_uid == os.geteuid() and seen.st_mode & 0o170022 == 0o040000


def _main():
    # type: () -> None
    archive = os.path.dirname(os.path.abspath(__file__))
    if any(name.startswith("SHIV_") for name in os.environ):
        # Whoever sets shiv's own variables wants shiv's own ways.
        from _bootstrap import bootstrap

        bootstrap()
    name = BUILD + "-" + str(sys.implementation.cache_tag)
    roots = _roots()
    packages = _find(roots, name)
    if not packages:
        from _unpack import unpack

        unpack(archive, roots, name)
        packages = _find(roots, name)
    # Where nothing can be unpacked the archive itself serves: slower, but it works.
    sys.path[0] = packages or archive + "/site-packages"
    try:
        from duet_rpc.cli import main
    except ImportError:  # files are missing in the cache
        sys.path[0] = archive + "/site-packages"
        sys.path_importer_cache.clear()
        from duet_rpc.cli import main
    main()


if sys.version_info < (3, 9):  # noqa: UP036
    sys.exit(
        "duet-rpc: this Python is too old: "
        + sys.version.split()[0]
        + ". Put Python 3.9 or later in front: python3.12 duet-rpc.pyz"
    )
try:
    _main()
except KeyboardInterrupt:
    os._exit(130)
