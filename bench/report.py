"""What was measured, for a terminal and for a program."""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict

from bench.rows import ROWS, Samples, judge
from bench.samples import number, ratio, spread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from bench.rows import Row, Verdict
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
    print("\nGoals")
    for row in ROWS:
        verdict = judge(row, samples)
        if verdict is not None:
            print(f"  {'met' if verdict.met else 'NOT MET':8} {goal_line(row, verdict)}")


def goal_line(row: Row, verdict: Verdict) -> str:
    """Say a goal and what came of it."""
    if verdict.against:
        return f"{row.title}: {verdict.value} x {verdict.against}; goal {row.most} x"
    return f"{row.title}: {verdict.value} {row.unit}; goal {number(row.most)}"


def print_table(table: Table) -> None:
    """Print a table in columns."""
    lines = [table.heads, *table.lines]
    widths = [max(len(line[at]) for line in lines) for at in range(len(table.heads))]
    print(f"\n{table.title}")
    for line in lines:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths)))


def print_emacs(found: dict[str, float | str]) -> None:
    """Print what the calls from one Emacs took."""
    print(
        f"\n{found['calls']} calls from Emacs {found['emacs']}: {found['ours']:.0f} ms; "
        f"jsonrpc.el to the lean loop: {found['lean']:.0f} ms; ratio {found['ratio']:.2f} "
        f"({found['low']:.2f} to {found['high']:.2f})"
    )


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
