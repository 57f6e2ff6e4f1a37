"""What was measured, for a terminal, for a page and for a program."""

from __future__ import annotations

import platform
import statistics
import sys
from dataclasses import asdict

from bench.goals import Samples, Verdict, judge, list_rows, number, spread
from bench.programs import DUET, LEAN, LOW_LEVEL, LSP_JSONRPC, MCP_SERVER, PYGLS, RASS, VSCODE, C
from bench.proxy import FASTMCP

ORDER = (DUET, LSP_JSONRPC, VSCODE, PYGLS, LOW_LEVEL, MCP_SERVER, FASTMCP, RASS, LEAN, C)

Table = list[list[str]]
"""The first line has the heads."""


def goals(samples: Samples) -> Table:
    """Compare each row with its goal."""
    lines = [["work", "duet-rpc", "beside it", "ratio", "goal", ""]]
    for row in list_rows(samples):
        verdict = judge(row, samples)
        if verdict is not None:
            measured = samples[row.key]
            other = verdict.against
            ours = f"{spread(measured[DUET])} {row.unit}".strip()
            beside = f"{other}: {spread(measured[other])}" if other else ""
            ratio = f"{verdict.value}{' x faster' if row.faster else ''}" if other else ""
            lines.append([row.title, ours, beside, ratio, *describe_goal(verdict)])
    return lines


def describe_goal(verdict: Verdict) -> tuple[str, str]:
    """Return the goal of a row, and whether it is met."""
    row = verdict.row
    if row.goal is None:
        return "", "stated"
    goal = f"{'≥' if row.faster else '≤'} {row.goal:g}{' x' if verdict.against else ''}"
    return goal, "met" if verdict.met else "NOT MET"


def medians(samples: Samples) -> Table:
    """Put all programs beside each other."""
    names = [name for name in ORDER if any(name in measured for measured in samples.values())]
    lines = [["", *names]]
    titles = {row.key: f"{row.title}, {row.unit}".rstrip(", ") for row in list_rows(samples)}
    for key, title in titles.items():
        found = [samples.get(key, {}).get(name) for name in names]
        if not any(found[1:]):  # compared with itself, or with a number
            continue
        lines.append([title, *(number(statistics.median(each)) if each else "" for each in found)])
    return lines


def as_text(table: Table) -> str:
    """Write a table in columns."""
    widths = [max(map(len, column)) for column in zip(*table)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths)) for line in table)
    return "\n".join(line.rstrip() for line in lines)


def as_markdown(table: Table) -> str:
    """Write a table as GitHub shows it."""
    lines = [table[0], ["---"] * len(table[0]), *table[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def as_page(samples: Samples, rounds: int) -> str:
    """Write a page for people."""
    return f"""# What `make bench` measured

{rounds} rounds with Python {sys.version.split()[0]} on {platform.machine()}, all programs in \
turn. No two requests are the same. Milliseconds depend on the machine; a ratio is taken in each \
round, and here are the median of these and the bounds that nine rounds of ten lie within.

The user's method has three parameters, which duet-rpc checks, and can be cancelled while it runs; \
the peers' handlers do the same work without either. The lean Python loop and the C loop check \
nothing and are there to show what the machine can do.

## Goals

{as_markdown(goals(samples))}

## Medians

{as_markdown(medians(samples))}
"""


def as_json(samples: Samples, rounds: int) -> dict[str, object]:
    """Put everything into one value."""
    verdicts = (judge(row, samples) for row in list_rows(samples))
    return {
        "python": sys.version.split()[0],
        "machine": platform.machine(),
        "rounds": rounds,
        "goals": [asdict(verdict) for verdict in verdicts if verdict is not None],
        "medians": {
            key: {name: asdict(spread(values)) for name, values in measured.items() if values}
            for key, measured in samples.items()
        },
        "samples": samples,
    }
