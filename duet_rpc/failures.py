"""What is said of an exception: its type and its place, and to its author all of it.

The text is whatever the raising code made of it, and that may be a token, a password or a
folder, so the log does without unless the author asks for it (`--debug`). Exceptions come from
the user's code, and nothing of theirs is called here but by `explain`: their attributes are
read the way C code reads them, past any property that raises or lies.
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


TEXT_MAX = 2_000
TRACEBACK_MAX = 50_000

RELATED_MAX = 200
"""Causes and members of groups that are shown with an exception."""

UNREADABLE = "<exception str() failed>"
"""The words of Python itself for an exception that fails to say what it is."""

FAILURES = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)
"""What the user's code may raise, a cancel aside."""


class SafeText(Exception):
    """An exception whose text is in duet-rpc's own words, so that the log may show it."""

    source: tuple[str, int] | None = None
    """The user's file and line that it is about, because no frame of its traceback is theirs."""


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


def explain(error: BaseException) -> dict[str, str]:
    """Return all that an author wants to know: type, text, place and traceback.

    This calls the user's code, which may take its time, and be cancelled.
    """
    ours = issubclass(type(error), SafeText)
    found = getattr(error, "source", None) if ours else place_of(error)
    return {
        "type": name_of(error),
        "text": text_of(error),
        "place": f"{found[0]}:{found[1]}" if found else "",
        "traceback": traceback_of(error),
    }


def text_of(error: BaseException) -> str:
    """Return what an exception says, which calls the user's code."""
    try:
        return str.__str__(str(error))[:TEXT_MAX]
    except FAILURES:
        return UNREADABLE


def traceback_of(error: BaseException) -> str:
    """Return the traceback as Python prints it, without the frames of duet-rpc itself."""
    try:
        return _format(error)
    except FAILURES:  # out of the stack, or out of memory
        return f"{name_of(error)}: {text_of(error)}"


def _format(error: BaseException) -> str:
    import traceback  # 5 ms, which nobody pays who makes no mistakes

    trace = _get_traceback(error)
    if _has_many_relatives(error):
        frames = [each for each in traceback.extract_tb(trace) if not is_ours(each.filename)]
        lines = [*traceback.format_list(frames), f"{name_of(error)}: {text_of(error)}"]
        return "".join(["Traceback (most recent call last):\n", *lines])[:TRACEBACK_MAX]
    report = traceback.TracebackException(type(error), error, trace)
    waiting: list[traceback.TracebackException | None] = [report]
    while waiting:
        each = waiting.pop()
        if each is not None:
            frames = [frame for frame in each.stack if not is_ours(frame.filename)]
            each.stack = traceback.StackSummary.from_list(frames)
            waiting += [each.__cause__, each.__context__, *(getattr(each, "exceptions", ()) or ())]
    return "".join(report.format())[:TRACEBACK_MAX].rstrip("\n")


def is_ours(file: str) -> bool:
    """Return True for a file of duet-rpc itself."""
    return file.startswith(OURS)


def _has_many_relatives(error: BaseException) -> bool:
    """Return True where Python would go through more exceptions than anybody reads.

    A group may contain another one several times, and that one as well: thirty of them are
    more than a computer can print.
    """
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    count = 0
    while waiting and count <= RELATED_MAX:
        each = waiting.pop()
        if each is not None:
            count += 1
            if id(each) not in seen:  # Python, too, follows a cause once
                waiting += [each.__cause__, each.__context__]
            seen.add(id(each))
            members = getattr(each, "exceptions", ())
            waiting += [one for one in members if issubclass(type(one), BaseException)]
    return count > RELATED_MAX


def say_what(error: BaseException, with_text: bool = False) -> str:
    """Return the type of an exception, and its text where that is wanted.

    Of a SyntaxError the compiler's words are always there. Asking for the text of any other
    calls the user's code.
    """
    message = field_of(error, SyntaxError, "msg", str)
    if message is None and with_text:
        message = text_of(error)
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
    if is_ours(file):
        return OWN
    if any(part in file for part in INSTALLED):
        return PACKAGE
    return LIBRARY if file.startswith(("<", STANDARD_LIBRARY)) else USER
