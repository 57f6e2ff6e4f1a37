"""`duet-rpc env`: the environments that were made for methods, and removing those not needed."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from duet_rpc.environments.prune import UNUSED_DAYS, folders, is_in_use, prune, size_of
from duet_rpc.environments.requirements import EnvironmentFailure
from duet_rpc.environments.store import DAY, MARK, contents, python_of, root_folder, users_of
from duet_rpc.log import escape
from duet_rpc.program import program_name
from duet_rpc.terminal.list import short_path
from duet_rpc.terminal.output import paint, print_error, wants_color
from duet_rpc.terminal.pretty import write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duet_rpc.command_line import Arguments

TEXT_MAX = 500


class Entry:
    """An environment in the list."""

    def __init__(self, folder: str) -> None:
        held = contents(folder)
        self.is_complete = held is not None
        self.folder = folder
        self.held = held or {}
        self.size = size_of(folder)
        self.in_use = is_in_use(folder)
        self.used_by = [
            each for each in users_of(folder) if not os.path.isabs(each) or os.path.exists(each)
        ]
        try:
            self.last_used: float | None = os.stat(os.path.join(folder, MARK)).st_mtime
        except OSError:
            self.last_used = None

    @property
    def dependencies(self) -> list[str]:
        """The packages that were asked for."""
        found = self.held.get("dependencies")
        return [str(each) for each in found] if isinstance(found, list) else []

    def as_json(self) -> dict[str, object]:
        """Return it for a program."""
        return {
            "folder": self.folder,
            "complete": self.is_complete,
            "dependencies": self.dependencies,
            "requiresPython": self.held.get("requires-python"),
            "python": python_of(self.folder) if self.is_complete else None,
            "version": self.held.get("python"),
            "madeWith": self.held.get("made with"),
            "bytes": self.size,
            "lastUsed": self.last_used and int(self.last_used),
            "inUse": self.in_use,
            "usedBy": self.used_by,
        }


def env(arguments: Arguments) -> int:
    """List the environments, or remove those not needed; return the exit code."""
    options = arguments.options
    try:
        root = root_folder()
    except EnvironmentFailure as error:
        print_error(str(error))
        return 1
    if options.prune:
        return remove_unused(root, options.json)
    entries = [Entry(folder) for folder in folders(root)]
    if options.json:
        listed = [each.as_json() for each in entries]
        write_json({"environments": listed}, wants_color(sys.stdout, True))
        return 0
    color = wants_color(sys.stdout, options.no_color)
    for entry in entries:
        print("\n".join([*show(entry, color), ""]))
    if entries:
        total = show_size(sum(each.size for each in entries))
        hint = f"`{program_name()} env --prune` removes those unused for {UNUSED_DAYS} days"
        print(f"{count(len(entries))}, {total}; {hint}")
    else:
        print(f"no environments in {short_path(root)}")
    return 0


def remove_unused(root: str, as_json: bool) -> int:
    """Remove the environments that are not needed, and print which; return the exit code."""
    removed = prune(root)
    freed = sum(each.size for each in removed)
    if as_json:
        listed = [each._asdict() for each in removed]
        write_json({"removed": listed, "bytes": freed}, wants_color(sys.stdout, True))
        return 0
    for each in removed:
        print(f"removed {short_path(each.folder)}: {each.reason}, {show_size(each.size)}")
    print(f"{count(len(removed))} removed, {show_size(freed)} freed")
    return 0


def show(entry: Entry, color: bool) -> Iterator[str]:
    """Yield the lines about an environment."""
    names = ", ".join(entry.dependencies) or "no packages"
    facts = [show_size(entry.size)]
    if entry.is_complete:
        yield paint(escape(names, TEXT_MAX), "key", color)
        facts.insert(0, f"Python {entry.held.get('python')}")
        facts.append(f"last used {show_day(entry.last_used)}")
        facts += ["in use"] if entry.in_use else []
    elif entry.in_use:
        yield paint("being made", "warning", color)
    else:
        yield paint("incomplete; it is made again when it is needed", "warning", color)
    yield f"  {', '.join(facts)}"
    for user in entry.used_by:
        yield f"  for {escape(short_path(user), TEXT_MAX)}"
    yield f"  {paint(escape(short_path(entry.folder), TEXT_MAX), 'faint', color)}"


def show_day(seconds: float | None) -> str:
    """Return how long ago a time was, in days: no better is recorded."""
    days = int((time.time() - (seconds or 0.0)) / DAY)
    return "today" if days < 1 else f"{days} day{'s' if days > 1 else ''} ago"


def show_size(size: int) -> str:
    """Return a number of bytes for a person."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def count(number: int) -> str:
    """Return a number of environments for a person."""
    return f"{number} environment{'' if number == 1 else 's'}"
