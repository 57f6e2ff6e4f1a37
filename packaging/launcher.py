"""The `__main__` of duet-rpc.pyz: straight to what was unpacked before.

shiv's own bootstrap looks its cache up with a dozen imports, three times the start of
Python itself. This opens the directory and goes; the first start and all else that is
not as usual is in `_unpack`. It is in the archive twice: compiled, for the version of
Python that has built it, and as it stands here, which any other compiles anew at every
start. It is short for that reason, and in words that a Python of any age can compile, so
that one that is too old can say so.
"""

import os
import sys


def go(root, build):  # type: ignore[no-untyped-def]  # noqa: D103
    packages = build + "/site-packages"
    try:
        directory = os.open(packages, os.O_RDONLY)
        if directory < 3:  # stdin or stdout is closed, and is to be found so
            os.close(directory)
            return
        # Code is loaded only from what is the user's own and nobody else can write to; in
        # such a folder no part of the path can be changed under us.
        for seen in (os.lstat(root), os.lstat(build), os.fstat(directory)):
            if seen.st_uid != os.geteuid() or seen.st_mode & 0o170022 != 0o040000:
                return
        with open(packages + "/duet_rpc/start.bin", "rb") as file:
            data = file.read()
    except OSError:
        return
    import gc
    import marshal

    gc.disable()  # until all modules are there: a thirtieth of the time to the first reply
    code, modules = marshal.loads(data)  # noqa: S302 - our own, see above
    type(go)(code, globals())(directory, packages, modules)  # type: ignore[misc]


if sys.version_info < (3, 9):  # noqa: UP036
    sys.exit(
        "duet-rpc: this Python is too old: "
        + sys.version.split()[0]
        + ". Put Python 3.9 or later in front: python3.12 duet-rpc.pyz"
    )
try:
    import _signal

    # Ctrl-C in the middle of an import can come out as any error. Until `main` can take it,
    # it ends the process without a word.
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    # What is unpacked holds code for exactly this Python.
    name = "@BUILD@-%s-%x" % (sys.implementation.cache_tag, sys.hexversion)  # noqa: UP031
    cache = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME", "") + "/.cache"
    if cache[0] == "/" and "SHIV_" not in " ".join(os.environ):
        go(cache + "/duet-rpc", cache + "/duet-rpc/" + name)  # type: ignore[no-untyped-call]
    from _unpack import start

    start(os.path.dirname(os.path.abspath(__file__)), name)
except KeyboardInterrupt:
    os._exit(130)
