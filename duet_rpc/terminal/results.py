"""A result on stdout: a text as text, a picture as a file, a place as file:line, else JSON.

What a result means is in its member `duet` (see `methods.results`). It may come from anywhere, so
an object that has the member but not the rest is shown as the JSON that it is.
"""

from __future__ import annotations

import re
import sys
from binascii import a2b_base64

from duet_rpc.terminal.output import is_terminal, print_error
from duet_rpc.terminal.pretty import quote, write_json, write_line

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that a terminal may execute."""

SUFFIXES = {"image/svg+xml": ".svg", "image/jpeg": ".jpg"}
SUFFIX_MAX = 8


def write_result(result: object, color: bool) -> None:
    """Print what a method has returned."""
    parts = result if isinstance(result, list) else [result]
    lines = [line_for(part) for part in parts]
    shown = [line for line in lines if line is not None]
    if shown and len(shown) == len(lines):
        for line in shown:
            write_line(line)
    else:
        write_json(result, color)


def line_for(part: object) -> str | None:
    """Return what to print for a result with a meaning; None for any other value."""
    if not isinstance(part, dict):
        return None
    show = {"text": show_text, "image": show_image, "edit": show_edits, "goto": show_goto}
    kind = part.get("duet")
    return show[kind](part) if isinstance(kind, str) and kind in show else None


def show_text(part: dict[str, object]) -> str | None:
    """Return the text, without what a terminal would execute."""
    text = part.get("text")
    if not isinstance(text, str):
        return None
    if is_terminal(sys.stdout):
        text = CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)
    return text


def show_image(part: dict[str, object]) -> str | None:
    """Write the picture to a file; return its name."""
    data, mime = part.get("data"), part.get("mime")
    if not isinstance(data, str) or not isinstance(mime, str):
        return None
    try:
        picture = a2b_base64(data)
    except ValueError:
        return None
    import tempfile  # 5 ms, which most calls do without

    kind = "".join(c for c in mime.rpartition("/")[2][:SUFFIX_MAX] if c.isascii() and c.isalnum())
    suffix = SUFFIXES.get(mime, f".{kind}")
    try:
        with tempfile.NamedTemporaryFile(prefix="duet-rpc-", suffix=suffix, delete=False) as file:
            file.write(picture)
    except OSError as error:
        print_error(f"cannot write the picture to a temporary file: {error.strerror}")
        return None
    return file.name


def show_edits(part: dict[str, object]) -> str | None:
    """Return a line for each change."""
    edits = part.get("edits")
    if not isinstance(edits, list):
        return None
    lines = []
    for edit in edits:
        if not isinstance(edit, dict):
            return None
        start, end, text = edit.get("start"), edit.get("end"), edit.get("text")
        if type(start) is not int or type(end) is not int or not isinstance(text, str):
            return None
        if start == end:
            lines.append(f"at {start} insert {quote(text)}")
        elif text:
            lines.append(f"replace {start} to {end} with {quote(text)}")
        else:
            lines.append(f"delete {start} to {end}")
    return "\n".join(lines)


def show_goto(part: dict[str, object]) -> str | None:
    """Return the place as compilers write it: there the first column is 1."""
    file, line, column = part.get("file"), part.get("line"), part.get("column", 0)
    if not isinstance(file, str) or type(line) is not int or type(column) is not int:
        return None
    shown = CONTROL.sub("?", file)
    return f"{shown}:{line}:{column + 1}" if column else f"{shown}:{line}"
