"""What 1,000 synchronous calls take from each Emacs in EMACSEN."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

from bench.install import PEERS, TOP
from bench.programs import PYZ


def from_emacs() -> list[dict[str, float | str]]:
    """Run the calls; return what each Emacs printed."""
    environ = {
        **os.environ,
        "DUET_RPC_EL": str(TOP / "elisp" / "duet-rpc.el"),
        "DUET_RPC_PYZ": PYZ,
        "DUET_RPC_LEAN": str(PEERS / "lean.py"),
    }
    found = []
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
            found.append(json.loads(done.stdout))
    return found
