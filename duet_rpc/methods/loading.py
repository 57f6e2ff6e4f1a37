"""The user's methods, as their files are now: files, modules, a folder, entry points.

Files come, change, break, are renamed and go while the daemon runs. `refresh` brings the
registry up to date; only what has changed is loaded again, so that the others keep what they
have in memory. One bad file costs its own methods and a line that names file and line; each
problem is reported once, when it appears.

Nothing of this is imported before somebody asks for a method that is not built in.
"""

from __future__ import annotations

import os
from time import sleep
from typing import TYPE_CHECKING, Callable

from duet_rpc.failures import say_what
from duet_rpc.methods.changes import GRANULE, changed_at, is_within
from duet_rpc.methods.modules import (
    INSTALL,
    UserFile,
    UserModule,
    UserPackage,
    forget_files,
    forget_listings,
)
from duet_rpc.methods.offers import Resource
from duet_rpc.methods.sources import ENTRY_POINTS, InstalledPackages, absolute, files_in

if TYPE_CHECKING:
    from duet_rpc.methods.method import Method
    from duet_rpc.methods.registry import Registry

SETTLING = 10
"""How often to look again for a method that is missing in a file that was saved just now."""


ENTRY_POINT = "entry point "
"""What begins the place of a package that has come by its entry points."""


PATIENCE = 0.5
"""Seconds after which a file that is interrupted while it is loaded counts as endless."""


class Loader:
    """Keeps the user's methods in a registry up to date."""

    def __init__(
        self,
        registry: Registry,
        sources: list[str],
        folder: str | None,
        report: Callable[[str, str], None],
        with_texts: bool = False,
        is_elsewhere: Callable[[str], bool] = lambda _source: False,
    ) -> None:
        """Begin; `is_elsewhere` tells which sources belong to other workers."""
        self._registry = registry
        self._is_elsewhere = is_elsewhere
        # A method may change the working directory.
        self._sources = [absolute(source) for source in sources]
        self._folder = folder
        self._packages = InstalledPackages()
        self._report = report
        self._with_texts = with_texts
        self._modules: dict[str, UserModule] = {}
        self._by_method: dict[str, UserModule] = {}
        self.problems: list[str] = []

    # What is asked for.

    def is_current(self, name: str) -> bool:
        """Return whether a method is known, and its file what it was when it was loaded."""
        module = self._by_method.get(name)
        return module is not None and module.is_current

    def problem_of(self, name: str) -> str | None:
        """Return why the file of a method could not be loaded, where an earlier version is used."""
        module = self._by_method.get(name)
        return None if module is None else module.problem

    def is_of_package(self, name: str) -> bool:
        """Return whether a method comes from an installed package that nobody has named."""
        module = self._by_method.get(name)
        return module is not None and module.place.startswith(ENTRY_POINT)

    def load(self, wanted: str | None = None) -> None:
        """Load what is new or has changed; raises nothing but Cancelled."""
        for _ in range(SETTLING):
            self._refresh(wanted)
            if wanted is None or wanted in self._by_method or not self._is_being_saved():
                break
            sleep(GRANULE / 2)

    def reload(self) -> None:
        """Load everything again, changed or not."""
        self._refresh(everything=True)

    def add_file(self, path: str) -> None:
        """Load one more file, until the process ends."""
        path = absolute(path)
        if path in self._modules:
            self._modules[path].stamps = None
        if path not in self._sources:
            self._sources.append(path)
        self._refresh()

    def stop(self) -> None:
        """Run what the files want to be done before the process ends."""
        for module in self._modules.values():
            module.stop()
        self._publish()

    # How it is done.

    def _refresh(self, wanted: str | None = None, everything: bool = False) -> None:
        modules = self._find_modules()
        for key in [*self._modules]:
            if key not in modules:
                self._modules.pop(key).stop()
        self._modules = modules
        forget_listings()
        changed = [each for each in modules.values() if everything or each.wants_loading]
        stale = self._stale_helpers(changed, everything)
        forgotten = forget_files(stale)
        # The last ones are those that somebody lost patience with.
        changed.sort(key=lambda module: module.interrupted is not None)
        known = set(changed)
        changed += [
            each
            for each in modules.values()
            if each not in known and not stale.isdisjoint(_helpers(each))
        ]
        try:
            for module in changed:
                if module.interrupted is not None and not everything:
                    self._publish()
                    if self._is_spared(module, wanted):
                        continue
                module.load(forgotten)
        finally:
            self._publish()

    def _is_spared(self, module: UserModule, wanted: str | None) -> bool:
        """Return True for a file that may never end, where one can do without it."""
        if module.has_changed:
            return False
        is_endless = (module.interrupted or 0.0) > PATIENCE
        return is_endless if wanted is None else wanted in self._by_method

    def _find_modules(self) -> dict[str, UserModule]:
        """Find what there is to load now, in the order in which it is loaded."""
        self._package_problems: list[str] = []
        found: dict[str, UserModule] = {}
        for source in self._sources:
            if self._is_elsewhere(source):
                continue
            if os.path.isabs(source):
                found[source] = self._modules.get(source) or UserFile(source, self._with_texts)
            else:
                found[source] = self._modules.get(source) or UserPackage(
                    source, source, self._with_texts
                )
        known = [path for path in self._modules if os.path.dirname(path) == self._folder]
        for path in files_in(self._folder, known):
            if path not in found and not self._is_elsewhere(path):
                found[path] = self._modules.get(path) or UserFile(path, self._with_texts)
        for folder in self._packages.folders():
            for point, name in self._entry_points(folder):
                key = ENTRY_POINT + point
                found[key] = self._modules.get(key) or UserPackage(name, key, self._with_texts)
        return found

    def _entry_points(self, folder: str) -> list[tuple[str, str]]:
        from importlib.metadata import PathDistribution
        from pathlib import Path

        try:
            points = [*PathDistribution(Path(folder)).entry_points]
        except Exception as error:  # noqa: BLE001 - anybody may have written it
            what = say_what(error, self._with_texts)
            self._package_problems.append(f"{os.path.basename(folder)}: {what}")
            return []
        return [
            (point.name, point.value.partition(":")[0].strip())
            for point in points
            if point.group == ENTRY_POINTS
        ]

    def _stale_helpers(self, changed: list[UserModule], everything: bool) -> set[str]:
        """Return the helpers to be imported again.

        All helpers of a file where one has changed, because they may import each other, and
        all of the files that share one of them, so that nobody is left with an old one.
        """
        stale: set[str] = set()
        for module in changed:
            if everything or any(stamp.differs() for stamp in (module.stamps or [])[1:]):
                stale |= _helpers(module)
        while True:
            more = {
                file
                for module in self._modules.values()
                if not stale.isdisjoint(_helpers(module))
                for file in _helpers(module)
            }
            if more <= stale:
                return stale
            stale |= more

    def _publish(self) -> None:
        """Put all methods into the registry; of two with one name, the first."""
        places: dict[str, Method] = {}
        uris: dict[str, Method] = {}
        owners: dict[str, UserModule] = {}
        problems = [*self._package_problems]
        tracebacks: dict[str, str] = {}
        for module in self._modules.values():
            problems += module.warnings()
            if module.problem is not None:
                what, *command = module.problem.partition(INSTALL)
                kept = "; the methods that it had are kept" if module.methods else ""
                problems.append("".join([what, kept, *command]))
                tracebacks[problems[-1]] = module.traceback
            problems += module.refused
            for method in module.methods:
                problem = self._clash(method, places.get(method.name)) or _same_uri(method, uris)
                if problem:
                    problems.append(problem)
                elif method.name not in places:
                    places[method.name] = method
                    owners[method.name] = module
        self._registry.set_user_methods(places.values() if self._modules else None)
        self._by_method = owners
        known = set(self.problems)
        new = [each for each in problems if each not in known]
        self.problems = problems
        for problem in new:
            self._report(problem, tracebacks.get(problem, ""))

    def _clash(self, method: Method, other: Method | None) -> str | None:
        name, place = method.name, method.place
        if self._registry.is_builtin(name):
            return f"{place}: {name} is the name of a built-in method"
        if other is None:
            return None
        if method.source is not None and method.source == other.source:
            if _offer(method) == _offer(other):
                return None  # the same one, loaded by a file that imports its file
            return f"{place}: {name} has two decorators; give one of them a name of its own"
        there = f"another {other.place}" if other.place == place else other.place
        return f"{place}: {name} is already the name of the method at {there}"

    def _is_being_saved(self) -> bool:
        """Return True where a file, or the folder, was written to a moment ago."""
        stamps = [stamp for module in self._modules.values() for stamp in module.stamps or ()]
        folder = changed_at(self._folder) if self._folder else None
        return is_within(2 * GRANULE, folder) or any(each.saved_just_now() for each in stamps)


def _offer(method: Method) -> object:
    offer = method.offer
    return None if offer is None else (offer.kind, offer.as_json())


def _same_uri(method: Method, uris: dict[str, Method]) -> str | None:
    """Say so where the URI of a resource is the URI of another one."""
    if not isinstance(method.offer, Resource):
        return None
    template = method.offer.template
    other = uris.setdefault(template.key, method)
    if other.name == method.name:
        return None
    return f"{method.place}: {template.text} is already the URI of {other.name} at {other.place}"


def _helpers(module: UserModule) -> set[str]:
    """Return the files that a file imports from its own folder."""
    if not isinstance(module, UserFile):
        return set()
    return {stamp.path for stamp in (module.stamps or [])[1:]}
