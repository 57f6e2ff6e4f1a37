"""The arguments that a person typed, parsed into the params of a request.

`call` gets them from the shell, already split. The console splits its lines here, as a shell
would, except that JSON needs no quotes around it.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
from io import StringIO
from typing import TYPE_CHECKING

from duet_rpc.log import escape
from duet_rpc.program import program_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from duet_rpc.terminal.client import Params

SPACE = " \t\r\n"
"""What a shell splits at; other space characters are text."""
FORMS = "name=value, one JSON object or array"


class ArgumentError(Exception):
    """The arguments are not valid params; the text says which one and why."""


def parse_params(
    words: Sequence[str], read_stdin: Callable[[], bytes] | None = None
) -> Params | None:
    """Parse name=value pairs, one JSON text, or `-` for stdin; return None for no words."""
    for word in words:
        check_text(word)
    if not words:
        return None
    if any(word == "-" or word.startswith(("{", "[")) for word in words):
        if len(words) > 1:
            json_word = next(word for word in words if word == "-" or word[0] in "{[")
            other = words[0] if words[0] is not json_word else words[1]
            what = f"{shorten(json_word)} must be the only argument"
            raise ArgumentError(f"{what}; remove {shorten(other)}")
        return parse_json_params(words[0]) if words[0] != "-" else parse_stdin(read_stdin)
    params: dict[str, object] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            forms = FORMS if read_stdin is None else f"{FORMS}, or - for JSON on stdin"
            raise ArgumentError(f"{shorten(word)}: expected {forms}")
        if name in params:
            raise ArgumentError(f"{shorten(name)} is given twice")
        params[name] = parse_value(value)
    return params


def parse_stdin(read_stdin: Callable[[], bytes] | None) -> Params:
    """Parse all of stdin as one JSON text."""
    if read_stdin is None:
        raise ArgumentError(f"- (JSON on stdin) works only with `{program_name()} call`")
    try:
        text = read_stdin().decode()
    except UnicodeDecodeError:
        raise ArgumentError("stdin is not UTF-8") from None
    if not text.strip():
        raise ArgumentError("stdin is empty: expected a JSON object or array")
    return parse_json_params(text)


def parse_json_params(text: str) -> Params:
    """Parse a JSON object or array."""
    try:
        params = parse_json(text)
    except ValueError as error:
        raise ArgumentError(f"invalid JSON: {error}") from None
    except RecursionError:
        raise ArgumentError("invalid JSON: nested too deeply") from None
    if not isinstance(params, (dict, list)):
        raise ArgumentError("expected a JSON object or array")
    return params


def parse_value(text: str) -> object:
    """Parse a value as JSON; return the text itself where it is not JSON."""
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        return text
    except ArgumentError:
        if text.startswith(("{", "[")):
            raise
        return text  # a hash such as 12e4567, not a number


def parse_json(text: str) -> object:
    """Parse strict JSON; raise ArgumentError for a number that a float cannot hold."""

    def refuse(name: str) -> object:
        raise ValueError(f"{name} is not JSON")

    def number(digits: str) -> float:
        value = float(digits)
        if math.isinf(value):
            raise ArgumentError(f"{shorten(digits)} is too large for a number")
        return value

    return json.loads(text, parse_constant=refuse, parse_float=number)


def check_text(word: str) -> None:
    """Raise ArgumentError for bytes that are not UTF-8, which JSON cannot represent."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise ArgumentError(f"{shorten(word)} is not UTF-8") from None


def shorten(word: str) -> str:
    """Return a word for a message: one line, of limited length."""
    return escape(word, 60)


def read_stdin() -> bytes:
    """Read all of stdin; return nothing where it was closed before the start."""
    return b"" if sys.stdin is None else sys.stdin.buffer.read()


# Lines of the console.


def split_line(line: str) -> list[str]:
    """Split a line into words, as a shell would, but keep unquoted JSON together."""
    words: list[str] = []
    at = 0
    while at < len(line):
        if line[at] in SPACE:
            at += 1
            continue
        end = end_of_json(line, at) if words else -1
        if end < 0:
            word, end = split_word(line, at)
        else:
            word = line[at:end]
        words.append(word)
        at = end
    return words


def end_of_json(line: str, at: int) -> int:
    """Return where a JSON object or array ends that begins here, bare or after `name=`; or -1."""
    match = re.compile(r"(?:[^\s=\"'\\{\[]+=)?(?=[{\[])").match(line, at)
    if match is None:
        return -1
    try:
        _, end = json.JSONDecoder().raw_decode(line, match.end())
    except (ValueError, RecursionError):
        # Invalid JSON stays together: the parser of params has the better error message.
        return len(line.rstrip()) if match.end() == at else -1
    return end if end == len(line) or line[end] in SPACE else -1


def split_word(line: str, at: int) -> tuple[str, int]:
    """Return the shell word that begins here, without its quotes, and where it ends."""
    rest = StringIO(line[at:])
    lexer = shlex.shlex(rest, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        word = lexer.get_token()
    except ValueError as error:
        raise ArgumentError(f"{str(error).lower()}: {shorten(line[at:])}") from None
    return word or "", at + rest.tell()
