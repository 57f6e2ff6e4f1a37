"""The decoders under atheris, led by coverage: `make fuzz`, or with `SECONDS=3600`.

What is checked stands at the head of `tests/invariants.py`.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["duet_rpc.jsonrpc"]):
    from duet_rpc.jsonrpc.framing import FRAMINGS
    from tests.invariants import SERVER, check

NAMES = [*FRAMINGS, "auto", *(SERVER + name for name in FRAMINGS)]


def one(data: bytes) -> None:
    """Read a framing, three places to cut at, and the bytes."""
    if len(data) < 4:
        return
    check(NAMES[data[0] % len(NAMES)], data[4:], [place * 3 for place in data[1:4]])


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
