"""Reading lines for the console, from a person or from a pipe.

A person gets prompt_toolkit where it is installed, else readline, else plain `input`. All
three share one history, in a text file that only the user can read, and one function for
completion.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from duet_rpc.terminal.output import is_terminal, print_error, print_stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Complete = Callable[[str], list[str]]
    Reader = Callable[[], str]

PROMPT = "duet> "
HISTORY_MAX = 1000
HISTORY_BYTES_MAX = 1000 * 1000


def make_reader(complete: Complete) -> Reader:
    """Return a function that reads one line and raises EOFError at the end of input."""
    if not is_terminal(sys.stdin) or not is_terminal(sys.stdout) or sys.stderr is None:
        return read_pipe  # `input` needs all three
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
    """Read a line without an editor; a prompt for a person goes to stderr, not into the output."""
    if sys.stdin is None:
        raise EOFError
    if is_terminal(sys.stdin):
        print_stderr(PROMPT, end="")
    line = sys.stdin.buffer.readline()
    if not line:
        raise EOFError
    return line.decode("utf-8", "surrogateescape")


def use_readline(complete: Complete, history: History) -> Reader:
    """Return a reader that edits lines with readline; raise ImportError without it."""
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
    """Return a reader that edits lines with prompt_toolkit; raise ImportError without it."""
    toolkit: Any = import_module("prompt_toolkit")
    completion: Any = import_module("prompt_toolkit.completion")
    memory: Any = import_module("prompt_toolkit.history")

    class Completer(completion.Completer):  # type: ignore[misc]
        def get_completions(self, document: Any, _event: object) -> Iterator[object]:
            text = document.text_before_cursor
            for match in complete(text):
                yield completion.Completion(match, -len(last_word(text)))

    session = toolkit.PromptSession(
        history=memory.InMemoryHistory(history.lines),
        completer=Completer(),
        complete_while_typing=False,
    )
    return lambda: history.add(session.prompt(PROMPT))


def last_word(text: str) -> str:
    """Return the unfinished word at the end of a line, which completion replaces."""
    return "" if text[-1:].isspace() else (text.split() or [""])[-1]


# History.


def history_path() -> str | None:
    """Return the path of the history file; None where there is no home directory for it."""
    base = os.environ.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):
        home = os.environ.get("HOME", "")
        if not os.path.isdir(home):  # a missing home directory is not created
            return None
        base = os.path.join(home, ".local", "state")
    return os.path.join(base, "duet-rpc", "history")


class History:
    """The lines of this and earlier sessions. An error of its file is reported once."""

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
        """Return whether to keep a line: not a repeated one, nor one that begins with a space."""
        return line.isprintable() and line[:1].strip() != "" and line not in self.lines[-1:]

    def add(self, line: str) -> str:
        """Keep a line, in the file at once because sessions may overlap; return the line."""
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
        print_error(f"history is not saved: {self._path}: {error.strerror}")
        self._path = None
