"""`@on_start` and `@on_stop`: what a file of methods does when it comes and when it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[[], Any])

starting: list[Callable[[], object]] = []
"""What `@on_start` has seen since the last file was loaded."""

stopping: list[Callable[[], object]] = []
"""What `@on_stop` has seen since the last file was loaded."""


def on_start(function: F) -> F:
    """Call a function without parameters after its file was loaded, or loaded again."""
    starting.append(function)
    return function


def on_stop(function: F) -> F:
    """Call a function without parameters before the daemon leaves or the file is loaded again."""
    stopping.append(function)
    return function
