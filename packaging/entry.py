"""The `__main__` of duet-rpc.pyz.

It is apart from the launcher so that any Python can compile it: one that is too old, or that
runs on Windows, says so instead of failing with a traceback.
"""

import os
import sys

if sys.version_info < (3, 9):  # noqa: UP036
    sys.exit(
        "duet-rpc: this Python is too old: "
        + sys.version.split()[0]
        + ". Start it with Python 3.9 or later: python3.12 duet-rpc.pyz"
    )
if sys.platform == "win32":
    sys.exit("duet-rpc: Windows is not supported. Run it in WSL, with an Emacs in WSL.")
try:
    from _launcher import launch

    launch()
except KeyboardInterrupt:
    os._exit(130)
