"""`duet-rpc list`: the user's methods, by file."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import TYPE_CHECKING

from duet_rpc.config.files import load_config
from duet_rpc.environments.methods_python import use_python
from duet_rpc.jsonrpc.errors import RpcError
from duet_rpc.log import escape
from duet_rpc.program import program_name
from duet_rpc.terminal.client import Client, DaemonError
from duet_rpc.terminal.daemon import last_line, start_daemon
from duet_rpc.terminal.doctor_methods import LOADING_TIMEOUT, load_methods
from duet_rpc.terminal.explain import signature
from duet_rpc.terminal.output import paint, print_error, wants_color
from duet_rpc.terminal.pretty import write_json
from duet_rpc.terminal.request import exit_on_signals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duet_rpc.command_line import Arguments

TEXT_MAX = 500


class Entry:
    """A method in the list; `file` is empty for a built-in one."""

    def __init__(self, described: dict[str, object], discovered: dict[str, object]) -> None:
        source = discovered.get("x-source")
        source = source if isinstance(source, dict) else {}
        self.name = str(described["name"])
        self.signature = signature(described)
        self.summary = str(discovered.get("summary") or "")
        self.file = str(source.get("file") or "")
        self.line = source.get("line")
        command = discovered.get("x-command")
        self.command: dict[str, object] = command if isinstance(command, dict) else {}
        resource = discovered.get("x-resource")
        self.resource: dict[str, object] = resource if isinstance(resource, dict) else {}
        self.is_prompt = "x-prompt" in discovered

    def as_json(self) -> dict[str, object]:
        """Return it for a program."""
        return {
            "name": self.name,
            "signature": self.signature,
            "summary": self.summary,
            "file": self.file or None,
            "line": self.line,
            **({"command": self.command} if self.command else {}),
            **({"resource": self.resource} if self.resource else {}),
            **({"prompt": True} if self.is_prompt else {}),
        }


def list_methods(arguments: Arguments) -> int:
    """Print the methods; return the exit code."""
    options = arguments.options
    config = load_config()
    use_python(config)
    exit_on_signals()
    with tempfile.TemporaryFile() as log:  # what files print while they are loaded is no list
        try:
            with start_daemon(options, options.log_level or "error", stderr=log) as client:
                entries, own, problems = fetch(client)
        except (DaemonError, RpcError) as error:
            print_error(f"{error}: {last_line(log)}".rstrip(": "))
            return 1
    mine = [each for each in entries if each.name in own]
    builtin = [each for each in entries if each.name not in own] if options.all else []
    if options.json:
        methods = [each.as_json() for each in (*mine, *builtin)]
        write_json({"methods": methods, "problems": problems}, wants_color(sys.stdout, True))
        return 0
    for warning in config.warnings:
        print_error(warning)
    color = wants_color(sys.stdout, options.no_color)
    lines = [*show(mine, color), *show_builtin(builtin, color)]
    if not mine and not problems:
        hint = f"`{program_name()} new NAME` writes a first file"
        lines.insert(0, f"no methods of yours yet; {hint}")
    lines += [
        f"{paint('could not be loaded:', 'bad', color)} {escape(each, TEXT_MAX)}"
        for each in problems
    ]
    print("\n".join(lines))
    return 0


def fetch(client: Client) -> tuple[list[Entry], list[str], list[str]]:
    """Return all methods, the names of the user's, and what could not be loaded."""
    document = client.call("rpc.discover", seconds=LOADING_TIMEOUT)
    methods = document["methods"] if isinstance(document, dict) else []
    described = client.call("describeMethods", seconds=LOADING_TIMEOUT)
    by_name = {each["name"]: each for each in methods}
    entries = [
        Entry(each, by_name.get(each["name"], {}))
        for each in (described if isinstance(described, list) else [])
    ]
    return (entries, *load_methods(client))


def show(entries: list[Entry], color: bool) -> Iterator[str]:
    """Yield lines for the user's methods, grouped by file."""
    for file in dict.fromkeys(each.file for each in entries):
        yield paint(escape(short_path(file), TEXT_MAX), "faint", color)
        for entry in entries:
            if entry.file == file:
                yield from show_entry(entry, color)
        yield ""


def show_builtin(entries: list[Entry], color: bool) -> Iterator[str]:
    """Yield lines for the built-in methods."""
    if entries:
        yield paint("built in", "faint", color)
        for entry in entries:
            yield from show_entry(entry, color)


def show_entry(entry: Entry, color: bool) -> Iterator[str]:
    """Yield the signature of a method, and what it does."""
    rest = entry.signature[len(entry.name) :]
    yield f"  {paint(escape(entry.name, TEXT_MAX), 'key', color)}{escape(rest, TEXT_MAX)}"
    if entry.summary:
        yield f"      {escape(entry.summary, TEXT_MAX)}"
    if entry.command:
        keys = f"M-x {entry.command['name']}"
        if "key" in entry.command:
            keys += f", {entry.command['key']}"
        yield f"      {paint(escape(keys, TEXT_MAX), 'faint', color)}"
    if entry.resource:
        uri = f"resource {entry.resource['uri']}"
        yield f"      {paint(escape(uri, TEXT_MAX), 'faint', color)}"
    if entry.is_prompt:
        yield f"      {paint('prompt', 'faint', color)}"


def short_path(path: str) -> str:
    """Return a path as a person would type it."""
    home = os.path.join(os.path.expanduser("~"), "")
    return f"~/{path[len(home) :]}" if path.startswith(home) and home != "/" else path
