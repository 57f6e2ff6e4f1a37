"""How the daemon becomes the router when the first worker appears.

Somebody saves a file with a block of packages while Emacs is connected to a plain daemon. That
file runs in a process of its own, so there has to be a router from now on, and nobody should
have to restart anything. The process replaces itself: its pid and its pipes stay the same, and
what has been read and not been answered is passed on in a file that has no name.

The other way would be a router in front of every daemon from the start: one more process, and
some 50 µs more for each call, for everybody who never needs a second worker.

Signals are blocked from here until the new program handles them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, NamedTuple

from duet_rpc.program import own_command

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "DUET_RPC_HANDOVER"
"""The variable that names the descriptor of the file."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Passed(NamedTuple):
    """What the daemon passes on to the router."""

    level: str  # of the log
    loaded: list[str]  # files that were loaded for this daemon only
    knows_methods: bool  # the client has asked for them, and is to be notified of changes
    handshake: str | None  # the version of MCP that was agreed on,
    capabilities: object  # and what the client can do
    input: bytes = b""  # what the client has sent and has no answer to


def replace_process(
    descriptors: tuple[int, int], passed: Passed, is_wanted: Callable[[], bool]
) -> None:
    """Become the router, or return where a signal has come before; raises OSError if it fails."""
    import tempfile

    with tempfile.TemporaryFile() as file:
        head = json.dumps(passed._replace(input=b"")._asdict(), default=lambda _: "")
        file.write(head.encode() + b"\n" + passed.input)
        file.flush()
        file.seek(0)
        os.set_inheritable(file.fileno(), True)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
            signal.setitimer(timer, 0)  # they would go on, and end what has no handlers yet
        os.dup2(descriptors[0], 0)
        os.dup2(descriptors[1], 1)
        environment = {**os.environ, VARIABLE: str(file.fileno())}
        words = [*own_command(), *sys.argv[1:]]
        # Last of all: from here on a signal waits for the new program.
        if is_wanted():
            os.execve(words[0], words, environment)  # noqa: S606


def take_passed() -> Passed | None:
    """Return what a daemon has passed on to this process, once; None where there was none."""
    number = os.environ.pop(VARIABLE, None)
    if number is None:
        return None
    with open(int(number), "rb") as file:
        head = json.loads(file.readline())
        return Passed(**{**head, "input": file.read()})
