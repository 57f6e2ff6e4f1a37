"""The fenced blocks of the manual, and how what they show is tried.

Every block names its language, and that says what is done with it. A comment in front of a block
says what else is to be known:

    <!-- file: ~/.config/duet-rpc/methods/words.py -->   the block is saved there first
    <!-- numbers: vary -->                               any number stands for a number in it
    <!-- checked by: NAME -->                            the test NAME compares it with the truth
    <!-- not run: WHY -->                                it is only shown

A comment with `file:` and more lines than one is itself the file: the page does not show it.
All paths are below the home directory of the page, which begins empty.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support import PYZ, TOP

PAGES = [TOP / "README.md", *sorted((TOP / "docs").glob("*.md"))]

HOME = "/home/you"
"""What the manual calls the home directory."""

SERVERS = TOP / "build" / "servers" / "venv" / "bin"

_PART = re.compile(
    r"^<!-- (?P<mark>[a-z ]+): (?P<value>.*?) ?-->$|^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    """One fenced block, or a file that the page does not show (language `file`)."""

    page: str
    line: int
    language: str
    code: str
    file: str = ""
    numbers: str = ""
    checked_by: str = ""
    not_run: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(path: Path) -> list[Block]:
    """Return the blocks of a page, in order."""
    text = path.read_text()
    blocks = []
    marks: dict[str, str] = {}
    end = 0
    for found in _PART.finditer(text):
        if text[end : found.start()].strip():
            marks = {}
        end = found.end()
        line = text.count("\n", 0, found.start()) + 1
        value = found["value"] or ""
        if found["mark"] == "file" and "\n" in value:
            name, _, code = value.partition("\n")
            blocks.append(Block(path.name, line, "file", code, name))
        elif found["mark"]:
            marks[found["mark"].replace(" ", "_")] = value
        else:
            blocks.append(Block(path.name, line, found["language"], found["code"], **marks))
            marks = {}
    return blocks


def environment(home: Path) -> dict[str, str]:
    """Return the environment of somebody who has installed duet-rpc as the README says."""
    bin_folder = home / ".local" / "bin"
    if not bin_folder.exists():
        bin_folder.mkdir(parents=True)
        (bin_folder / "duet-rpc").symlink_to(PYZ)
        (bin_folder / "python3").symlink_to(sys.executable)
        for name in ("lib", "pyvenv.cfg"):  # so that it has the packages of the tests
            (bin_folder.parent / name).symlink_to(Path(sys.prefix) / name)
    path = os.pathsep.join([str(bin_folder), os.environ["PATH"], str(SERVERS)])
    return {"NO_COLOR": "1", "HOME": str(home), "PATH": path, "LC_ALL": "C.UTF-8"}


def save(block: Block, home: Path) -> None:
    """Save a block under the name that its comment gives."""
    path = home / block.file.replace("~/", "")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.code)


def commands_in(block: Block) -> Iterator[tuple[str, str]]:
    """Return each command of a console, and the output that is shown for it."""
    for part in re.split(r"^\$ ", block.code, flags=re.M)[1:]:
        lines = part.splitlines()
        count = 1
        while lines[count - 1].endswith("\\"):
            count += 1
        yield "\n".join(lines[:count]), "\n".join(lines[count:]).strip("\n")


def run(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell at a terminal; return what that shows, in the manual's words."""
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        ["sh", "-e", "-c", command], cwd=home, env=environment(home),
        stdin=subprocess.DEVNULL, stdout=end, stderr=end,
    )  # fmt: skip
    os.close(end)
    late = threading.Timer(60, process.kill)
    late.start()
    shown = b""
    with suppress(OSError):  # which Linux raises when the last process has closed its end
        while chunk := os.read(terminal, 65536):
            shown += chunk
    code = process.wait()
    late.cancel()
    os.close(terminal)
    text = shown.decode().replace("\r\n", "\n").replace(str(home), HOME).strip("\n")
    return subprocess.CompletedProcess(command, code, text)


def is_shown(output: str, shown: str, *, numbers_vary: bool = False) -> bool:
    """Return whether an output is what the manual shows, where `…` stands for any text.

    A line that is nothing else stands for any number of lines.
    """

    def pattern(line: str) -> str:
        text = re.escape(line).replace("…", ".*")
        if numbers_vary:  # and so does the space that aligns them
            text = re.sub(r"\d+(\\\.\d+)*", r"\\d[\\d.]*", re.sub(r"(\\ )+", " +", text))
        return text + r"\n"

    lines = [r"(?:.*\n)*" if line == "…" else pattern(line) for line in shown.splitlines()]
    return re.fullmatch("".join(lines), output and output + "\n") is not None


def missing_programs(block: Block) -> list[str]:
    """Return what a block needs and this machine does not have."""
    words = ["pylsp", "mcp-server-time"]
    path = f"{os.environ['PATH']}{os.pathsep}{SERVERS}"
    return [word for word in words if word in block.code and not shutil.which(word, path=path)]
