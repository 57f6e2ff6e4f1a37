"""The `__main__` of duet-rpc.pyz: straight to what was unpacked before.

shiv's own bootstrap looks its cache up with a dozen imports, three times the start of
Python itself. This opens the directory and goes; the first start and all else that is
not as usual is in `_unpack`. Python compiles this file anew at every start, and does so
twice: half of its lines were a thirtieth of the time to the first reply.
"""

import os
import sys

# What is unpacked holds code for exactly this Python.
NAME = f"@BUILD@-{sys.implementation.cache_tag}-{sys.hexversion:x}"


def go(packages):  # type: ignore[no-untyped-def]  # noqa: D103
    try:
        directory = os.open(packages, os.O_RDONLY)
        seen = os.fstat(directory)
        # Code is loaded only from what is the user's own and nobody else can write to.
        if seen.st_uid != os.geteuid() or seen.st_mode & 0o022:
            return
        with open(packages + "/duet_rpc/start.bin", "rb") as file:
            data = file.read()
    except OSError:
        return
    import marshal

    code, modules = marshal.loads(data)  # noqa: S302 - our own, see above
    type(go)(code, globals())(directory, packages, modules)  # type: ignore[misc]


try:
    cache = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME", "") + "/.cache"
    if cache[0] == "/" and "SHIV_" not in " ".join(os.environ):
        go(f"{cache}/duet-rpc/{NAME}/site-packages")  # type: ignore[no-untyped-call]
    from _unpack import start

    start(os.path.dirname(os.path.abspath(__file__)), NAME)
except KeyboardInterrupt:
    os._exit(130)
