"""The options of `@command`, checked when its file is loaded, as `rpc.discover` has them."""

from __future__ import annotations

import re
from typing import Any

from duet_rpc.methods.schema.shape import Unsupported

RESULTS = ("message", "insert", "replace", "buffer", "edit", "stream", "none")
UNCHANGED = ("message", "buffer", "stream", "none")
"""What leaves the buffer as it is, so that there is nothing to review."""

SYMBOL = re.compile(r"""(?![?:])(?![-+]?\d*\.?\d*(?:e[-+]?\d+)?$)[^\s()\[\]"';`,\\#]+""")
"""What Emacs reads as a symbol without any quoting; neither a keyword nor a number."""

MARKS = {"save_excursion": "saveExcursion", "review": "review", "remote": "remote"}
"""Options that are True or False, and what `x-command` calls them."""


def read_options(given: dict[str, object], function: Any) -> dict[str, object]:
    """Return the options of a command; raise `Unsupported` where one is wrong."""
    made: dict[str, object] = {"name": _name(given["name"], function)}
    key, result, modes = given["key"], given["result"], given["modes"]
    if key is not None:
        if not isinstance(key, str) or not key.strip() or not key.isprintable():
            raise Unsupported('key must be a key as `kbd` takes it, such as "C-c w"')
        made["key"] = key.strip()
    if result is not None:
        if result not in RESULTS:
            raise Unsupported(f"result must be one of {', '.join(RESULTS)}, not {result!r}")
        made["result"] = result
    if modes is not None:
        made["modes"] = _modes(modes)
    for option, word in MARKS.items():
        if not isinstance(given[option], bool):
            raise Unsupported(f"{option} must be True or False")
        if given[option]:
            made[word] = True
    if given["review"] and result in UNCHANGED:
        raise Unsupported(f'review is for results that change the buffer, not for "{result}"')
    return made


def _name(name: object, function: Any) -> str:
    if name is None:
        name = getattr(getattr(function, "__func__", function), "__name__", "")
        name = name.replace("_", "-") if isinstance(name, str) else ""
        if not _is_symbol(name):
            raise Unsupported('the function has no name for M-x; give one: name="sort-words"')
    elif not _is_symbol(name):
        raise Unsupported(
            f'{name!r} can\'t be the name of an Emacs command; write one such as "sort-words"'
        )
    return str(name)


def _modes(modes: object) -> list[str]:
    if not isinstance(modes, (list, tuple)) or not modes or not all(map(_is_symbol, modes)):
        raise Unsupported('modes must be a list of major modes, such as ["org-mode"]')
    return [str(each) for each in modes]


def _is_symbol(value: object) -> bool:
    if not isinstance(value, str) or not value.isprintable() or value in ("nil", "t"):
        return False
    return SYMBOL.fullmatch(value) is not None
