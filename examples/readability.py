"""Statistics of the region, with a progress bar for a long one."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Dict

from duet_rpc import Context, Region, command


@dataclass
class Readability:
    words: int
    sentences: int
    words_per_sentence: float
    minutes_to_read: float
    most_frequent: Dict[str, int]


@command("text.readability", result="buffer")
def readability(text: Region, ctx: Context, top: int = 5) -> Readability:
    """Count words and sentences, and estimate the reading time."""
    found: Counter[str] = Counter()
    for number, match in enumerate(re.finditer(r"\w+|[.!?]+(?=\s|$)", text)):
        found[match.group().lower()] += 1
        if number % 20_000 == 0:
            ctx.progress(match.end(), len(text), "reading")
    words = sum(n for word, n in found.items() if word[0].isalnum())
    sentences = sum(found.values()) - words
    frequent = {word: n for word, n in found.most_common() if len(word) > 3}
    average = round(words / max(sentences, 1), 1)
    minutes = round(words / 230, 1)
    return Readability(words, sentences, average, minutes, dict(list(frequent.items())[:top]))
