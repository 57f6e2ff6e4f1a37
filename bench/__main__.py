"""Measure dist/duet-rpc.pyz beside its peers: `make bench`, or `make bench ROUNDS=5`.

Every program takes its turn in every round, in another order each time, so that a busy
machine is unfair to none. Results go to the terminal, to build/bench/results.json, and
those of a whole run to the picture of the README and the page beside it.

To add a program or a kind of work, add a line to the tables in `programs`, `sessions` and
`rows`.
"""

from __future__ import annotations

import argparse
import json
import sys

from bench import gateway
from bench.emacs import from_emacs
from bench.install import BUILD, TOP, install
from bench.picture import draw
from bench.programs import ALONE, DUET, RASS, Program, duet, programs
from bench.report import as_json, as_page, emacs_line, print_rows, print_table
from bench.requests import request
from bench.rows import Samples
from bench.scaling import tables
from bench.server import Server
from bench.sessions import SESSIONS, growth
from bench.wires import wires

ROUNDS = 20

PARTS = {"start": 3.0, "talk": 1.0, "call": 0.5, "big": 0.5, "idle": 0.1}
"""How many times the rounds each session takes: a start varies most, and an idle one sleeps."""


def main() -> None:
    """Measure, print, write."""
    options = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--rows", action="store_true", help="the main table alone")
    options.add_argument("--full", action="store_true", help="take the time that it takes")
    chosen = options.parse_args()
    install()
    those = programs()
    for program in those:  # the first start unpacks, compiles, fills the disk's cache
        with Server(program) as server:
            server.call(request())
    samples: Samples = {}
    for session, part in PARTS.items():
        rounds = max(3, round(chosen.rounds * part))
        for number in range(rounds):
            tell(f"{session}, round {number + 1} of {rounds}")
            take_turns(those, session, number, samples)
    tell("growth")
    grown = growth(Program(DUET, duet()), 1_000_000 if chosen.full else 100_000)
    samples["growth"] = {DUET: [] if grown is None else [grown]}
    tell("gateway")
    of_gateway, beside = gateway.measure(chosen.rounds)
    samples.update(of_gateway)
    tell("")
    names = [*(program.name for program in those), RASS, ALONE]
    print_rows(samples, names)
    grows = beside + ([] if chosen.rows else tables(max(3, chosen.rounds // 4), chosen.full))
    for table in grows:
        print_table(table)
    emacs = [] if chosen.rows else from_emacs()
    for found in emacs:
        print(f"\n{emacs_line(found)}")
    # A quick run is no ground to change what the README shows.
    folder = BUILD if chosen.rows or chosen.rounds < ROUNDS else TOP / "bench"
    draw(samples, folder / "results.svg")
    (folder / "results.md").write_text(as_page(samples, names, grows, emacs, chosen.rounds))
    results = as_json(samples, grows, emacs, chosen.rounds)
    if not chosen.rows:
        results["wires"] = wires(max(5, chosen.rounds // 2))
    (BUILD / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    shown = folder.relative_to(TOP)
    print(f"\nwritten: build/bench/results.json, {shown}/results.svg and {shown}/results.md")


def take_turns(those: list[Program], session: str, number: int, samples: Samples) -> None:
    """Let every program do one session."""
    first = number % len(those)
    for program in those[first:] + those[:first]:
        if session in program.sessions:
            for key, value in SESSIONS[session](program).items():
                if value is not None:
                    samples.setdefault(key, {}).setdefault(program.name, []).append(value)


def tell(what: str) -> None:
    """Show on a terminal what is going on."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{what}", end="", file=sys.stderr, flush=True)


main()
