"""What noticing changes costs the author of methods.

A file of some 200 lines is saved, and the next call loads it: that is compared with
`reloadMethods`, which does nothing but load it. And a call is measured whose file has nine
helpers, beside one whose file has none: the difference is nine looks at a file.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from bench.install import BUILD, PYTHON
from bench.programs import DUET, PYZ, Program
from bench.server import Server
from bench.traffic import Call, Traffic

if TYPE_CHECKING:
    from pathlib import Path

    from bench.goals import Samples

LOADING = "loading it"
SAVES = 20
TRIPS = 300
HELPERS = 9
SETTLE = 0.3

PROGRAM = Program(DUET, [PYTHON, PYZ, "rpc"])


def from_author(rounds: int) -> Samples:
    """Measure both, on files that differ from save to save."""
    folder = BUILD / "author"
    folder.mkdir(parents=True, exist_ok=True)
    saved: dict[str, list[float]] = {DUET: [], LOADING: []}
    noticing: list[float] = []
    for number in range(rounds):
        traffic = Traffic(f"author {number}")
        for name, value in measure_saves(folder / "alone.py", number, traffic).items():
            saved[name].append(value * 1e3)
        noticing.append(measure_noticing(folder, traffic) * 1e6)
    return {"saved": saved, "noticing": {DUET: noticing}}


def measure_saves(path: Path, number: int, traffic: Traffic) -> dict[str, float]:
    """Save a file many times; return how long the next call takes, and loading alone."""
    took: dict[str, list[float]] = {DUET: [], LOADING: []}
    write(path, "alone", 0)
    with Server(PROGRAM, "--methods", str(path)) as server:
        server.call(call(traffic, "alone"))
        time.sleep(SETTLE)
        for save in range(SAVES):
            write(path, "alone", SAVES * number + save)
            took[DUET].append(server.call(call(traffic, "alone")))
            took[LOADING].append(server.call(Call(traffic.next_id(), "reloadMethods", {}, None)))
    return {name: statistics.median(values) for name, values in took.items()}


def measure_noticing(folder: Path, traffic: Traffic) -> float:
    """Return what ten looks at a file add to a call."""
    names = [f"_helper_{number}" for number in range(HELPERS)]
    for name in names:
        (folder / f"{name}.py").write_text("VALUE = 1\n")
    write(folder / "alone.py", "alone", 0)
    write(folder / "helped.py", "helped", 0, "".join(f"import {name}\n" for name in names))
    flags = [word for name in ("alone", "helped") for word in ("--methods", f"{folder}/{name}.py")]
    medians = {}
    with Server(PROGRAM, *flags) as server:
        for name in ("alone", "helped"):
            server.call(call(traffic, name))
        time.sleep(SETTLE)  # a file that was saved just now is looked at more closely
        for name in ("alone", "helped"):
            server.call(call(traffic, name))
        with server.one_core():
            for name in ("alone", "helped"):
                trips = [server.call(call(traffic, name)) for _ in range(TRIPS)]
                medians[name] = statistics.median(trips)
    return (medians["helped"] - medians["alone"]) * (HELPERS + 1) / HELPERS


def write(path: Path, name: str, number: int, imports: str = "") -> None:
    """Save a file of methods that differs from what it was."""
    lines = [f"{imports}from duet_rpc import method\n\n@method\n"]
    lines.append(f"def {name}(x: int) -> int:\n    return x + {number} * 0\n\n")
    lines += [
        f"def part_{at}(text: str, size: int = {at + number}) -> list[str]:\n"
        f"    words = [word.strip() for word in text.split() if len(word) > size]\n"
        f"    return sorted(words, key=len)[:{at}]\n\n"
        for at in range(45)
    ]
    path.write_text("".join(lines))


def call(traffic: Traffic, name: str) -> Call:
    """Make a call that differs from all others."""
    id = traffic.next_id()
    return Call(id, name, {"x": id}, id)
