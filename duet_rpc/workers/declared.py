"""What the text of a file shows of its methods.

So that a call starts the one worker that has the method, and not all of them. The text does not
show everything: a file may register methods in a loop, or import a module that does.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from duet_rpc.methods.changes import changed_at, helpers_of, read

WORDS = {"method", "command", "resource", "prompt"}
"""The functions of ours that declare a method."""


class Declared(NamedTuple):
    """The methods that a file declares by decorators."""

    names: frozenset[str]
    is_complete: bool  # nothing in it looks as if there were others


def declared_in(path: str) -> Declared:
    """Return what a file shows; one that can't be read or parsed may have anything."""
    source = read(path)
    try:
        nodes = [*ast.walk(ast.parse(source or b"?"))]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Declared(frozenset(), False)
    names: set[str] = set()
    seen: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for decorator in node.decorator_list:
                word = decorator.func if isinstance(decorator, ast.Call) else decorator
                if _name(word) in WORDS:
                    names.add(_name_given(decorator) or node.name)
                    seen.add(word)
    has_others = any(_name(node) in WORDS and node not in seen for node in nodes)
    has_helpers = any(changed_at(each) is not None for each in helpers_of(path, source or b""))
    return Declared(frozenset(names), not (has_others or has_helpers))


def _name(node: ast.AST) -> str | None:
    """Return the last word of a name; that of an import only where it gets another one."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.alias):
        return node.name if node.asname else None
    return node.id if isinstance(node, ast.Name) else None


def _name_given(decorator: ast.expr) -> str | None:
    """Return the name that a decorator gives to its function, if it gives one."""
    if not isinstance(decorator, ast.Call):
        return None
    given = [*decorator.args]
    if _name(decorator.func) == "resource":  # its URI comes first
        given = [*given[1:], *(each.value for each in decorator.keywords if each.arg == "name")]
    first = given[0].value if given and isinstance(given[0], ast.Constant) else None
    return first if isinstance(first, str) else None
