"""The block of a file that says which Python and packages it needs (PEP 723).

    # /// script
    # requires-python = ">=3.10"
    # dependencies = ["pandas"]
    # ///

Every file of methods is asked whether it has one before the first reply, and few do. So
`find_block` imports nothing, and the TOML parser is imported where there is a block to read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duet_rpc.environments.requirements import Requirements

OPENING = "# /// script"

CLOSING = "# ///"
OPENS = re.compile(r"# /// ([a-zA-Z0-9-]+)")
LOOKS_OPEN = re.compile(r"#[ \t]*///[ \t]*script[ \t]*", re.IGNORECASE)

KEYS = ("dependencies", "requires-python", "tool")


class BlockError(Exception):
    """A block is wrong; the text has file and line and says what to write."""


def find_block(text: str) -> str | None:
    """Return the TOML of the first block in the text of a file, or None where there is none."""
    found = _find(text) if OPENING in text else []
    return found[0][1] if found else None


def read(text: str, file: str) -> Requirements | None:
    """Return what the block of a file's text asks for, or None where there is no block."""
    found = _find(text) if OPENING in text else []
    if not found:
        return None
    if len(found) > 1:
        (first, _), (second, _) = found[:2]
        what = f"a second `{OPENING}` block; the first is on line {first}. Remove one of them"
        raise BlockError(f"{file}:{second}: {what}")
    line, toml = found[0]
    return _parse(toml, file, line)


def why_ignored(text: str) -> tuple[int, str] | None:
    """Return the line of a block that the PEP says is none, and what to write; or None."""
    if "///" not in text or find_block(text) is not None:
        return None
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if LOOKS_OPEN.fullmatch(line):
            if line != OPENING:
                return number, f"the block must open with `{OPENING}`, in exactly this form"
            end = f"it must end with a line `{CLOSING}`"
            return number, f"{end}, and each line up to there must begin with `# `"
    return None


def _find(text: str) -> list[tuple[int, str]]:
    """Return the line that each block opens on, and its TOML.

    Finds what the regular expression of the PEP finds, which needs quadratic time for blocks
    without an end; and a block may be empty, as the PEP's text allows.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    blocks = []
    at = 0
    while at < len(lines):
        opens, start = OPENS.fullmatch(lines[at]), at + 1
        at = start
        if opens is None:
            continue
        while at < len(lines) and (lines[at] == "#" or lines[at].startswith("# ")):
            at += 1  # the block ends at the last `# ///` of the comment
        closing = next((n for n in range(at - 1, start - 1, -1) if lines[n] == CLOSING), None)
        if closing is not None:
            at = closing + 1
            if opens.group(1) == "script":
                content = (f"{line[2:]}\n" for line in lines[start:closing])
                blocks.append((start, "".join(content)))
    return blocks


def _parse(toml: str, file: str, opening: int) -> Requirements:
    """Read the TOML of a block that opens on this line of its file."""
    import sys

    from duet_rpc.environments.requirements import Requirements

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    from duet_rpc.config.toml_lines import DEPTH_MAX, line_of, line_too_deep

    def wrong(key: str, what: str) -> BlockError:
        line = opening + (line_of(toml, (key,), tomllib.loads) or 0)
        return BlockError(f"{file}:{line}: {what}")

    deep = line_too_deep(toml)
    if deep is not None:
        what = f"nested too deeply: at most {DEPTH_MAX} tables and arrays inside one another"
        raise BlockError(f"{file}:{opening + deep}: the `{OPENING}` block is {what}")
    try:
        tables = tomllib.loads(toml)
    except ValueError as error:
        what, _, place = str(error).rpartition(" (at ")
        at = re.match(r"line (\d+)", place)
        line = opening + (int(at.group(1)) if at else toml.count("\n"))
        raise BlockError(
            f"{file}:{line}: the `{OPENING}` block is not valid TOML: {what or error}"
        ) from None
    for key in tables:
        if key not in KEYS:
            from duet_rpc.suggestions import did_you_mean

            nearest = did_you_mean(key, KEYS) or f"it may contain {', '.join(KEYS)}"
            raise wrong(key, f"unknown key {key!r} in the `{OPENING}` block; {nearest}")
    python = tables.get("requires-python")
    if python is not None and not isinstance(python, str):
        raise wrong("requires-python", 'requires-python must be a string, such as ">=3.10"')
    packages = tables.get("dependencies", [])
    if not isinstance(packages, list) or not all(isinstance(each, str) for each in packages):
        example = '["pandas>=2", "requests"]'
        raise wrong("dependencies", f"dependencies must be a list of strings, such as {example}")
    return Requirements(python, tuple(packages))
