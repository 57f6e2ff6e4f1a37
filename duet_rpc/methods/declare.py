"""`@method`, `@command`, `@resource` and `@prompt`: this function is to be called from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Literal

    F = TypeVar("F", bound=Callable[..., object])
    CommandResult = Literal["message", "insert", "replace", "buffer", "edit", "stream", "none"]


OPTIONS = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}
"""What a method may say of its effects, and what MCP calls it."""


class Declaration:
    """A function with `@method` or one of the others above it, not yet part of a registry.

    Nothing in it is checked yet: a mistake costs this method, not the file that it is in.
    """

    __slots__ = ("command", "function", "name", "offer", "options", "title")

    def __init__(
        self,
        function: Any,
        name: Any,
        title: object,
        options: dict[str, object],
        command: dict[str, object] | None,
        offer: dict[str, object] | None,
    ) -> None:
        self.function = function
        # A string, also where it is of a class with methods of its own.
        self.name = str.__str__(name) if isinstance(name, str) else name
        self.title = title
        self.options = options
        self.command = command  # what `@command` says of how Emacs calls it
        self.offer = offer  # what `@resource` or `@prompt` says of how an AI client finds it

    @property
    def word(self) -> str:
        """Which of the decorators it is."""
        if self.offer is not None:
            return "resource" if "uri" in self.offer else "prompt"
        return "method" if self.command is None else "command"


declared: list[Declaration] = []
"""What `@method` and the others have seen since the last file was loaded."""


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
    options = {
        "read_only": read_only,
        "destructive": destructive,
        "idempotent": idempotent,
        "open_world": open_world,
    }
    return _declare(function, title, options, None)


@overload
def command(function: F, /) -> F: ...


@overload
def command(
    method_name: str = ...,
    /,
    *,
    name: str | None = None,
    key: str | None = None,
    result: CommandResult | None = None,
    save_excursion: bool = False,
    modes: Sequence[str] | None = None,
    review: bool = False,
    remote: bool = False,
    title: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
) -> Callable[[F], F]: ...


def command(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    key: str | None = None,
    result: CommandResult | None = None,
    save_excursion: bool = False,
    modes: Sequence[str] | None = None,
    review: bool = False,
    remote: bool = False,
    title: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
) -> Any:
    """Make a function a command of Emacs, `M-x its-name`, and a method: `@command(key="C-c w")`.

    What Emacs passes to it is in the types of the parameters, such as `text: Region`. `name` is
    the command's, `key` its key, `result` what becomes of the result; `modes` are the major
    modes in which it is offered.
    """
    options = {
        "read_only": read_only,
        "destructive": destructive,
        "idempotent": idempotent,
        "open_world": open_world,
    }
    in_emacs: dict[str, object] = {
        "name": name,
        "key": key,
        "result": result,
        "save_excursion": save_excursion,
        "modes": modes,
        "review": review,
        "remote": remote,
    }
    return _declare(function, title, options, in_emacs)


def resource(
    uri: str, name: str | None = None, *, title: str | None = None, mime_type: str | None = None
) -> Callable[[F], F]:
    """Let AI clients read what a function returns, by a URI: `@resource("notes://{name}")`.

    Each variable of the URI is a parameter of the function. `{name}` is one segment, `{+path}`
    may have slashes. Text is sent as text, bytes as bytes, all else as JSON. For Emacs and a
    terminal it is a method; `name` is its name.
    """
    offer: dict[str, object] = {"uri": uri, "mime": mime_type}
    if callable(uri):  # `@resource` without a URI, which is said when the file is loaded
        return _declare(uri, None, {}, None, {"uri": None, "mime": None})  # type: ignore[no-any-return]
    return _declare(name, title, {}, None, offer)  # type: ignore[no-any-return]


@overload
def prompt(function: F, /) -> F: ...


@overload
def prompt(name: str = ..., /, *, title: str | None = None) -> Callable[[F], F]: ...


def prompt(function: Any = None, /, *, title: str | None = None) -> Any:
    """Make a function a prompt of AI clients, `@prompt`; its text is what the model is told.

    It returns a text, or a list of `Message`s. For Emacs and a terminal it is a method.
    """
    return _declare(function, title, {}, None, {})


def _declare(
    function: Any,
    title: object,
    given: dict[str, bool | None],
    command: dict[str, object] | None,
    offer: dict[str, object] | None = None,
) -> Any:
    """Note the function, or return the decorator that does."""
    options: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    is_function = callable(function) or isinstance(function, (staticmethod, classmethod))

    def declare(real: Any) -> Any:
        name = function
        if function is None or is_function:
            # Before Python 3.10 a static method has no name of its own.
            name = getattr(getattr(real, "__func__", real), "__name__", None)
        declared.append(Declaration(real, name, title, options, command, offer))
        return real

    return declare(function) if is_function else declare
