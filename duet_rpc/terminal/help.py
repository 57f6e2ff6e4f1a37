"""`--help`: the table of commands and options, as text for a person."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from duet_rpc.command_line import (
    COMMANDS,
    OPTIONS,
    VARIABLES,
    Option,
    find_command,
    options_of,
    usage,
)
from duet_rpc.program import program_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WIDTH = 79
COLUMN = 23
"""Where the second column begins."""


def help_text(command: str | None = None) -> str:
    """Return the help on a command, or on the whole program."""
    return "\n".join(_program_help() if command is None else _command_help(command))


def _program_help() -> Iterator[str]:
    yield "duet-rpc lets you write an Emacs command in Python."
    yield ""
    yield usage()
    yield from _section(
        "commands", ((f"{each.name} {each.operands}", each.summary) for each in COMMANDS)
    )
    options = ((_form(each), _summary_with_commands(each)) for each in OPTIONS)
    yield from _section("options, before or after the command", options)
    yield from _section("environment", VARIABLES.items())
    yield ""
    yield f"`{program_name()} COMMAND --help` shows the options of one command."


def _command_help(name: str) -> Iterator[str]:
    yield usage(name)
    yield ""
    yield from wrap(find_command(name).description, WIDTH)
    yield from _section("options", ((_form(each), each.summary) for each in options_of(name)))


def _section(title: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a title and rows of two columns; a long second column is wrapped."""
    yield ""
    yield f"{title}:"
    for name, text in rows:
        yield from wrap(
            text,
            WIDTH,
            initial_indent=f"  {name}".ljust(COLUMN - 1) + " ",
            subsequent_indent=" " * COLUMN,
            break_on_hyphens=False,
        )


def _form(option: Option) -> str:
    names = f"{option.short}, {option.name}" if option.short else option.name
    return f"{names} {option.value}".strip()


def _summary_with_commands(option: Option) -> str:
    return f"{option.summary} ({', '.join(option.commands)})" if option.commands else option.summary
