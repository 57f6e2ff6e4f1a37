"""What the log says of an exception: its type and its place, never its text.

The text is whatever the raising code made of it, and that may be a token, a password or a
folder. Exceptions come from the user's code, so nothing of theirs is called: their attributes
are read the way C code reads them, past any property that raises or lies.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

T = TypeVar("T")

OURS = os.path.dirname(__file__) + os.sep
STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

# Whose file a frame is in, by how much its line says to whoever wrote a method.
LIBRARY, OWN, PACKAGE, USER = range(4)

_get_name: Any = type.__dict__["__name__"].__get__
_get_traceback: Any = BaseException.__dict__["__traceback__"].__get__


class SafeText(Exception):
    """An exception whose text is in duet-rpc's own words, so that the log may show it."""


def describe(error: BaseException) -> str:
    """Return type and place, as in `KeyError (words.py:12 in word_count)`."""
    try:
        what, found = name_of(error), place_of(error)
        if issubclass(type(error), SafeText):
            what = f"{what}: {error}"
    except Exception:  # noqa: BLE001 - too deep in a recursion, or out of memory
        return "an exception"
    if found is None:
        return what
    file, line, function = found
    return f"{what} ({os.path.basename(file)}:{line} in {function})"


def say_what(error: BaseException) -> str:
    """Return the type of an exception, and of a SyntaxError the compiler's words too."""
    message = field_of(error, SyntaxError, "msg", str)
    return f"{name_of(error)}: {message}" if message else name_of(error)


def missing_module(error: BaseException) -> str | None:
    """Return the name of the module that an import did not find."""
    name = field_of(error, ImportError, "name", str)
    if name is None or not issubclass(type(error), ModuleNotFoundError):
        return None
    return name if all(part.isidentifier() for part in name.split(".")) else None


def install(module: str) -> str:
    """Return the command that installs what a module is part of."""
    return f"{sys.executable} -m pip install {module.partition('.')[0]}"


def name_of(error: BaseException) -> str:
    """Return the name of an exception's type."""
    return str.__str__(_get_name(type(error)))


def field_of(error: BaseException, kind: type[BaseException], name: str, of: type[T]) -> T | None:
    """Return what Python itself keeps in exceptions of a kind, if it is of the type expected."""
    if issubclass(type(error), kind):
        value = kind.__dict__[name].__get__(error)
        if type(value) is of:
            return value
    return None


def place_of(error: BaseException, least: int = LIBRARY) -> tuple[str, int, str] | None:
    """Return file, line and function of the deepest frame in the user's own files.

    Where there is none, of the deepest in an installed package, else in duet-rpc; but not in
    what ranks below the least that is wanted.
    """
    best, found = least, None
    for frame in frames_of(error):
        rank = _rank(frame[0])
        if rank >= best:
            best, found = rank, frame
    return found


def frames_of(error: BaseException) -> Iterator[tuple[str, int, str]]:
    """Iterate over file, line and function of an exception's traceback, the deepest last."""
    trace: TracebackType | None = _get_traceback(error)
    while trace is not None:
        code = trace.tb_frame.f_code
        yield str.__str__(code.co_filename), trace.tb_lineno, str.__str__(code.co_name)
        trace = trace.tb_next


def _rank(file: str) -> int:
    if file.startswith(OURS):
        return OWN
    if any(part in file for part in INSTALLED):
        return PACKAGE
    return LIBRARY if file.startswith(("<", STANDARD_LIBRARY)) else USER
