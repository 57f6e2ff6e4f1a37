"""Chaos: daemons whose methods, files and client are hostile, all at once and at random.

python -m tests.chaos [--minutes M] [--seed N]

One daemon after the other is given a folder of good and of hostile methods, for a few seconds
each. Every other one has workers and is a router: they are killed, stopped, flooding, stuck and out
of memory while calls go on. At the end of each:

- every request was answered exactly once, or cancelled; without workers, in its turn;
- all that was written to stdout are whole frames;
- the good methods were answered rightly, whatever the others did;
- the daemon has left with 0 within two seconds of being asked to, and no process is left;
- its log has no traceback unless it was asked for one, and no fault of the daemon's own.

The seed is printed; with it a run makes the same choices, though never at the same moment.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.chaos_daemon import ROUND, Chaos
from tests.chaos_workers import WorkerChaos

KINDS = (Chaos, WorkerChaos)


def chaos(seconds: float, seed: int) -> str:
    """Run daemons for so long; return what was done."""
    chance = random.Random(seed)  # noqa: S311
    end = time.monotonic() + seconds
    rounds = sent = cancels = edits = 0
    while time.monotonic() < end or rounds < len(KINDS):
        folder = Path(tempfile.mkdtemp())
        one = KINDS[rounds % len(KINDS)](chance, folder)
        try:
            one.run(max(0.5, min(ROUND, end - time.monotonic())))
            one.finish()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{one}") from None
        finally:
            one.process.kill()
            with suppress(ProcessLookupError):
                os.killpg(one.process.pid, signal.SIGKILL)
            one.process.wait()
            for pipe in (one.process.stdin, one.process.stdout):
                pipe.close()  # type: ignore[union-attr]
            shutil.rmtree(folder, ignore_errors=True)
        rounds += 1
        sent, cancels, edits = sent + one.sent, cancels + one.cancels, edits + one.edits
    return (
        f"{rounds} daemons, {sent} requests, {cancels} cancels, {edits} changes of files: "
        "all answered once, all gone in time"
    )


def main() -> None:
    """Run for some minutes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    print(chaos(options.minutes * 60, options.seed), flush=True)


if __name__ == "__main__":
    main()
