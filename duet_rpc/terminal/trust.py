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
    from duet_rpc.command_line import Arguments

SHOWN_MAX = 4000
"""Characters of a path or a command that are shown."""


def run_trust(arguments: Arguments) -> int:
    """Trust or untrust the project file of the working directory; return the exit code."""
    path = find_project_file(working_directory())
    if path is None:
        print_error(f"no {PROJECT_FILE} in this folder or in one above it")
        return 1
    try:
        if arguments.command == "untrust":
            return untrust(path)
        return trust(path, arguments.options.yes)
    except RecordError as error:
        print_error(f"nothing was changed: {error}")
        return 1


def trust(path: str, yes: bool) -> int:
    """Show what a project file would run, ask, and record a yes; return the exit code."""
    text, tables = read(path)
    config = Config()
    fill(config, path, text, tables)  # a file with errors is refused before anybody is asked
    print(f"{escape(path, SHOWN_MAX)} would run, whenever duet-rpc starts in its folder:")
    for source in config.methods:
        print(f"  {escape(source, SHOWN_MAX)}")
    for backend in config.backends.values():
        print(f"  {escape(str(backend), SHOWN_MAX)}  (backend {backend.name})")
    if not config.methods and not config.backends:
        print("  nothing")
    if is_trusted(path, text, os.environ):
        print("It is already trusted.")
        return 0
    if not yes:
        if not is_terminal(sys.stdin) or sys.stdout is None:
            print_error("not trusted: stdin or stdout is no terminal to ask on; add --yes")
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


def untrust(path: str) -> int:
    """Withdraw the trust in a project file; return the exit code."""
    was_trusted = forget(path, os.environ)
    print(f"{escape(path, SHOWN_MAX)} is {'no longer' if was_trusted else 'not'} trusted.")
    return 0
