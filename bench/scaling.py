"""How cost grows with size: tables, each a list of rows under a heading."""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.programs import DUET, Program, duet
from bench.requests import many_records, request, requests
from bench.samples import number, ratio
from bench.server import Server
from bench.sessions import SETTLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_485_000)
PIECES = {"one piece": 1 << 30, "64 KiB": 1 << 16, "4 KiB": 1 << 12, "1 byte": 1}
BYTE_BY_BYTE_MAX = 100_000
"""Bytes that are sent one by one, unless there is time for more."""

METHODS = (0, 10, 100, 500, 1000)
PENDING = (1, 10, 100, 1_000, 10_000)


@dataclass(frozen=True)
class Table:
    """A small table of text."""

    title: str
    heads: list[str]
    lines: list[list[str]]


def tables(rounds: int, full: bool) -> list[Table]:
    """Measure all of them."""
    return [bodies(rounds, full), methods(rounds), pending(rounds)]


def median_of(rounds: int, measure: Callable[[], float]) -> float:
    """Measure some times; return the median."""
    return statistics.median(measure() for _ in range(rounds))


def bodies(rounds: int, full: bool) -> Table:
    """Measure the time to a reply against the size of a body and its pieces."""
    lines = []
    with Server(Program(DUET, duet())) as server:
        server.call(request())
        time.sleep(SETTLE)
        for size in SIZES:
            data = many_records(size)
            line = [f"{len(data):,}"]
            for piece in PIECES.values():
                if piece == 1 and size > BYTE_BY_BYTE_MAX and not full:
                    line.append("-")
                    continue

                def once(piece: int = piece, data: bytes = data) -> float:
                    before = time.perf_counter()
                    server.feed(data, piece)
                    return time.perf_counter() - before

                took = median_of(1 if piece == 1 else rounds, once)
                line.append(f"{number(took * 1e3)} ms, {number(took / len(data) * 1e9)} ns")
            lines.append(line)
    title = "Size of one request, in the pieces it comes in: time to the reply, and that a byte"
    return Table(title, ["bytes", *PIECES], lines)


def methods(rounds: int) -> Table:
    """Measure the first reply against the number of the user's methods."""
    builtin: dict[int, list[float]] = {count: [] for count in METHODS}
    own: dict[int, list[float]] = {count: [] for count in METHODS}
    with tempfile.TemporaryDirectory() as top:
        flags = {count: write_methods(Path(top, str(count)), count) for count in METHODS}
        for _ in range(rounds):
            for count in METHODS:
                builtin[count].append(first_reply(flags[count], request()))
                if count:
                    asked = request(0, "method_0", '{"text":"x"}')
                    own[count].append(first_reply(flags[count], asked))
    lines = []
    for count in METHODS:
        took = number(statistics.median(builtin[count]) * 1e3)
        line = [f"{count:,}", f"{took} ms", str(ratio(builtin[count], builtin[0]))]
        if count:
            line.append(f"{number(statistics.median(own[count]) * 1e3)} ms")
        lines.append([*line, "-"][:4])
    title = "Number of the user's methods (ten to a file): spawn to the first reply"
    return Table(title, ["methods", "of `version`", "x none", "of one of them"], lines)


def first_reply(flags: list[str], data: bytes) -> float:
    """Start the daemon and make one call."""
    before = time.perf_counter()
    with Server(Program(DUET, duet(*flags))) as server:
        server.call(data)
        return time.perf_counter() - before


def write_methods(folder: Path, count: int, each: int = 10) -> list[str]:
    """Write files of methods; return the flags that load them."""
    folder.mkdir()
    flags = []
    for first in range(0, count, each):
        path = folder / f"methods_{first}.py"
        functions = (
            f"@method\ndef method_{name}(text: str) -> str:\n    return text\n"
            for name in range(first, min(count, first + each))
        )
        path.write_text("from duet_rpc import method\n\n" + "\n".join(functions))
        flags += ["--methods", str(path)]
    return flags


def pending(rounds: int) -> Table:
    """Measure the time for each request against the number that wait."""
    lines = []
    with Server(Program(DUET, duet())) as server:
        server.call(request())
        time.sleep(SETTLE)
        for count in PENDING:
            data = requests(count)

            def once(data: bytes = data, count: int = count) -> float:
                before = time.perf_counter()
                server.burst(data, count)
                return time.perf_counter() - before

            took = median_of(rounds, once)
            lines.append(
                [f"{count:,}", f"{number(took * 1e3)} ms", f"{number(took / count * 1e6)} µs"]
            )
    return Table(
        "Requests sent at once: time to the last reply", ["requests", "all", "each"], lines
    )
