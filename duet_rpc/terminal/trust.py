"""`duet-rpc trust` and `untrust`: decide whether a project's file may name code to run."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from duet_rpc.config.files import PROJECT_FILE, Config, find_project_file, working_directory
from duet_rpc.config.settings import fill, read
from duet_rpc.config.trust import RecordError, forget, is_trusted, remember
from duet_rpc.log import escape
from duet_rpc.program import program_name
from duet_rpc.terminal.output import is_terminal, print_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duet_rpc.command_line import Arguments

SHOWN_MAX = 4000
"""Characters of a command that a person can be expected to read."""


class TooLong(Exception):
    """A command is too long to be read, so nobody can agree to it; the text says which."""


def run_trust(arguments: Arguments) -> int:
    """Trust or untrust the project file of the working directory; return the exit code."""
    warnings: list[str] = []
    path = find_project_file(working_directory(), warnings)
    for warning in warnings:
        print_error(warning)
    if path is None:
        if not warnings:
            print_error(f"no {PROJECT_FILE} in this folder or in one above it")
        return 1
    try:
        if arguments.command == "untrust":
            return untrust(path)
        return trust(path, arguments.options.yes)
    except (RecordError, TooLong) as error:
        print_error(f"nothing was changed: {error}")
        return 1


def trust(path: str, yes: bool) -> int:
    """Show what a project file would run, ask, and record a yes; return the exit code."""
    text, tables = read(path)
    config = Config()
    fill(config, path, text, tables)  # a file with errors is refused before anybody is asked
    lines = list(what_runs(config))
    print(f"{escape(path, len(path))} would do this, whenever duet-rpc starts in its folder:")
    print("\n".join(lines or ["  nothing"]))
    if is_trusted(path, text, os.environ):
        print("It is already trusted.")
        return 0
    if not yes:
        if not is_terminal(sys.stdin) or sys.stdout is None:
            print_error("not trusted: stdin or stdout is not a terminal; add --yes")
            return 1
        # Not `input`: it needs a stderr and an answer that can be decoded.
        print("Trust this file as it is now? [y/N] ", end="", flush=True)
        answer = sys.stdin.buffer.readline().strip().lower()
        if answer not in (b"y", b"yes"):
            print("Not trusted.")
            return 1
    remember(path, text, os.environ)
    print(f"Trusted until the file changes. `{program_name()} untrust` withdraws the trust.")
    return 0


def what_runs(config: Config) -> Iterator[str]:
    """Yield a line for each thing that needs trust, complete."""
    if config.debug:
        yield "  show the text of errors and their tracebacks to callers and in the log"
    if config.python is not None:
        yield f"  run {in_full(config.python, 'methods.python')}  (the Python for all methods)"
    for source in config.methods:
        yield f"  load {in_full(source, 'methods.load')}"
    for name, worker in config.workers.items():
        yield f"  load {in_full(str(worker), f'workers.{name}')}  (worker {name})"
        if worker.env:
            variables = " ".join(f"{key}={value}" for key, value in worker.env.items())
            yield f"    with {in_full(variables, f'workers.{name}.env')}"
    for name, backend in config.backends.items():
        yield f"  run {in_full(str(backend), f'backends.{name}')}  (backend {name})"


def in_full(text: str, key: str) -> str:
    """Return a text that does nothing on a terminal; raise TooLong if nobody would read it."""
    if len(text) > SHOWN_MAX:
        what = f"{key} is {len(text):,} characters long, more than can be read here"
        raise TooLong(f"{what} (at most {SHOWN_MAX:,}); put the command into a script of its own")
    return escape(text, SHOWN_MAX)


def untrust(path: str) -> int:
    """Withdraw the trust in a project file; return the exit code."""
    was_trusted = forget(path, os.environ)
    print(f"{escape(path, len(path))} is {'no longer' if was_trusted else 'not'} trusted.")
    return 0
