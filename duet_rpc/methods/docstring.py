"""What a docstring says of the parameters, and what it says before that.

docstring_parser reads the three styles that people write (Google, numpy, Sphinx). It takes about
3 ms to import on CPython 3.11 where `inspect` and `dataclasses` are loaded, and is imported here,
when somebody asks for descriptions: calling a method does without.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from docstring_parser import DocstringParam, DocstringRaises, DocstringReturns, parse

SECTION = re.compile(
    r"^[ \t]*(?:"
    r"(?:Args|Arguments|Params|Parameters|Keyword Args|Keyword Arguments|Other Parameters"
    r"|Returns?|Yields?|Raises|Attributes)(?::[ \t]*$|[ \t]*\n[ \t]*-{3,}[ \t]*$)"
    r"|[:@](?:param|parameter|arg|argument|key|keyword|type|returns?|rtype|yields?|raises?)\b"
    r")",
    re.MULTILINE,
)
"""Where the first of the sections begins that are about parameters, results or exceptions."""


class Docstring(NamedTuple):
    """A docstring, taken apart."""

    text: str
    """All that is above the sections."""
    params: dict[str, str]


def read_docstring(text: str) -> Docstring:
    """Take a docstring apart; one without sections is all text."""
    try:
        found = parse(text)
    except Exception:  # noqa: BLE001 - whatever it can't read, the text remains
        return Docstring(text, {})
    known = (DocstringParam, DocstringReturns, DocstringRaises)
    section = SECTION.search(text)
    if section is None or not any(isinstance(each, known) for each in found.meta):
        return Docstring(text, {})
    params = {
        name.strip().lstrip("*"): each.description
        for each in found.params
        if each.description and each.args[:1] != ["attribute"]
        for name in each.arg_name.split(",")
    }
    return Docstring(text[: section.start()].rstrip(), params)
