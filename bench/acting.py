"""What Emacs does for Python: calls, a stream into a buffer; and what an init file pays."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from bench.emacs import emacsen, run_emacs
from bench.install import BUILD, EPC_LISP, PEERS, PYTHON, TOP, VENV
from bench.programs import DUET, PYZ, has
from bench.workers import home_with

if TYPE_CHECKING:
    from bench.goals import Samples

SKIPPED = ("demo.py", "test_examples.py")
EXAMPLES = [each for each in (TOP / "examples").glob("*.py") if each.name not in SKIPPED]
EPC = "EPC"
STREAM_LIMIT = "2 x inserting it at once + 1 s"


def from_acting(rounds: int) -> Samples:
    """Measure all of it from each Emacs."""
    samples: Samples = {}
    daemon = [PYTHON, PYZ, "rpc", "--methods", str(PEERS / "acting.py")]
    environ = {"BENCH_ROUNDS": str(rounds), "BENCH_DUET": json.dumps(daemon)}
    lisp = [str(folder) for folder in sorted(EPC_LISP.glob("usr/share/emacs/site-lisp/elpa-src/*"))]
    if lisp and has("epc"):
        peer = [str(VENV / "bin" / "python"), str(PEERS / "epc_peer.py")]
        environ["BENCH_EPC"] = json.dumps(peer)
    for emacs in emacsen():
        found = run_emacs(emacs, "acting.el", environ, lisp)
        version = found["emacs"]
        samples[f"acting {version}"] = {DUET: found["ours"], EPC: found["epc"]}
        limits = [2 * each + 1000 for each in found["inserts"]]
        samples[f"stream {version}"] = {DUET: found["streams"], STREAM_LIMIT: limits}
        starts = measure_starts(emacs, rounds)
        for key in ("load", "mode"):
            samples[f"{key} {version}"] = {DUET: [each[key] for each in starts]}
    return samples


def measure_starts(emacs: str, rounds: int) -> list[dict[str, float]]:
    """Load the library and turn the mode on, with the commands of all examples."""
    environ = home_with("starts", {each.stem: each.read_text() for each in EXAMPLES})
    folder = BUILD / "workers" / "starts" / ".emacs.d"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    daemon = json.dumps([PYTHON, PYZ, "rpc"])
    run_emacs(emacs, "loading.el", {**environ, "BENCH_DUET": daemon})
    return [run_emacs(emacs, "loading.el", environ) for _ in range(rounds)]
