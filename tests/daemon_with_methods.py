"""The daemon with methods that only tests want: slow, noisy, broken ones.

python tests/daemon_with_methods.py [READ_TIMEOUT]
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time

from duet_rpc.server.stdio import claim

DESCRIPTORS = claim()

from duet_rpc.log import Log  # noqa: E402
from duet_rpc.methods.registry import Method  # noqa: E402
from duet_rpc.protocol.errors import RpcError  # noqa: E402
from duet_rpc.server.daemon import serve  # noqa: E402


def spin(seconds: float) -> str:
    """Keep the interpreter busy."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "spun"


def sleep(seconds: float) -> str:
    """Sleep in one call."""
    time.sleep(seconds)
    return "slept"


def big(size: int) -> str:
    """Return more than a pipe holds."""
    return "x" * size


def noise() -> str:
    """Write to stdout in every way there is."""
    print("from print")
    sys.stdout.flush()
    os.write(1, b"from os.write\n")
    libc = ctypes.CDLL(None)
    libc.puts(b"from C")
    libc.fflush(None)
    subprocess.run(["sh", "-c", "echo from a child"], check=True)
    return "quiet"


def child_reads() -> str:
    """Return what a child process finds on its stdin."""
    return subprocess.run(["cat"], capture_output=True, check=True).stdout.decode()


def boom() -> None:
    """Fail, with a secret in a local variable and a path in the message."""
    secret = "hunter2"  # noqa: S105, F841
    raise RuntimeError("it broke")


def leave() -> None:
    """Try to end the process."""
    sys.exit(7)


def refuse() -> None:
    """Refuse the call on purpose."""
    raise RpcError(-32001, "Not today", {"when": "tomorrow"})


def refuse_badly() -> None:
    """Refuse the call with data that is no JSON."""
    raise RpcError(-32001, "Not today", {"when": object()})


def give(what: str) -> object:
    """Return what is hard to write as JSON."""
    return {
        "nan": float("nan"),
        "infinity": [float("inf")],
        "surrogate": "a\ud800b",
        "object": object(),
        "unicode": "日本語 ✓ 😀 \u2028",
        "circle": CIRCLE,
    }[what]


CIRCLE: list[object] = []
CIRCLE.append(CIRCLE)

NUMBER: dict[str, object] = {"type": "number"}
METHODS = [
    Method("spin", "spin", spin, params={"seconds": NUMBER}, returns={}),
    Method("sleep", "sleep", sleep, params={"seconds": NUMBER}, returns={}),
    Method("big", "big", big, params={"size": NUMBER}, returns={}),
    Method("give", "give", give, params={"what": {"type": "string"}}, returns={}),
    *(
        Method(each.__name__, "test", each, returns={})
        for each in (noise, child_reads, boom, leave, refuse, refuse_badly)
    ),
]

if __name__ == "__main__":
    timeout = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    serve(DESCRIPTORS, Log("debug", os.environ.get("DUET_RPC_LOG")), METHODS, timeout)
