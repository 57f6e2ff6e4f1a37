"""Print how dist/duet-rpc.pyz compares with the leanest loop that Python can do.

Milliseconds depend on the machine and on what else it does; ratios within one run hold.
So every program takes its turn in every round, and what counts is the median of ratios.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
LEAN = [sys.executable, "-I", "-S", str(TOP / "bench" / "lean.py")]
DUET = [sys.executable, str(TOP / "dist" / "duet-rpc.pyz"), "rpc"]
BODY = b'{"jsonrpc":"2.0","id":1,"method":"version"}'
FRAME = b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
ROUNDS = 40
TRIPS = 2000


class Peer:
    """One program under test."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.into, self.out = self.process.stdin.fileno(), self.process.stdout.fileno()

    def trip(self) -> int:
        """Make one call; return the size of the reply."""
        os.write(self.into, FRAME)
        return len(os.read(self.out, 65536))

    def burst(self, count: int) -> None:
        """Send many requests at once and read all replies."""
        size = self.trip()
        os.write(self.into, FRAME * count)
        left = size * count
        while left > 0:
            left -= len(os.read(self.out, 1 << 20))

    def leave(self) -> None:
        """End the input and wait for the end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measure(command: list[str]) -> dict[str, float]:
    """Take all measurements of one program once, in microseconds."""
    clock = time.perf_counter
    start = clock()
    peer = Peer(command)
    peer.trip()
    first = clock()
    time.sleep(0.5)  # what a program does when its client falls silent is not measured
    trips = []
    for _ in range(TRIPS):
        before = clock()
        peer.trip()
        trips.append(clock() - before)
    before = clock()
    peer.burst(1000)
    burst = (clock() - before) / 1000
    before = clock()
    peer.leave()
    return {
        "spawn to first reply": (first - start) * 1e6,
        "round trip": statistics.median(trips) * 1e6,
        "burst, a request": burst * 1e6,
        "end of input to gone": (clock() - before) * 1e6,
    }


def first_reply(command: list[str]) -> float:
    """Measure the start alone, in microseconds."""
    start = time.perf_counter()
    peer = Peer(command)
    peer.trip()
    took = time.perf_counter() - start
    peer.leave()
    return took * 1e6


def many_methods() -> None:
    """Print what fifty files of the user's methods cost the first reply."""
    with tempfile.TemporaryDirectory() as folder:
        flags = []
        for number in range(50):
            path = Path(folder, f"methods_{number}.py")
            path.write_text(
                "from duet_rpc import method\n\n"
                f"@method\ndef method_{number}(text: str) -> str:\n    return text\n"
            )
            flags += ["--methods", str(path)]
        ratios = [first_reply([*DUET, *flags]) / first_reply(DUET) for _ in range(ROUNDS)]
    ratios.sort()
    low, high = ratios[ROUNDS // 10], ratios[-1 - ROUNDS // 10]
    ratio = statistics.median(ratios)
    print(
        f"first reply with 50 files of methods, against none: {ratio:.2f} ({low:.2f} to {high:.2f})"
    )


def from_emacs() -> None:
    """Print what 1,000 synchronous calls take from each Emacs in EMACSEN."""
    environ = {
        **os.environ,
        "DUET_RPC_EL": str(TOP / "elisp" / "duet-rpc.el"),
        "DUET_RPC_PYZ": DUET[1],
        "DUET_RPC_LEAN": LEAN[-1],
    }
    for emacs in os.environ.get("EMACSEN", "emacs").split():
        if shutil.which(emacs):
            script = str(TOP / "bench" / "emacs.el")
            done = subprocess.run(
                [emacs, "-Q", "--batch", "-l", script],
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                check=True,
            )
            found = json.loads(done.stdout)
            print(
                f"{found['calls']} calls from Emacs {found['emacs']}: {found['ours']:.0f} ms; "
                f"jsonrpc.el to the lean loop: {found['lean']:.0f} ms; ratio {found['ratio']:.2f} "
                f"({found['low']:.2f} to {found['high']:.2f})"
            )


def main() -> None:
    """Measure and print."""
    Peer(DUET).leave()  # the first start unpacks
    lean, duet = [], []
    for _ in range(ROUNDS):
        lean.append(measure(LEAN))
        duet.append(measure(DUET))
    print(
        f"{'median of ' + str(ROUNDS):24}{'lean loop, µs':>14}{'duet-rpc, µs':>14}  ratio (spread)"
    )
    for what in lean[0]:
        ratios = sorted(d[what] / base[what] for d, base in zip(duet, lean))
        low, high = ratios[ROUNDS // 10], ratios[-1 - ROUNDS // 10]
        a = statistics.median(each[what] for each in lean)
        b = statistics.median(each[what] for each in duet)
        ratio = statistics.median(ratios)
        print(f"{what:24}{a:14.1f}{b:14.1f}  {ratio:5.2f} ({low:.2f} to {high:.2f})")
    many_methods()
    from_emacs()


main()
