"""Lines from a person or from a pipe: how they are asked for, completed and remembered.

prompt_toolkit where it can be imported, readline where not, plain `input` without either
or where the terminal can do no more. All three share one history, in a file of plain
lines that the user alone can read, and one function that says what could come next.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from duet_rpc.terminal.pretty import is_terminal, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Complete = Callable[[str], list[str]]
    Reader = Callable[[], str]

PROMPT = "duet> "
HISTORY_MAX = 1000
HISTORY_BYTES_MAX = 1000 * 1000


def make_reader(complete: Complete) -> Reader:
    """Return a function that reads one line; EOFError where there are no more."""
    if not is_terminal(sys.stdin) or not is_terminal(sys.stdout) or sys.stderr is None:
        return read_pipe  # `input` takes no less than all three
    if os.environ.get("TERM") == "dumb":
        return lambda: input(PROMPT)
    history = History()
    try:
        return use_prompt_toolkit(complete, history)
    except ImportError:
        pass
    try:
        return use_readline(complete, history)
    except ImportError:
        return lambda: history.add(input(PROMPT))


def read_pipe() -> str:
    """Read a line that no person edits; the prompt, where one types it, is no output."""
    if sys.stdin is None:
        raise EOFError
    if is_terminal(sys.stdin):
        say(PROMPT, end="")
    line = sys.stdin.buffer.readline()
    if not line:
        raise EOFError
    return line.decode("utf-8", "surrogateescape")


def use_readline(complete: Complete, history: History) -> Reader:
    """Read with the standard library's line editor."""
    readline = import_module("readline")
    matches: list[str] = []

    def next_match(_text: str, number: int) -> str | None:
        if number == 0:
            matches[:] = complete(readline.get_line_buffer()[: readline.get_endidx()])
        return matches[number] if number < len(matches) else None

    readline.set_completer(next_match)
    readline.set_completer_delims(" \t\n")
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
    readline.set_auto_history(False)
    for line in history.lines:
        readline.add_history(line)

    def read() -> str:
        line = input(PROMPT)
        if history.wants(line):
            readline.add_history(line)
        return history.add(line)

    return read


def use_prompt_toolkit(complete: Complete, history: History) -> Reader:
    """Read with prompt_toolkit, where the user has it."""
    toolkit: Any = import_module("prompt_toolkit")
    completion: Any = import_module("prompt_toolkit.completion")
    memory: Any = import_module("prompt_toolkit.history")

    class Completer(completion.Completer):  # type: ignore[misc]
        def get_completions(self, document: Any, _event: object) -> Iterator[object]:
            text = document.text_before_cursor
            for match in complete(text):
                yield completion.Completion(match, -len(last_piece(text)))

    session = toolkit.PromptSession(
        history=memory.InMemoryHistory(history.lines),
        completer=Completer(),
        complete_while_typing=False,
    )
    return lambda: history.add(session.prompt(PROMPT))


def last_piece(text: str) -> str:
    """Return the piece of a line that completion replaces."""
    return "" if text[-1:].isspace() else (text.split() or [""])[-1]


# What was typed before.


def history_path() -> str | None:
    """Return where the history is kept; None without a home directory to keep it in."""
    base = os.environ.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):
        home = os.environ.get("HOME", "")
        if not os.path.isdir(home):  # a home directory that is not there is not made
            return None
        base = os.path.join(home, ".local", "state")
    return os.path.join(base, "duet-rpc", "history")


class History:
    """The lines of this and earlier sessions. Trouble with its file is said once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._path = history_path()
        if self._path is not None:
            try:
                self._load(self._path)
            except OSError as error:
                self._give_up(error)

    def _load(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        with open(descriptor, "r+b") as file:
            os.fchmod(descriptor, 0o600)
            size = os.fstat(descriptor).st_size
            file.seek(max(0, size - HISTORY_BYTES_MAX))
            lines = file.read().decode("utf-8", "replace").splitlines()
            self.lines = [line for line in lines if line.isprintable()][-HISTORY_MAX:]
            if len(lines) > HISTORY_MAX or size > HISTORY_BYTES_MAX:
                file.seek(0)
                file.truncate()
                file.write("".join(f"{line}\n" for line in self.lines).encode())

    def wants(self, line: str) -> bool:
        """Return True where a line is worth keeping: not one that begins with a space."""
        return line.isprintable() and line[:1].strip() != "" and line not in self.lines[-1:]

    def add(self, line: str) -> str:
        """Keep a line, in the file at once: sessions may overlap. Returns the line."""
        if self.wants(line):
            self.lines.append(line)
            if self._path is not None:
                try:
                    descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                    with open(descriptor, "ab") as file:
                        file.write(f"{line}\n".encode())
                except OSError as error:
                    self._give_up(error)
        return line

    def _give_up(self, error: OSError) -> None:
        say(f"duet-rpc: history is not kept: {self._path}: {error.strerror}")
        self._path = None
