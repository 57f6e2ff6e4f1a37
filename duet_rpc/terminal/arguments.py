"""Words that a person wrote, turned into the params of a request.

`call` has them from the shell, already split; the console splits its lines here, as a
shell would, except that JSON may stand without quotes round it.
"""

from __future__ import annotations

import json
import math
import re
import sys
from io import StringIO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from duet_rpc.terminal.client import Params

SPACE = " \t\r\n"  # what a shell splits at; other spaces are text
FORMS = "name=value, one JSON object or array"


class ArgumentError(Exception):
    """The words make no params; the text says which and why."""


def read_arguments(
    words: Sequence[str], read_stdin: Callable[[], bytes] | None = None
) -> Params | None:
    """Turn ARGS into params: pairs, one JSON text, `-` for stdin, or nothing."""
    for word in words:
        check_text(word)
    if not words:
        return None
    if any(word == "-" or word.startswith(("{", "[")) for word in words):
        if len(words) > 1:
            alone = next(word for word in words if word == "-" or word[0] in "{[")
            other = words[0] if words[0] is not alone else words[1]
            raise ArgumentError(f"{shorten(alone)} must stand alone: {shorten(other)} is too much")
        return read_params(words[0]) if words[0] != "-" else read_params_of_stdin(read_stdin)
    params: dict[str, object] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            forms = FORMS if read_stdin is None else f"{FORMS}, or - for JSON on stdin"
            raise ArgumentError(f"{shorten(word)}: expected {forms}")
        if name in params:
            raise ArgumentError(f"{name} is given twice")
        params[name] = read_value(value)
    return params


def read_params_of_stdin(read_stdin: Callable[[], bytes] | None) -> Params:
    """Read all of stdin as one JSON text."""
    if read_stdin is None:
        raise ArgumentError("- works with `duet-rpc call` only")
    try:
        text = read_stdin().decode()
    except UnicodeDecodeError:
        raise ArgumentError("stdin is not UTF-8") from None
    if not text.strip():
        raise ArgumentError("stdin is empty: expected a JSON object or array")
    return read_params(text)


def read_params(text: str) -> Params:
    """Read a JSON object or array."""
    try:
        params = read_json(text)
    except ValueError as error:
        raise ArgumentError(f"not JSON: {error}") from None
    except RecursionError:
        raise ArgumentError("not JSON: nested too deeply") from None
    if not isinstance(params, (dict, list)):
        raise ArgumentError("expected a JSON object or array")
    return params


def read_value(text: str) -> object:
    """Read a value as JSON where it is that, as text where not."""
    try:
        return read_json(text)
    except (ValueError, RecursionError):
        return text
    except ArgumentError:
        if text.startswith(("{", "[")):
            raise
        return text  # the hash 12e4567 is as good a text as any other


def read_json(text: str) -> object:
    """Read strict JSON."""

    def refuse(name: str) -> object:
        raise ValueError(f"{name} is not JSON")

    def number(digits: str) -> float:
        value = float(digits)
        if math.isinf(value):
            raise ArgumentError(f"{shorten(digits)} is beyond what a number can hold")
        return value

    return json.loads(text, parse_constant=refuse, parse_float=number)


def check_text(word: str) -> None:
    """Refuse bytes that are no text: JSON has no place for them."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise ArgumentError(f"{shorten(word)}: not UTF-8") from None


def shorten(word: str) -> str:
    """Show a word in a message, in one line and not too long."""
    from duet_rpc.log import escape

    return escape(word, 60)


# Lines of the console.


def split_line(line: str) -> list[str]:
    """Split a line into words, as a shell would; JSON needs no quotes."""
    words: list[str] = []
    at = 0
    while at < len(line):
        if line[at] in SPACE:
            at += 1
            continue
        end = end_of_json(line, at) if words else -1
        if end < 0:
            word, end = read_word(line, at)
        else:
            word = line[at:end]
        words.append(word)
        at = end
    return words


def end_of_json(line: str, at: int) -> int:
    """Find the end of a JSON object or array here, bare or after `name=`; or -1."""
    match = re.compile(r"(?:[^\s=\"'\\{\[]+=)?(?=[{\[])").match(line, at)
    if match is None:
        return -1
    try:
        _, end = json.JSONDecoder().raw_decode(line, match.end())
    except (ValueError, RecursionError):
        # What is wrong with it is said best by whoever reads it, so it stays one piece.
        return len(line.rstrip()) if match.end() == at else -1
    return end if end == len(line) or line[end] in SPACE else -1


def read_word(line: str, at: int) -> tuple[str, int]:
    """Read one word of a shell and say where it ends."""
    import shlex

    rest = StringIO(line[at:])
    lexer = shlex.shlex(rest, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        word = lexer.get_token()
    except ValueError as error:
        raise ArgumentError(f"{str(error).lower()}: {shorten(line[at:])}") from None
    return word or "", at + rest.tell()


def stdin_bytes() -> bytes:
    """Read all of stdin; nothing where it is closed."""
    return b"" if sys.stdin is None else sys.stdin.buffer.read()
