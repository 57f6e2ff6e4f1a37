"""What 1,000 synchronous calls take from each Emacs in EMACSEN; and how a script of Lisp is run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING, Any

from bench.install import BUILD, PEERS, PYTHON, TOP
from bench.programs import DUET, LEAN, METHODS, PYZ, environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bench.goals import Samples

PATIENCE = 120


def from_emacs(rounds: int) -> Samples:
    """Make the calls; return milliseconds, with the version of Emacs in the key."""
    environ = {
        "BENCH_ROUNDS": str(rounds),
        "BENCH_DUET": json.dumps([PYTHON, PYZ, "rpc", *METHODS]),
        "BENCH_LEAN": json.dumps([PYTHON, "-I", "-S", str(PEERS / "lean.py")]),
    }
    samples: Samples = {}
    for emacs in emacsen():
        found = run_emacs(emacs, "emacs.el", environ)
        samples[f"calls {found['emacs']}"] = {DUET: found["ours"], LEAN: found["lean"]}
    return samples


def emacsen() -> list[str]:
    """Return the Emacsen that are measured."""
    return [each for each in os.environ.get("EMACSEN", "emacs").split() if shutil.which(each)]


def run_emacs(
    emacs: str, script: str, environ: Mapping[str, str], lisp: Sequence[str] = ()
) -> dict[str, Any]:
    """Run a script of this folder, with folders on its load path; return what it prints."""
    places = [word for folder in lisp for word in ("-L", folder)]
    done = subprocess.run(
        [emacs, "-Q", "--batch", *places, "-l", str(TOP / "bench" / script)],
        env={**environment(), **environ, "DUET_RPC_ELC": str(compiled(emacs))},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=PATIENCE,
        check=True,
    )
    # A package may have something to say before that.
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.rindex(b'{"emacs"') :])
    return found


@cache
def compiled(emacs: str) -> Path:
    """Compile duet-rpc.el, as packages are."""
    folder = BUILD / "elc" / emacs.replace("/", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    library = shutil.copy(TOP / "elisp" / "duet-rpc.el", folder)
    subprocess.run(
        [emacs, "-Q", "--batch", "-f", "batch-byte-compile", library],
        env=environment(),
        stderr=subprocess.DEVNULL,
        timeout=PATIENCE,
        check=True,
    )
    return folder / "duet-rpc.elc"
