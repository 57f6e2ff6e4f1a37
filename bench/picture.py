"""The picture in the README: bars for duet-rpc and its peers, as SVG.

There is one panel for each kind of work. A bar that would not fit is cut at the panel's edge
and shows a gap there; its number is beside it all the same.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from bench.goals import list_rows, number
from bench.programs import DUET, LEAN, LSP_JSONRPC, PYGLS, VSCODE, C

if TYPE_CHECKING:
    from pathlib import Path

    from bench.goals import Row, Samples

ORDER = (DUET, LSP_JSONRPC, VSCODE, PYGLS, LEAN, C)
PANELS = ("start", "exit", "trip", "burst", "large_text", "memory")

WIDTH, PANEL, NAMES, BARS = 860, 420, 128, 210
TOP, TITLE, STEP, GAP = 52, 26, 19, 22
HEIGHT = TITLE + STEP * len(ORDER) + GAP

STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f; }
  .head { font-weight: 600; font-size: 15px; } .title { font-weight: 600; }
  .soft { fill: #57606a; } .page { fill: #ffffff; }
  .ours { fill: #7a3fc4; } .peer { fill: #8c959f; } .limit { fill: #d0d7de; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .soft { fill: #9198a1; } .page { fill: #0d1117; }
    .ours { fill: #b083f0; } .peer { fill: #6e7681; } .limit { fill: #3d444d; }
  }
"""


def draw(samples: Samples, path: Path) -> None:
    """Write the picture."""
    every = {row.key: row for row in list_rows(samples)}
    rows = [every[key] for key in PANELS if key in samples]
    height = TOP + HEIGHT * ((len(rows) + 1) // 2)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="duet-rpc beside its peers">',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="6"/>',
        '<text class="head" x="16" y="26">duet-rpc.pyz beside its peers</text>',
        f'<text class="soft" x="{WIDTH - 16}" y="26" text-anchor="end">'
        "medians of one run; shorter is better; pale: loops that check nothing</text>",
    ]
    for at, row in enumerate(rows):
        medians = {
            name: statistics.median(samples[row.key][name])
            for name in ORDER
            if samples[row.key].get(name)
        }
        lines += panel(row, medians, 16 + PANEL * (at % 2), TOP + HEIGHT * (at // 2))
    path.write_text("\n".join([*lines, "</svg>"]) + "\n")


def panel(row: Row, medians: dict[str, float], x: int, y: int) -> list[str]:
    """Draw the bars of one kind of work."""
    # Long enough for all but the one that would make the others invisible.
    longest = sorted(medians.values())[-2:][0] * 1.25
    lines = [
        f'<text class="title" x="{x}" y="{y + 12}">{row.title}'
        f'<tspan class="soft" font-weight="400" dx="5">({row.unit})</tspan></text>'
    ]
    for at, (name, value) in enumerate(medians.items()):
        top = y + TITLE + STEP * at
        kind = "ours" if name == DUET else "limit" if name in (LEAN, C) else "peer"
        width = max(1.5, min(1.0, value / longest) * BARS)
        left = x + NAMES
        weight = ' font-weight="600"' if name == DUET else ""
        lines += [
            f'<text x="{left - 8}" y="{top + 10}" text-anchor="end"{weight}>{name}</text>',
            f'<rect class="{kind}" x="{left}" y="{top}" width="{width:.1f}" height="13" rx="2"/>',
            f'<text class="soft" x="{left + width + 6:.1f}" y="{top + 10}">{number(value)}</text>',
        ]
        if value > longest:  # cut
            lines.append(f'<path class="page" d="M{left + BARS - 22} {top - 1}h5l-6 15h-5z"/>')
    return lines
