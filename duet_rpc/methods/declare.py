"""`@method`, which says of a function that it is to be called from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., object])


class Declaration:
    """A function with `@method` above it, not yet part of a registry."""

    __slots__ = ("function", "hints", "name", "title")

    def __init__(
        self, function: Callable[..., object], name: str, title: str | None, hints: dict[str, bool]
    ) -> None:
        self.function = function
        self.name = name
        self.title = title
        self.hints = hints


declared: list[Declaration] = []
"""What `@method` has seen since the last file was loaded."""


@overload
def method(function: F, /) -> F: ...


@overload
def method(
    name: str = ...,
    /,
    *,
    title: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
) -> Callable[[F], F]: ...


def method(
    function: Any = None,
    /,
    *,
    title: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
) -> Any:
    """Make a function callable from outside: `@method`, or `@method("its.name")`.

    The function stays what it was and can be called as before. The options tell an AI
    client what the method does to the world, and what to call it in front of a person.
    """
    given = {
        "readOnlyHint": read_only,
        "destructiveHint": destructive,
        "idempotentHint": idempotent,
        "openWorldHint": open_world,
    }
    hints = {name: value for name, value in given.items() if value is not None}

    def declare(real: Any) -> Any:
        name = real.__name__ if function is None or callable(function) else function
        declared.append(Declaration(real, name, title, hints))
        return real

    return declare(function) if callable(function) else declare
