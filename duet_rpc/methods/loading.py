"""The user's methods: files, modules, a folder, entry points.

One bad file costs its own methods and a line in the log that names file and line; the
rest is loaded. Nothing of this is imported before somebody asks for a method that is
not built in.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Callable, TypedDict

from duet_rpc.failures import PACKAGE, field_of, install, missing_module, place_of, say_what
from duet_rpc.methods.context import Cancelled
from duet_rpc.methods.declare import Declaration, declared
from duet_rpc.methods.registry import Registry
from duet_rpc.methods.schema import Unsupported
from duet_rpc.methods.signature import method_from, source_of
from duet_rpc.methods.sources import ENTRY_POINTS, RELOAD, files_in, packages

BUNDLED = {"system": "duet_rpc.methods.system"}


class Reloaded(TypedDict):
    """What `reloadMethods` answers."""

    methods: list[str]
    problems: list[str]


class Loader:
    """Adds the user's methods to a registry, and can do so again."""

    def __init__(
        self,
        registry: Registry,
        sources: list[str],
        folder: str | None,
        report: Callable[[str], None],
    ) -> None:
        self._registry = registry
        # A method may change the working directory.
        self._sources = [_absolute(source) for source in sources]
        self._folder = folder
        self._report = report
        registry.add(method_from(self.reload, RELOAD))
        self._builtin = {method.name for method in registry}
        self._ours: list[str] = []
        self._problems: list[str] = []
        self._folders: set[str] = set()
        self._cancelled = False

    def reload(self) -> Reloaded:
        """Load the user's methods again, with what has changed in their files."""
        self._cancelled = False
        _forget(self._folders)
        self.load()
        if self._cancelled:
            raise Cancelled
        return {"methods": self._ours, "problems": self._problems}

    def load(self) -> None:
        """Load everything, and report what can't be loaded."""
        for name in self._ours:
            self._registry.remove(name)
        self._ours = []
        self._problems = []
        for source in self._sources:
            self._load_source(source)
        for path in files_in(self._folder):
            self._load_file(path)
        for package in packages():
            self._load_package(package)

    def _problem(self, problem: str) -> None:
        self._problems.append(problem)
        self._report(problem)

    def _load_file(self, path: str) -> None:
        self._folders.add(os.path.dirname(path))
        self._load(path, lambda: load_file(path))

    def _load_source(self, source: str) -> None:
        if os.path.isabs(source):
            self._load_file(source)
        else:
            name = BUNDLED.get(source, source)
            self._load(source, lambda: load_module(name))

    def _load_package(self, folder: str) -> None:
        from importlib.metadata import PathDistribution
        from pathlib import Path

        try:
            points = [*PathDistribution(Path(folder)).entry_points]
        except Exception as error:  # noqa: BLE001 - anybody may have written it
            self._problem(f"{os.path.basename(folder)}: {say_what(error)}")
            return
        for point in points:
            if point.group == ENTRY_POINTS:
                name = point.value.partition(":")[0].strip()
                self._load(f"entry point {point.name}", partial(load_module, name))

    def _load(self, place: str, run: Callable[[], object]) -> None:
        """Run what declares methods, and add those that it declares."""
        declared.clear()
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - SystemExit too
            # Cancelling a reload costs the file that takes too long, not those behind it.
            self._cancelled |= isinstance(error, Cancelled)
            self._problem(_explain(place, error))
            declared.clear()  # made by half a module: they would fail in odd ways
        for declaration in declared:
            self._add(declaration)

    def _add(self, declaration: Declaration) -> None:
        name = declaration.name
        source = source_of(declaration.function)
        place = _place(declaration.function, source)
        if not isinstance(name, str) or not name or not name.isprintable():
            self._problem(f"{place}: {name!r}: a name is a text of characters that can be seen")
            return
        if name in self._builtin:
            self._problem(f"{place}: {name} is the name of a built-in method")
            return
        if name.startswith("rpc."):
            self._problem(f"{place}: {name}: names that begin with rpc. are reserved")
            return
        there = self._registry.get(name)
        if there is not None:
            if source is not None and source == there.source:
                return  # loaded before, by a file that imports this one
            other = _place(there.function, there.source)
            other = f"another {other}" if other == place else other
            self._problem(f"{place}: {name} is already the name of the method at {other}")
            return
        try:
            method = method_from(declaration.function, name)
            method.title, method.hints = declaration.title, declaration.hints
        except Unsupported as error:
            self._problem(f"{place}: {name}: {error}")
            return
        except Exception as error:  # noqa: BLE001 - a hint may be any object
            self._problem(f"{place}: {name}: {say_what(error)}")
            return
        self._registry.add(method)
        self._ours.append(name)


def load_file(path: str) -> ModuleType:
    """Run a file as a module of its own; what lies beside it can be imported by it."""
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.append(folder)
    name = "duet_rpc_user_" + "".join(c if c.isalnum() else "_" for c in path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # Not the loader's exec_module: a file that was saved twice within a second, with its
    # size unchanged, would be taken from its cached bytecode.
    with open(path, "rb") as file:
        exec(compile(file.read(), path, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    return module


def load_module(name: str) -> ModuleType:
    """Import a module again, with all that is below it."""
    if name in BUNDLED.values():
        sys.modules.pop(name, None)
    else:
        for other in list(sys.modules):
            if other == name or other.startswith(f"{name}."):
                _forget_module(other)
    importlib.invalidate_caches()
    return importlib.import_module(name)


def _forget(folders: set[str]) -> None:
    """Let files import what lies beside them again."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and any(_is_beside(name, file, folder) for folder in folders):
            _forget_module(name)
    importlib.invalidate_caches()


def _is_beside(name: str, file: str, folder: str) -> bool:
    """Return True for what is imported from a folder: a file in it, or all of a package."""
    top = name.partition(".")[0]
    # Not whatever lies below it: that may be a whole Python.
    return file.startswith((f"{folder}/{top}.", f"{folder}/{top}/")) and top != "duet_rpc"


def _forget_module(name: str) -> None:
    """Let a module be imported again: from its file, and not from its cached bytecode.

    That would be taken for up to date where the file was saved twice within a second, with
    its size unchanged.
    """
    spec = getattr(sys.modules.pop(name), "__spec__", None)  # anything may stand there
    cached = getattr(spec, "cached", None)
    if cached is not None:
        with suppress(OSError):
            os.unlink(cached)


def _absolute(source: str) -> str:
    """Return the whole path of a file; a module's name as it is."""
    if source.endswith(".py") or os.sep in source:
        source = os.path.expanduser(source)
        with suppress(OSError):  # the working directory is gone
            return os.path.abspath(source)
        return os.path.join(os.sep, source)
    return source


def _place(function: Callable[..., object], source: tuple[str, int] | None) -> str:
    if source is None:
        return getattr(function, "__qualname__", str(function))
    file, line = source
    return f"{os.path.basename(file)}:{line}"


def _explain(source: str, error: BaseException) -> str:
    """Say which line of the user's files is wrong, and why."""
    place = place_of(error, PACKAGE)
    where = f"{os.path.basename(place[0])}:{place[1]}" if place else os.path.basename(source)
    file = field_of(error, SyntaxError, "filename", str)
    if file is not None:
        where = f"{os.path.basename(file)}:{field_of(error, SyntaxError, 'lineno', int)}"
    reason = field_of(error, OSError, "strerror", str)
    if place is None and reason is not None:
        return f"{where}: can't be read: {reason}"
    module = missing_module(error)
    if module is None:
        return f"{where}: {say_what(error)}"
    if module == source:
        return f"{where}: there is no module of this name; is the file {module}.py meant?"
    if module.partition(".")[0] in sys.modules:
        return f"{where} imports {module!r}, which was not found"
    return f"{where} imports {module!r}, which is not installed. Install it: {install(module)}"
