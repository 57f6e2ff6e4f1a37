"""Count up: `C-u 5 M-x increment-numbers` adds 5 to every number in the region."""

import re

from duet_rpc import PrefixArg, Region, command


@command(key="C-c i", result="edit")
def increment_numbers(text: Region, by: PrefixArg = 1) -> str:
    """Add the prefix argument, or 1, to each number; leading zeros are kept, as in `007`."""

    def add(match: "re.Match[str]") -> str:
        return str(int(match.group()) + by).zfill(len(match.group()))

    return re.sub(r"\d+", add, text)
