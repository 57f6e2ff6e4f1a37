"""Measure dist/duet-rpc.pyz beside its peers: `make bench`, or `make bench ROUNDS=5`.

Every program takes its turn in every round, in another order each time, so that a busy
machine is unfair to none. The numbers go to the terminal and to build/bench/results.json;
those of a full run also to bench/results.md and to the picture in the README.

To add a program or a kind of work, add it to the tables in `programs`, `sessions` and `goals`.
"""

from __future__ import annotations

import argparse
import json
import sys

from bench import sessions
from bench.acting import from_acting
from bench.author import from_author
from bench.emacs import from_emacs
from bench.goals import Samples
from bench.install import BUILD, TOP, install
from bench.picture import draw
from bench.programs import DUET, Program, mcp_programs, rpc_programs
from bench.proxy import from_proxy
from bench.report import as_json, as_page, as_text, goals, medians
from bench.routes import from_routes
from bench.traffic import Traffic
from bench.workers import from_workers

ROUNDS = 20

IDLE_ROUNDS = 2
"""How often what hardly varies and takes seconds is measured."""


def main() -> None:
    """Measure, print, write."""
    options = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    options.add_argument("--rounds", type=int, default=ROUNDS)
    rounds: int = options.parse_args().rounds
    install()
    servers, tools = rpc_programs(), mcp_programs()
    for program in servers:  # the first start unpacks, compiles, fills the disk's cache
        sessions.start(program, Traffic("warm"))
    for program in tools:
        sessions.mcp(program, Traffic("warm"))
    ours = [program for program in servers if program.name == DUET]
    samples: Samples = {}
    for number in range(rounds):
        for again in range(3):  # of all figures, those of a start vary most
            take_turns(sessions.start, servers, 3 * number + again, samples)
        take_turns(sessions.talk, servers, number, samples)
        take_turns(sessions.large, servers, number, samples)
        take_turns(sessions.mcp, tools, number, samples)
        if number < IDLE_ROUNDS:
            take_turns(sessions.idle, servers, number, samples)
    take_turns(sessions.growth, ours, 0, samples)
    for part in (from_routes, from_workers, from_proxy, from_author, from_emacs, from_acting):
        tell(part.__name__)
        samples.update(part(rounds))
    tell("")
    print(as_text(medians(samples)), as_text(goals(samples)), sep="\n\n")
    (BUILD / "results.json").write_text(json.dumps(as_json(samples, rounds), indent=1) + "\n")
    # What the README shows is not replaced by a quick run.
    folder = BUILD if rounds < ROUNDS else TOP / "bench"
    draw(samples, folder / "results.svg")
    (folder / "results.md").write_text(as_page(samples, rounds))
    shown = folder.relative_to(TOP)
    print(f"\nwritten: build/bench/results.json, {shown}/results.svg and {shown}/results.md")


def take_turns(
    session: sessions.Session, programs: list[Program], number: int, samples: Samples
) -> None:
    """Let every program do one session, with the same traffic."""
    tell(f"{session.__name__}, {number + 1}")
    first = number % len(programs)
    for program in programs[first:] + programs[:first]:
        for key, value in session(program, Traffic(f"{session.__name__} {number}")).items():
            if value is not None:
                samples.setdefault(key, {}).setdefault(program.name, []).append(value)


def tell(what: str) -> None:
    """Show on a terminal what is being measured."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{what}", end="", file=sys.stderr, flush=True)


main()
