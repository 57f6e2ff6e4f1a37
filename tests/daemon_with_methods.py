"""The daemon with methods that only tests want: slow, noisy, broken ones.

python tests/daemon_with_methods.py [READ_TIMEOUT [FRAMING [batch]]]
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from duet_rpc.server.stdio import claim

DESCRIPTORS = claim()

from duet_rpc.jsonrpc.errors import RpcError  # noqa: E402
from duet_rpc.jsonrpc.framing import FRAMINGS  # noqa: E402
from duet_rpc.jsonrpc.messages import Notification, Request  # noqa: E402
from duet_rpc.log import Log  # noqa: E402
from duet_rpc.methods.context import Cancelled, Context  # noqa: E402
from duet_rpc.methods.signature import method_from  # noqa: E402
from duet_rpc.server.dispatch import Refused  # noqa: E402
from duet_rpc.server.frames import Arrival  # noqa: E402
from duet_rpc.server.rpc import RpcHandler  # noqa: E402
from duet_rpc.server.serve import serve  # noqa: E402


def spin(seconds: float) -> str:
    """Keep the interpreter busy."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "spun"


def spin_below(depth: int, seconds: float) -> str:
    """Keep the interpreter busy, so many calls further down."""
    return spin(seconds) if depth == 0 else spin_below(depth - 1, seconds)


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


def refuse_in_odd_words(number: int) -> None:
    """Refuse the call with what is no code or no text."""
    code, text = ODD_WORDS[number]
    raise RpcError(code, text)


def read_folder() -> str:
    """Fail in a library, over a file whose folder is nobody's business."""
    return Path("/private/folder/notes.txt").read_text()


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
        "complex": {"a": [1j]},
    }[what]


def give_up() -> str:
    """Never end."""
    while True:
        pass


def steps(count: int, ctx: Context, pause: float = 0.0) -> str:
    """Report progress."""
    for number in range(count):
        ctx.progress(number + 1, count, f"step {number + 1}")
        time.sleep(pause)
    return "done"


def careful(ctx: Context) -> str:
    """Do a second's work that must not be interrupted, then something that may."""
    with ctx.uninterrupted():
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            pass
        ctx.log.info(f"saved, cancelled: {ctx.cancelled}")
    time.sleep(30)
    return "never"


def stubborn() -> str:
    """Catch what should not be caught, once."""
    try:
        time.sleep(30)
    except Cancelled:
        time.sleep(30)
    return "never"


def signals() -> str:
    """Take over the signals that the daemon lives by."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    return "taken"


def forks() -> str:
    """Fork a child that ends in its own way, and one that falls off the end."""
    if os.fork() == 0:
        os._exit(3)
    if os.fork() == 0:
        return "the child's own answer"
    os.wait()
    os.wait()
    return "parent"


def forget_me(seconds: float) -> str:
    """Sleep; somebody may cancel it while it waits in the queue."""
    time.sleep(seconds)
    return "remembered"


def recurse() -> object:
    """Recurse without end."""
    return recurse()


def hoard() -> int:
    """Ask for more memory than there is."""
    return len(bytearray(1 << 60))


def chatty(ctx: Context) -> str:
    """Use the log in all its levels."""
    ctx.log.debug("d")
    ctx.log.info("i {braces} <red>")
    ctx.log.warn("w")
    ctx.log.error("e")
    ctx.log.info(["no", 1, "text"])
    return "said"


ODD_WORDS: list[Any] = [("x", "m"), (1.5, "m"), (True, "m"), (-5, None), (-5, 7)]


class OddHandler(RpcHandler):
    """With a fault of its own."""

    def answer(self, arrival: Arrival, request: Request | Notification) -> str | Refused:
        """Answer, or not."""
        if request.method == "odd":
            raise KeyError("odd")
        return super().answer(arrival, request)


CIRCLE: list[object] = []
CIRCLE.append(CIRCLE)

METHODS = [
    method_from(each, each.__name__)
    for each in (
        spin, spin_below, sleep, big, give, noise, child_reads, boom, leave, refuse, refuse_badly,
        refuse_in_odd_words, read_folder, give_up,
        steps, careful, stubborn, signals, forget_me, forks, recurse, hoard, chatty,
    )
]  # fmt: skip

if __name__ == "__main__":
    timeout = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    framing = FRAMINGS[sys.argv[2] if len(sys.argv) > 2 else "content-length"]
    serve(
        DESCRIPTORS,
        Log("debug", os.environ.get("DUET_RPC_LOG")),
        OddHandler,
        methods=METHODS,
        read_timeout=timeout,
        framing=framing,
        batch="batch" in sys.argv[3:],
    )
