"""The methods by name: the built-in ones, and the user's, which come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.methods.sources import RELOAD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from duet_rpc.methods.method import Method


class Registry:
    """The methods of one server."""

    def __init__(self) -> None:
        self._builtin: dict[str, Method] = {}
        self._hidden: dict[str, Method] = {}
        self._user: dict[str, Method] = {}
        self._has_user_files = False
        self.version = 0  # another one whenever the user's methods are others

    def add(self, method: Method, hidden: bool = False) -> None:
        """Add a method under its name; a hidden one is answered but stands in no list."""
        (self._hidden if hidden else self._builtin)[method.name] = method

    def set_user_methods(self, methods: Iterable[Method] | None) -> None:
        """Replace the user's methods; None where there is not even a file of theirs."""
        self._has_user_files = methods is not None
        user = {method.name: method for method in methods or ()}
        if user != self._user:
            self._user = user
            self.version += 1

    def user_names(self) -> list[str]:
        """List the names of the user's methods."""
        return [*self._user]

    def is_builtin(self, name: str) -> bool:
        """Return True for a name that the user's methods can't have."""
        return name in self._builtin or name in self._hidden

    def get(self, name: str) -> Method | None:
        """Find a method by its name."""
        return self._builtin.get(name) or self._user.get(name) or self._hidden.get(name)

    def __iter__(self) -> Iterator[Method]:
        yield from self._builtin.values()
        if self._has_user_files and RELOAD in self._hidden:
            yield self._hidden[RELOAD]
        yield from self._user.values()
