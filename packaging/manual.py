"""Make the Info manual and the man page: `python packaging/manual.py FOLDER`, or `make info`.

Both are made from what is there anyway: README.md, the pages in docs/ and the table of commands
that also makes `--help`. makeinfo (Debian: apt-get install texinfo) turns Texinfo into Info.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from texinfo import Manual, MarkdownError

from duet_rpc import __version__
from duet_rpc.command_line import COMMANDS, OPTIONS, VARIABLES, Option, options_of

if TYPE_CHECKING:
    from collections.abc import Iterable

TOP = Path(__file__).resolve().parent.parent
REPOSITORY = "https://github.com/duet-rpc/duet-rpc"
SUMMARY = "write an Emacs command in Python"

ORDER = [
    "first-steps", "commands", "emacs", "methods", "hints",
    "asking", "packages", "workers", "terminal", "ai-clients",
    "servers", "configuration", "logs", "security", "command-line",
    "files", "wire", "jsonrpc", "benchmarks", "design",
    "glossary",
]  # fmt: skip
"""The pages in docs/, in the order of the manual."""

COMMAND_LINE = "docs/command-line.md"
"""A page of the manual that is no file: it is made from the table of commands."""

HEADER = f"""\
\\input texinfo
@documentencoding UTF-8
@settitle duet-rpc
@dircategory Emacs
@direntry
* duet-rpc: (duet-rpc).         Write Emacs commands in Python.
@end direntry

@node Top
@top duet-rpc {__version__}

duet-rpc lets you {SUMMARY}.
"""

FOOTER = """
@node Index
@unnumbered Index
@printindex cp
@bye
"""


def main(folder: Path) -> None:
    """Write duet-rpc.info and duet-rpc.1."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "duet-rpc.1").write_text(man_page())
    makeinfo = shutil.which("makeinfo")
    if makeinfo is None:
        sys.exit(
            "duet-rpc: makeinfo not found. "
            "Install it: apt-get install texinfo (Debian), brew install texinfo (macOS)"
        )
    source = folder / "duet-rpc.texi"
    try:
        source.write_text(texinfo())
    except MarkdownError as error:
        sys.exit(f"duet-rpc: {error}")
    done = subprocess.run(
        [makeinfo, "--no-split", "--output", folder / "duet-rpc.info", source],
        env={**os.environ, "LC_ALL": "C.UTF-8"}, capture_output=True, text=True,
    )  # fmt: skip
    source.unlink()
    sys.stderr.write(done.stderr)
    if done.returncode or done.stderr:
        sys.exit("duet-rpc: makeinfo is not content with the manual; see above")


def texinfo() -> str:
    """Return the whole manual as Texinfo."""
    # Its title is the name of the project. In the manual it is a chapter.
    pages = {"README.md": re.sub(r"\A# .*", "# Introduction", (TOP / "README.md").read_text())}
    for path in list_pages():
        made = path == COMMAND_LINE
        pages[path] = command_line_page() if made else (TOP / path).read_text()
    body = Manual(pages, REPOSITORY).texinfo()
    return HEADER + body.replace("@end menu", "* Index::\n@end menu", 1) + FOOTER


def list_pages() -> list[str]:
    """Return the pages in docs/, in the order of the manual."""
    names = {path.stem for path in (TOP / "docs").glob("*.md")} | {Path(COMMAND_LINE).stem}
    if names != set(ORDER):
        sys.exit(f"duet-rpc: ORDER in manual.py and docs/ differ: {names ^ set(ORDER)}")
    return [f"docs/{name}.md" for name in ORDER]


def command_line_page() -> str:
    """Return a page on all commands and options, made from their table."""
    parts = ["# The command line\n\n`duet-rpc [OPTION]... COMMAND`\n"]
    parts.append(rows_of(option for option in OPTIONS if not option.commands))
    for command in COMMANDS:
        form = f"duet-rpc {command.name} [OPTION]... {command.operands}".strip()
        parts.append(f"## duet-rpc {command.name}\n\n`{form}`\n\n{command.description}\n")
        parts.append(rows_of(each for each in options_of(command.name) if each.commands))
    variables = "".join(f"| `{name}` | {text} |\n" for name, text in VARIABLES.items())
    parts.append(f"## Environment\n\n| variable | |\n| --- | --- |\n{variables}")
    return "\n".join(parts)


def rows_of(options: Iterable[Option]) -> str:
    """Return a table of options, or nothing if there are none."""
    rows = "".join(f"| `{form(option)}` | {option.summary} |\n" for option in options)
    return rows and f"| option | |\n| --- | --- |\n{rows}"


def form(option: Option) -> str:
    """Return an option as it is typed."""
    names = f"{option.short}, {option.name}" if option.short else option.name
    return f"{names} {option.value}".strip()


def man_page() -> str:
    """Return the man page, as roff."""
    date = time.strftime(
        "%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    )
    page = (TOP / "docs" / "files.md").read_text()
    lines = [
        f'.TH DUET-RPC 1 "{date}" "duet-rpc {__version__}" "User Commands"',
        ".SH NAME",
        f"duet-rpc \\- {SUMMARY}",
        ".SH SYNOPSIS",
        ".B duet-rpc",
        roff("[OPTION]... COMMAND"),
        ".SH DESCRIPTION",
        roff(
            "duet-rpc is a small daemon that Emacs starts and talks to over stdin and stdout. It "
            "calls functions that you write in Python, for Emacs, for a terminal and for AI "
            "clients. The whole manual is in Info: type `info duet-rpc`."
        ),
        ".SH COMMANDS",
        *(
            line
            for command in COMMANDS
            for line in entry(
                f"{command.name} {command.operands}".strip(),
                command.description + own_options(command.name),
            )
        ),
        ".SH OPTIONS",
        *(line for option in OPTIONS for line in entry(form(option), option.summary + ".")),
        ".SH ENVIRONMENT",
        *(line for name, text in VARIABLES.items() for line in entry(name, text + ".")),
        ".SH FILES",
        *(line for name, text in table_in(page, "Files") for line in entry(name, text + ".")),
        ".SH EXIT STATUS",
        *(line for code, text in table_in(page, "Exit codes") for line in entry(code, text + ".")),
        ".SH SEE ALSO",
        ".BR emacs (1),",
        roff(REPOSITORY),
    ]
    return "\n".join(lines) + "\n"


def own_options(command: str) -> str:
    """Return a sentence with the options that not every command has."""
    names = [option.name for option in options_of(command) if option.commands]
    return f" Options: {', '.join(names)}." if names else ""


def entry(term: str, text: str) -> list[str]:
    """Return the lines of one term and what it means."""
    return [".TP", f".B {roff(term)}", roff(text)]


def table_in(page: str, heading: str) -> list[tuple[str, str]]:
    """Return the rows of the table of two columns below a heading, its first row aside."""
    section = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.*?) \| (.*) \|$", section, re.M)
    return rows[2:]


def roff(text: str) -> str:
    """Return a text without Markdown, and safe from being a command of roff."""
    text = text.replace("`", "").replace("\\", "\\e").replace("-", "\\-")
    lines = wrap(text, 78, break_on_hyphens=False, break_long_words=False)
    return "\n".join(re.sub(r"^([.'])", r"\\&\1", line) for line in lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
