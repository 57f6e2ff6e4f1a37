"""Questions of a method, asked at the terminal: a prompt, a numbered list, [y/N].

Prompts go to the terminal, not into redirected output: through readline where stdout is the
terminal, else to stderr. Ctrl-D declines a question, Ctrl-C cancels the call.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from duet_rpc.log import escape
from duet_rpc.methods.asking import Declined
from duet_rpc.terminal.output import is_terminal, print_stderr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duet_rpc.methods.asking import Question

TEXT_MAX = 2000
"""Characters of a prompt or of a choice."""


def can_ask() -> bool:
    """Return whether there is a person at a terminal."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


class AtTerminal:
    """A caller that is a person at this terminal."""

    def answer(self, question: Question) -> object:
        """Ask the person."""
        if question.kind not in ANSWERS or not can_ask():
            from duet_rpc.methods.asking import Unsupported

            raise Unsupported(f"{question.method} can't be answered at this terminal")
        try:
            return ANSWERS[question.kind](question.params)
        except EOFError:
            print_stderr("")
            raise Declined from None

    def say(self, text: str) -> None:
        """Print a text."""
        print_stderr(show(text))


def show(text: object) -> str:
    """Return a text without what a terminal would execute."""
    return "\n".join(escape(line, TEXT_MAX) for line in str(text).splitlines())


def ask_text(params: dict[str, object]) -> str:
    """Ask for a text."""
    prompt, default = show(params.get("prompt")), params.get("default")
    if params.get("secret") is True:
        from getpass import getpass  # 3 ms, which most calls do without

        return getpass(f"{prompt} ")
    if not isinstance(default, str):
        return read_line(f"{prompt} ")
    return read_line(f"{prompt} [{show(default)}] ") or default


def ask_whether(params: dict[str, object]) -> bool:
    """Ask for yes or no."""
    while True:
        line = read_line(f"{show(params.get('prompt'))} [y/N] ").strip().lower()
        if line in ("y", "yes"):
            return True
        if line in ("", "n", "no"):
            return False
        print_stderr("Please answer y or n.")


def ask_choice(params: dict[str, object]) -> object:
    """Ask for one choice, or several."""
    choices, multiple = params.get("choices"), params.get("multiple") is True
    texts = []
    print_stderr(show(params.get("prompt")))
    for number, choice in enumerate(choices if isinstance(choices, list) else [], 1):
        text, note = str(choice.get("text")), choice.get("note")
        texts.append(text)
        print_stderr(f"{number:>3} {show(text)}" + ("" if note is None else f"  ({show(note)})"))
    default = params.get("default")
    shown = ", ".join(map(str, default)) if isinstance(default, list) else default
    what = "Numbers or texts, separated by commas" if multiple else "Number or text"
    prompt = f"{what}: " if shown is None else f"{what} [{show(shown)}]: "
    while True:
        line = read_line(prompt, texts).strip()
        if not line and default is not None:
            return default
        if multiple:
            words = [line] if line in texts else [each.strip() for each in line.split(",")]
            found = [find(each, texts) for each in words if each]
            if None not in found:
                return found
        else:
            chosen = find(line, texts)
            if chosen is not None:
                return chosen
        print_stderr("Please give a number of the list, or the text beside it.")


def find(word: str, texts: list[str]) -> str | None:
    """Return the choice that a word names: its text, its number, or how it alone begins."""
    if word in texts:
        return word
    if word.isascii() and word.isdigit() and 1 <= int(word) <= len(texts):
        return texts[int(word) - 1]
    found = [text for text in texts if word and text.startswith(word)]
    return found[0] if len(found) == 1 else None


ANSWERS = {"ask": ask_text, "confirm": ask_whether, "choose": ask_choice}


# Reading a line.


def read_line(prompt: str, completions: list[str] | None = None) -> str:
    """Read a line; raise EOFError at the end of input."""
    if is_terminal(sys.stdout) and os.environ.get("TERM") != "dumb":
        with completing(completions or []):
            return input(prompt)
    print_stderr(prompt, end="")
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\r\n")


@contextmanager
def completing(texts: list[str]) -> Iterator[None]:
    """Let Tab complete some texts, and keep answers out of the history."""
    try:
        import readline
    except ImportError:
        yield
        return
    before, delimiters = readline.get_completer(), readline.get_completer_delims()

    def complete(word: str, number: int) -> str | None:
        found = [text for text in texts if text.startswith(word)]
        return found[number] if number < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(",\n")
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
    readline.set_auto_history(False)
    try:
        yield
    finally:
        readline.set_completer(before)
        readline.set_completer_delims(delimiters)
