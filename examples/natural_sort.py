"""Sort the lines of the region as a person would: page 2 before page 10, and no case."""

import re
from typing import List, Tuple

from duet_rpc import Region, command


def natural(line: str) -> List[Tuple[int, str]]:
    parts = re.findall(r"\d+|\D+", line.casefold())
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


@command(key="C-c n", result="edit")
def sort_naturally(text: Region) -> str:
    """Sort the lines of the region, numbers in them by their value."""
    end = "\n" if text.endswith("\n") else ""
    return "\n".join(sorted(text.splitlines(), key=natural)) + end
