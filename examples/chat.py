"""Talk to a patient listener, whose answer comes word by word."""

import re
import time
from collections.abc import Iterator

from duet_rpc import Region, command

TURNED = {"i": "you", "me": "you", "my": "your", "am": "are", "you": "I", "your": "my"}
ANSWERS = [
    (r"\bi (?:need|want) (.*)", "Why do you want {}? What would it change if you had {}?"),
    (r"\bi am (.*)", "How long have you been {}? Tell me how it began."),
    (r"\bi can't (.*)", "What would it take to {}? Have you tried the smallest part of it?"),
    (r"\bbecause (.*)", "Is {} the only reason? What else comes to mind?"),
    (r"(.*)\?$", "What do you think yourself about it?"),
    (r"(.*)", "I see. Please go on."),
]


@command(name="chat-answer", result="stream", read_only=True)
def talk(text: Region, pause: float = 0.05) -> Iterator[str]:
    """Answer the region, or the buffer, as an attentive listener would; C-g interrupts."""
    said = text.strip().rpartition("\n")[2].lower().rstrip(".!")
    for pattern, answer in ANSWERS:
        found = re.search(pattern, said)
        if found:
            words = [TURNED.get(word, word) for word in found.group(1).split()]
            yield "\n"
            for word in answer.format(*[" ".join(words)] * 2).split(" "):
                yield word + " "
                time.sleep(pause)
            yield "\n"
            return
