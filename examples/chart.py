"""A bar chart of the region: lines such as `rent 870`, in which the last word is a number."""

import re
from html import escape

from duet_rpc import Image, Region, RpcError, command

ROW, LABEL, BAR = 24, 160, 360
LINE = re.compile(r"\W*(.*?)[\s:=|,]+(-?\d+(?:\.\d+)?)\W*")


@command
def chart(text: Region) -> Image:
    """Draw a bar for each line of the region that ends in a number."""
    rows = [match.groups() for match in map(LINE.fullmatch, text.splitlines()) if match]
    if not rows:
        raise RpcError(-32001, "No line ends in a number; write lines such as: rent 870")
    most = max(abs(float(value)) for _, value in rows) or 1
    bars = []
    for number, (label, value) in enumerate(rows):
        top, width = number * ROW, abs(float(value)) / most * BAR
        color = "#c0504d" if float(value) < 0 else "#4f81bd"
        bars += [
            f'<text x="{LABEL - 8}" y="{top + 17}" text-anchor="end">{escape(label)}</text>',
            f'<rect x="{LABEL}" y="{top + 4}" width="{width:.1f}" height="16" fill="{color}"/>',
            f'<text x="{LABEL + width + 6:.1f}" y="{top + 17}">{value}</text>',
        ]
    size = f'width="{LABEL + BAR + 80}" height="{len(rows) * ROW}"'
    return Image(
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" '
        f'font-size="13"><rect width="100%" height="100%" fill="white"/>{"".join(bars)}</svg>'
    )
