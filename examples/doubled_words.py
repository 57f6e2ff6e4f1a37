"""Two small corrections of prose, shown as a diff before anything is changed."""

import re
from typing import List

from duet_rpc import Edit, Region, command


@command(review=True, modes=["text-mode"])
def remove_doubled_words(text: Region) -> List[Edit]:
    """Remove the second of two equal words in a row, as in "the the", also across lines."""
    doubled = re.finditer(r"\b([^\W\d]+)(\s+\1)\b", text, re.IGNORECASE)
    return [Edit(match.start(2), match.end(2), "") for match in doubled]


@command(review=True)
def straighten_quotes(text: Region) -> List[Edit]:
    """Replace curly quotation marks by those of the keyboard."""
    marks = {"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'"}
    return [Edit(n, n + 1, marks[char]) for n, char in enumerate(text) if char in marks]
