"""What 1,000 synchronous calls take from each Emacs in EMACSEN."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from bench.install import PEERS, PYTHON, TOP
from bench.programs import DUET, LEAN, METHODS, PYZ, environment

if TYPE_CHECKING:
    from bench.goals import Samples


def from_emacs(rounds: int) -> Samples:
    """Make the calls; return milliseconds, with Emacs and its version as the key."""
    environ = {
        **environment(),
        "DUET_RPC_EL": str(TOP / "elisp" / "duet-rpc.el"),
        "BENCH_ROUNDS": str(rounds),
        "BENCH_DUET": json.dumps([PYTHON, PYZ, "rpc", *METHODS]),
        "BENCH_LEAN": json.dumps([PYTHON, "-I", "-S", str(PEERS / "lean.py")]),
    }
    samples: Samples = {}
    for emacs in os.environ.get("EMACSEN", "emacs").split():
        if shutil.which(emacs):
            done = subprocess.run(
                [emacs, "-Q", "--batch", "-l", str(TOP / "bench" / "emacs.el")],
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=300,
                check=True,
            )
            found = json.loads(done.stdout)
            samples[f"Emacs {found['emacs']}"] = {DUET: found["ours"], LEAN: found["lean"]}
    return samples
