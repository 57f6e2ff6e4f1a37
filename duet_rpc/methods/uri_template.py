"""URIs of resources, with variables: `notes://{name}`, `docs://{+path}`.

Of RFC 6570 two forms are read: `{name}`, one segment of a path, and `{+path}`, which may have
slashes in it. A value is decoded once (`%20` is a space, `%2520` is `%20`). One that could lead out
of a folder is refused, whatever the method would do with it: `.` and `..` as a segment, an absolute
path, a NUL, and in `{name}` a slash of either kind, however it is spelled: no such resource.

A URI comes from a model, so matching takes linear time: every literal part is looked for once,
from left to right, and the last one at the end. That finds each match there is, because
`{+path}` can only be the last variable.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

URI_MAX = 8192
"""Characters in a URI that is looked at."""

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:", re.ASCII)
LITERAL = re.compile(r"[A-Za-z0-9._~:/?#@!$&'()*+,;=%\[\]-]*", re.ASCII)
VARIABLE = re.compile(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)


class UriTemplate:
    """A URI, with variables or without."""

    __slots__ = ("_literals", "_takes_slashes", "key", "names", "text")

    def __init__(self, text: str) -> None:
        """Read a template; raise ValueError with what is wrong with it."""
        parts = VARIABLE.split(text)
        self.text = text
        self.names = parts[2::3]
        self._literals = parts[::3]
        self._takes_slashes = parts[1::3][-1:] == ["+"]
        self.key = "{}".join(self._literals)  # the same for two templates that match the same
        self._check(parts[1::3])

    def _check(self, operators: list[str]) -> None:
        if not SCHEME.match(self._literals[0]):
            raise ValueError('a URI begins with a scheme, as in "notes://{name}"')
        for literal in self._literals:
            rest = LITERAL.sub("", literal)
            if "{" in rest or "}" in rest:
                raise ValueError("variables are written {name}, or {+path} for one with slashes")
            if rest:
                raise ValueError(f"{rest[0]!r} can't stand in a URI; percent-encode it")
        if "+" in operators[:-1]:
            raise ValueError("{+path} can only be the last variable")
        if "" in self._literals[1:-1]:
            raise ValueError("there must be something between two variables")
        if len({*self.names}) < len(self.names):
            raise ValueError("a variable stands in it twice")

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values of the variables, decoded; None for a URI that it does not match."""
        first, *others = self._literals
        if not others:
            return {} if uri == first else None
        last = others.pop()
        if len(uri) > URI_MAX or not (uri.startswith(first) and uri.endswith(last)):
            return None
        at, end = len(first), len(uri) - len(last)
        found = []
        for literal in others:
            following = uri.find(literal, at + 1, end)
            if following < 0:
                return None
            found.append(uri[at:following])
            at = following + len(literal)
        found.append(uri[at:end] if at < end else "")
        values = [_decode(each, False) for each in found[:-1]]
        values.append(_decode(found[-1], self._takes_slashes))
        return (
            {name: each for name, each in zip(self.names, values) if each} if all(values) else None
        )


def _decode(text: str, takes_slashes: bool) -> str | None:
    """Return a value as it was before it became part of a URI; None for one that is refused."""
    if any(each in text for each in ("?#" if takes_slashes else "/?#")):
        return None
    try:
        value = unquote(text, errors="strict")
    except UnicodeDecodeError:
        return None
    segments = value.replace("\\", "/").split("/")
    if "\0" in value or "." in segments or ".." in segments or not segments[0]:
        return None
    if len(segments) > 1 and (not takes_slashes or re.match(r"[A-Za-z]:", value)):
        return None
    return value
