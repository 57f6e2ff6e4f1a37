"""Go to the test of this file and back, or list what is still to be done below its folder."""

import re
from pathlib import Path
from typing import List

from duet_rpc import FileName, Goto, Line, RpcError, command

TODO = re.compile(r"\b(TODO|FIXME)\b")


@command(key="C-c t")
def visit_test(file: FileName, line: Line = "") -> Goto:
    """Visit the test of this Python file, or the file that this one tests.

    With point in the line of a `def`, go to where the other file has its name.
    """
    here = Path(file)
    is_test = here.name.startswith("test_")
    other = here.name[len("test_") :] if is_test else f"test_{here.name}"
    top = next((each for each in here.parents if (each / ".git").exists()), here.parent.parent)
    found = sorted(top.rglob(other), key=lambda path: len(path.parts))
    if not found:
        raise RpcError(-32001, f"There is no {other} in {top}")
    name = re.search(r"def (?:test_)?(\w+)", line)
    lines = found[0].read_text(errors="replace").splitlines() if name else []
    matches = [number for number, text in enumerate(lines, 1) if name and name[1] in text]
    return Goto(found[0], matches[0] if matches else 1)


@command
def list_todos(file: FileName) -> List[Goto]:
    """List the lines with TODO or FIXME in the files of this kind, in this folder and below."""
    return [
        Goto(path, number)
        for path in sorted(Path(file).parent.rglob("*" + Path(file).suffix))
        for number, text in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if TODO.search(text)
    ]
