"""Which workers there are to be: found in the configuration and in the files as they are now.

Files come, change and go while the router runs. One with a block (PEP 723) is a worker of its
own, and all files and modules without one share the worker `main`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from duet_rpc.config.processes import WorkerSettings
from duet_rpc.methods.scripts import Scripts
from duet_rpc.methods.sources import InstalledPackages, absolute, files_in
from duet_rpc.workers.order import MAIN, Order

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Plan:
    """Finds the workers, and says what each is to be."""

    def __init__(
        self,
        command: Sequence[str],
        sources: Sequence[str],
        folder: str | None,
        configured: Mapping[str, WorkerSettings],
        python: str | None = None,
        origin: str = "",
        needs_main: bool = False,
    ) -> None:
        """Begin; `command` starts a worker, `python` is that of `main`, as `origin` says."""
        self._command = list(command)
        self._sources = [absolute(each) for each in sources]
        self._folder = folder
        self._configured = configured
        self._python = python
        self._origin = origin
        self._needs_main = needs_main  # without methods as well
        self._packages = InstalledPackages()
        self.scripts = Scripts()

    def add_source(self, path: str) -> None:
        """Add a file, for as long as this process runs."""
        if path not in self._sources:
            self._sources.append(path)

    def find(self) -> dict[str, tuple[WorkerSettings, str | None]]:
        """Return the workers by name, each with the block that it was found by."""
        found: dict[str, tuple[WorkerSettings, str | None]] = {}
        taken = self._taken()
        has_main = self._needs_main or bool(self._packages.folders())
        for source in dict.fromkeys([*self._sources, *files_in(self._folder)]):
            block = self.scripts.block_of(source) if os.path.isabs(source) else None
            if source in taken:
                continue
            if block is None:
                has_main = True
                continue
            name = os.path.basename(source)
            if name in found or name in self._configured:
                name = source
            found[name] = self._worker_of_file(name, source), block
        for name, settings in self._configured.items():
            found[name] = self._complete(settings), None
        if has_main:
            found = {MAIN: (self.main(), None), **found}
        return found

    def _worker_of_file(self, name: str, path: str) -> WorkerSettings:
        settings = WorkerSettings(name)
        settings.methods = [path]
        return self._start(settings, Order(name, [path], origin=path))

    def _complete(self, settings: WorkerSettings) -> WorkerSettings:
        order = Order(
            settings.name,
            [absolute(each) for each in settings.methods],
            python=settings.python,
            dependencies=settings.dependencies,
            origin=f"[workers.{settings.name}]",
            memory=settings.memory,
        )
        return self._start(settings, order)

    def _taken(self) -> set[str]:
        """Return the sources that configured workers have."""
        return {absolute(each) for worker in self._configured.values() for each in worker.methods}

    def main(self) -> WorkerSettings:
        """Return the worker of all methods that have no other, whether there are any or not."""
        settings = WorkerSettings(MAIN)
        settings.methods = self._sources
        settings.python = self._python
        settings.start = "eager"
        order = Order(
            MAIN,
            self._sources,
            folder=self._folder,
            others=sorted(self._taken()),
            python=self._python,
            origin=self._origin,
        )
        return self._start(settings, order)

    def _start(self, settings: WorkerSettings, order: Order) -> WorkerSettings:
        settings.command = self._command
        settings.env = {**settings.env, **order.as_environment()}
        return settings


def declared_names(text: str) -> Iterator[str]:
    """Yield the names of the methods that a file declares, as far as its text shows them.

    So that a call starts the one worker that has the method, and not all of them.
    """
    import ast

    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for decorator in node.decorator_list:
                call = decorator if isinstance(decorator, ast.Call) else None
                target = decorator if call is None else call.func
                name = getattr(target, "id", None) or getattr(target, "attr", None)
                if name not in ("method", "command", "resource", "prompt"):
                    continue
                given: list[ast.expr] = [] if call is None else [*call.args]
                if name == "resource" and call is not None:  # its URI comes first
                    given = [*given[1:], *(k.value for k in call.keywords if k.arg == "name")]
                first = given[0].value if given and isinstance(given[0], ast.Constant) else None
                yield first if isinstance(first, str) else node.name
