"""Methods that do not come back, each in a way of its own.

duet-rpc rpc --methods tests/hanging_methods.py

Where the environment names a file in TEST_MARK, each makes it when it begins.
"""

from __future__ import annotations

import collections
import ctypes
import itertools
import os
import re
import sys
import time
from pathlib import Path

from duet_rpc import method


def started() -> None:
    """Let a test know that a method runs."""
    if "TEST_MARK" in os.environ:
        Path(os.environ["TEST_MARK"]).touch()


@method
def spin(seconds: float) -> str:
    """Keep the interpreter busy."""
    started()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "spun"


@method
def deep(seconds: float) -> str:
    """Keep the interpreter busy, with hardly a call left of those that may be open at once."""
    depth, frame = 0, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back

    def spin_below(more: int) -> str:
        return spin(seconds) if more == 0 else spin_below(more - 1)

    return spin_below(sys.getrecursionlimit() - depth - 10)


@method
def sleep(seconds: float) -> str:
    """Sleep in one call."""
    started()
    time.sleep(seconds)
    return "slept"


@method
def regex(seconds: float) -> str:
    """Search for ever in one call of C code that looks for signals now and then."""
    started()
    if seconds < 10:
        return sleep(seconds)
    re.match("(a+)+b", "a" * 64)
    return "found"


@method
def libc(seconds: float) -> str:
    """Sleep in a library that knows nothing of Python; a signal makes its call return."""
    started()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ctypes.CDLL(None).sleep(int(seconds))
    return "slept"


@method
def stuck() -> None:
    """Stay in C code that never returns to the interpreter and never looks for signals."""
    started()
    collections.deque(itertools.repeat(0), maxlen=0)


@method
def big(size: int) -> str:
    """Return more than a pipe holds."""
    started()
    return "x" * size
