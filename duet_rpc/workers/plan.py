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
    from collections.abc import Iterable, Mapping, Sequence


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
        for source in self._all_sources():
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

    def _all_sources(self) -> Iterable[str]:
        return dict.fromkeys([*self._sources, *files_in(self._folder)])

    def plain_files(self) -> list[str]:
        """Return the files whose methods `main` has."""
        taken = self._taken()
        return [
            each
            for each in self._all_sources()
            if each not in taken and self.scripts.is_plain(each)
        ]

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
