"""What was measured, for a terminal, for a page and for a program."""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict

from bench.programs import DUET
from bench.rows import ROWS, Samples, judge
from bench.samples import number, ratio, spread
from bench.scaling import Table


def print_rows(samples: Samples, names: list[str]) -> None:
    """Print medians, and this project's ratio to each other program."""
    seen = []
    for row in ROWS:
        if row.key in seen or row.key not in samples:
            continue
        seen.append(row.key)
        print(f"\n{row.title}, {row.unit}")
        measured = samples[row.key]
        ours = measured.get(row.ours)
        for name in names:
            if measured.get(name):
                line = f"  {name:22} {spread(measured[name])!s:26}"
                if ours and name != row.ours and any(measured[name]):
                    line += f" {row.ours} takes {ratio(ours, measured[name])} of it"
                print(line.rstrip())
    print_table(goals(samples))


def goals(samples: Samples) -> Table:
    """Hold each row against its goal."""
    lines = []
    for row in ROWS:
        verdict = judge(row, samples)
        if verdict is not None:
            unit = f"x {verdict.against}" if verdict.against else row.unit
            goal = f"{number(row.most)}{' x' if verdict.against else ''}"
            met = "met" if verdict.met else "NOT MET"
            lines.append([row.title, f"{verdict.value} {unit}", goal, met])
    return Table("Goals", ["work", "measured", "goal", ""], lines)


def medians(samples: Samples, names: list[str]) -> Table:
    """Put all programs beside each other."""
    lines = []
    for row in ROWS:
        title, measured = f"{row.title}, {row.unit}", samples.get(row.key, {})
        if measured.get(DUET) and row.ours == DUET:
            values = (measured.get(name) for name in names)
            lines.append([title, *(number(spread(each).median) if each else "" for each in values)])
    return Table("Medians", ["", *names], lines)


def print_table(table: Table) -> None:
    """Print a table in columns."""
    lines = [table.heads, *table.lines]
    widths = [max(len(line[at]) for line in lines) for at in range(len(table.heads))]
    print(f"\n{table.title}")
    for line in lines:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths)))


def emacs_line(found: dict[str, float | str]) -> str:
    """Say what the calls from one Emacs took."""
    return (
        f"{found['calls']} calls from Emacs {found['emacs']}: {found['ours']:.0f} ms; "
        f"jsonrpc.el to the lean loop: {found['lean']:.0f} ms; ratio {found['ratio']:.2f} "
        f"({found['low']:.2f} to {found['high']:.2f})"
    )


def as_page(
    samples: Samples,
    names: list[str],
    tables: list[Table],
    emacs: list[dict[str, float | str]],
    rounds: int,
) -> str:
    """Write it as a page for people."""
    parts = [
        "# What `make bench` measured",
        f"{rounds} rounds with Python {sys.version.split()[0]} on {platform.machine()}, all "
        "programs in turn. Milliseconds depend on the machine. A ratio is taken in each round; "
        "here is the median of them, and between what nine rounds of ten lie.",
        "Before each turn of the 9 MB request much memory is used for a moment and let go, "
        "whichever program comes next. In a virtual machine whose host has taken free memory "
        "back, a large message takes longer than stands here.",
        as_markdown(goals(samples)),
        as_markdown(medians(samples, names)),
        *(as_markdown(table) for table in tables),
        *(emacs_line(found) for found in emacs),
    ]
    return "\n\n".join(parts) + "\n"


def as_markdown(table: Table) -> str:
    """Write a table as GitHub shows it."""
    lines = [table.heads, ["---"] * len(table.heads), *table.lines]
    return "\n".join([f"## {table.title}\n", *(f"| {' | '.join(line)} |" for line in lines)])


def as_json(
    samples: Samples, tables: list[Table], emacs: list[dict[str, float | str]], rounds: int
) -> dict[str, object]:
    """Put everything into one value."""
    goals = []
    for row in ROWS:
        verdict = judge(row, samples)
        if verdict is not None:
            goals.append({"row": row.title, "goal": row.most, **asdict(verdict)})
    return {
        "python": sys.version.split()[0],
        "machine": platform.machine(),
        "rounds": rounds,
        "medians": {
            key: {name: asdict(spread(values)) for name, values in measured.items() if values}
            for key, measured in samples.items()
        },
        "goals": goals,
        "samples": samples,
        "tables": [asdict(table) for table in tables],
        "emacs": emacs,
    }
