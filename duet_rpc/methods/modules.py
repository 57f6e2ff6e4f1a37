"""One file or module of the user's: run it, collect its methods, know when it has changed.

Loading is all or nothing. A file that no longer loads keeps the methods that it had, and the
modules that they came from; what is wrong with it is kept as a text for a person.
"""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import os
import sys
from contextlib import suppress
from importlib.machinery import FileFinder, PathFinder
from time import time
from types import ModuleType
from typing import TYPE_CHECKING, Callable

from duet_rpc.environments.script import OPENING, why_ignored
from duet_rpc.failures import (
    PACKAGE,
    field_of,
    install,
    missing_module,
    place_of,
    say_what,
    traceback_of,
)
from duet_rpc.methods import hooks
from duet_rpc.methods.changes import (
    Stamp,
    Unreadable,
    helpers_of,
    imported_names,
    python_files,
    read,
    read_file,
    read_saved_file,
)
from duet_rpc.methods.context import Cancelled
from duet_rpc.methods.declare import Declaration, declared
from duet_rpc.methods.restore import forget_half_imported, restore
from duet_rpc.methods.schema import Unsupported
from duet_rpc.methods.signature import method_of, source_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from duet_rpc.methods.method import Method

BUNDLED = {"system": "duet_rpc.methods.system"}

INSTALL = ". Install it: "
"""What the command that helps comes after, at the end of a text, where it can be copied."""

LOGGERS = {"logging", "loguru"}
"""Modules that are imported with a file even where only a function of it does so: what is logged
before the daemon knows of them goes to stderr in their own form, whatever the level."""


class UserModule:
    """Something that declares methods. What is special to a file or a module is below."""

    def __init__(self, place: str, with_texts: bool) -> None:
        self.place = place  # what a person calls it
        self.methods: list[Method] = []
        self.problem: str | None = None  # why it could not be loaded
        self.traceback = ""  # of that, for the author
        self.refused: list[str] = []  # what is wrong with some of its methods
        self.stamps: list[Stamp] | None = None  # of its files; None: to be loaded
        self._with_texts = with_texts  # of exceptions, which may be anything
        self._on_stop: list[Callable[[], object]] = []
        self._missing: str | None = None  # the module that it lacked
        self.interrupted: float | None = None  # after so many seconds of its last load

    # For those that are not the whole of it.

    def run(self) -> None:
        """Run the code that declares methods."""
        raise NotImplementedError

    def stamp(self, began: float) -> list[Stamp]:
        """Note what its files are like now."""
        raise NotImplementedError

    def warnings(self) -> list[str]:
        """Return what is wrong with its text, loaded or not."""
        return []

    # Loading.

    @property
    def is_current(self) -> bool:
        """False where loading it again may make a difference; calls none of the user's code."""
        return not (self.interrupted is not None or self._missing is not None or self.has_changed)

    @property
    def wants_loading(self) -> bool:
        """True where loading it again is worth a try."""
        return self.interrupted is not None or self.has_changed or self._can_find_missing()

    @property
    def has_changed(self) -> bool:
        """True where its files are not those that were loaded."""
        return self.stamps is None or any(stamp.differs() for stamp in self.stamps)

    def _can_find_missing(self) -> bool:
        if self._missing is None:
            return False
        # Not all finders: anybody may have added one, and this is asked again and again.
        with suppress(Exception):
            return PathFinder.find_spec(self._missing) is not None
        return False

    def load(self, forgotten: dict[str, ModuleType]) -> None:
        """Load it, or load it again; raises nothing but Cancelled.

        `forgotten` are the modules that were taken out of `sys.modules` for it, to be put back
        where it fails.
        """
        began = time()
        self.interrupted = None
        for seen in (declared, hooks.starting, hooks.stopping):
            seen.clear()
        try:
            try:
                self.run()
            finally:
                restore()
            methods, refused = self._describe([*declared])
        except BaseException as error:
            forget_half_imported()
            sys.modules.update(forgotten)
            self._missing = _top(missing_module(error))
            self.problem = _explain(self.place, error, self._with_texts)
            self.traceback = traceback_of(error) if self._with_texts else ""
            if issubclass(type(error), Cancelled):
                self.interrupted = time() - began
                raise
        else:
            self.methods, self.refused, self.problem, self._missing = methods, refused, None, None
            before, self._on_stop = self._on_stop, [*hooks.stopping]
            self._run_hooks([*before, *hooks.starting])
        finally:
            self.stamps = self.stamp(began)

    def stop(self) -> None:
        """Run what the file wants to be done at its end; raises nothing but Cancelled."""
        functions, self._on_stop = self._on_stop, []
        self._run_hooks(functions)

    def _run_hooks(self, functions: list[Callable[[], object]]) -> None:
        for function in functions:
            try:
                function()
            except Cancelled:
                raise
            except BaseException as error:  # noqa: BLE001
                self.refused.append(_explain(self.place, error, self._with_texts))

    def _describe(self, declarations: list[Declaration]) -> tuple[list[Method], list[str]]:
        methods, refused = [], []
        for declaration in declarations:
            place = os.path.basename(self.place)
            try:
                place = place_of_function(declaration.function)
                methods.append(_make(declaration))
            except Unsupported as error:
                refused.append(f"{place}: {_name(declaration)}{error}")
            except Cancelled:
                raise
            except BaseException as error:  # noqa: BLE001 - a hint may be any expression
                what = say_what(error, self._with_texts)
                refused.append(f"{place}: {_name(declaration)}{what}")
        return methods, refused


class UserFile(UserModule):
    """A file of methods, wherever it lies; what lies beside it can be imported by it."""

    def __init__(self, path: str, with_texts: bool) -> None:
        super().__init__(path, with_texts)
        self._path = path
        self._text: bytes | None = None

    def run(self) -> None:
        """Run the file as a module."""
        self._text = None
        try:
            self._text = (read_saved_file if self.methods else read_file)(self._path)
        except FileNotFoundError:  # deleted, which is no mistake in it
            self.methods, self.refused = [], []
            self.stop()
            raise
        run_file(self._path, self._text)
        for name in LOGGERS.intersection(imported_names(self._text)):
            with suppress(Exception):
                importlib.import_module(name)

    def stamp(self, began: float) -> list[Stamp]:
        """Note what the file and its helpers are like."""
        text = self._text
        if text is None:
            text = read(self._path)
        helpers = helpers_of(self._path, text or b"")
        return [Stamp(self._path, began, text), *(Stamp(each, began) for each in helpers)]

    def warnings(self) -> list[str]:
        """Return what is wrong with a comment that was meant to make the file a worker."""
        ignored = why_ignored((self._text or b"").decode("utf-8", "replace"))
        if ignored is None:
            return []
        line, what = ignored
        place = f"{os.path.basename(self._path)}:{line}"
        return [f"{place}: the `{OPENING}` block is ignored: {what}"]


class UserPackage(UserModule):
    """A module that is installed, or bundled, with all that is below it."""

    def __init__(self, name: str, place: str, with_texts: bool) -> None:
        super().__init__(place, with_texts)
        self._name = BUNDLED.get(name, name)

    def run(self) -> None:
        """Import the module, and the package that it is part of, again."""
        forget_modules(name for name in [*sys.modules] if self._is_part(name))
        forget_listings()
        importlib.import_module(self._name)

    def _is_part(self, name: str) -> bool:
        top = _top(self._name)
        if top == "duet_rpc":
            return name == self._name
        return name == top or name.startswith(f"{top}.")

    def load(self, forgotten: dict[str, ModuleType]) -> None:
        """Load it, or load it again."""
        mine = {name: each for name, each in sys.modules.items() if self._is_part(name)}
        super().load({**mine, **forgotten})

    def stamp(self, began: float) -> list[Stamp]:
        """Note what the files of the package are like."""
        files = {
            file
            for name, module in [*sys.modules.items()]
            if self._is_part(name)
            for file in [file_of(module)]
            if file is not None
        }
        if self.problem is not None:  # the broken one was not imported
            with suppress(Exception):
                spec = importlib.util.find_spec(_top(self._name) or "")
                for folder in (spec and spec.submodule_search_locations) or ():
                    files.update(python_files(folder))
        return [Stamp(each, began) for each in sorted(files)]


def run_file(path: str, text: bytes) -> None:
    """Run a file as a module, so that it can also be imported under its own name."""
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.append(folder)
    name = module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise Unreadable("it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    # For tracebacks: by then the file may be another, or gone.
    with suppress(SyntaxError, ValueError):
        lines = importlib.util.decode_source(text).splitlines(keepends=True)
        linecache.cache[path] = len(text), None, lines, path
    # Not the loader's exec_module: a file that was saved twice within a second, with its
    # size unchanged, would be taken from its cached bytecode.
    try:
        exec(compile(text, path, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    except BaseException:
        if before is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = before
        raise


def module_name(path: str) -> str:
    """Return the name that `import` has for a file, or one of our own where it has none.

    Under its own name, processes that a method starts can import its functions.
    """
    stem = os.path.basename(path)[: -len(".py")]
    there = sys.modules.get(stem)
    if there is not None:
        if file_of(there) == path:
            return stem
    elif stem.isidentifier():
        with suppress(Exception):
            spec = importlib.util.find_spec(stem)
            if spec is not None and spec.origin == path:
                return stem
    return "duet_rpc_user_" + "".join(c if c.isalnum() else "_" for c in path)


def forget_listings() -> None:
    """Let imports see what was written a moment ago.

    As `importlib.invalidate_caches` does, which also asks the finders that anybody may have
    added, and imports all of `importlib.metadata` for that.
    """
    for place, finder in [*sys.path_importer_cache.items()]:
        if finder is None:
            sys.path_importer_cache.pop(place, None)
        elif isinstance(finder, FileFinder):
            finder.invalidate_caches()


def forget_files(files: set[str]) -> dict[str, ModuleType]:
    """Let modules be imported again from these files; return them as they were."""
    if not files:
        return {}
    return forget_modules(
        name for name, module in [*sys.modules.items()] if file_of(module) in files
    )


def file_of(module: object) -> str | None:
    """Return the file of a module, without calling what anybody has put in its place."""
    if isinstance(module, ModuleType):
        file = ModuleType.__getattribute__(module, "__dict__").get("__file__")
        return file if type(file) is str else None
    return None


def forget_modules(names: Iterable[str]) -> dict[str, ModuleType]:
    """Let modules be imported again: from their files, and not from their cached bytecode.

    That would be taken for up to date where the file was saved twice within a second, with
    its size unchanged.
    """
    forgotten = {name: sys.modules.pop(name) for name in [*names]}
    for module in forgotten.values():
        cached = getattr(getattr(module, "__spec__", None), "cached", None)
        if isinstance(cached, str):
            with suppress(OSError):
                os.unlink(cached)
    return forgotten


# What is said of it.


def _make(declaration: Declaration) -> Method:
    name = declaration.name
    if isinstance(name, str):
        name = str.__str__(name)  # with nobody's own idea of what is equal to it
    if not isinstance(name, str) or not name or not name.isprintable():
        raise Unsupported(f"{name!r}: a name is a text of characters that can be seen")
    if name.startswith("rpc."):
        raise Unsupported("names that begin with rpc. are reserved")
    return method_of(declaration, name)


def _name(declaration: Declaration) -> str:
    name = declaration.name
    is_fine = isinstance(name, str) and name and name.isprintable()
    return f"{name}: " if is_fine else ""


def place_of_function(function: Callable[..., object]) -> str:
    """Return the file and line of a function for a message, or its name."""
    source = source_of(function)
    if source is None:
        name = getattr(function, "__qualname__", None)
        return name if isinstance(name, str) else str(type(function).__name__)
    file, line = source
    return f"{os.path.basename(file)}:{line}"


def _top(module: str | None) -> str | None:
    return None if module is None else module.partition(".")[0]


def _explain(source: str, error: BaseException, with_text: bool) -> str:
    """Say which line of the user's files is wrong, and why."""
    place = place_of(error, PACKAGE)
    where = f"{os.path.basename(place[0])}:{place[1]}" if place else os.path.basename(source)
    file = field_of(error, SyntaxError, "filename", str)
    if file is not None:
        where = f"{os.path.basename(file)}:{field_of(error, SyntaxError, 'lineno', int)}"
    if issubclass(type(error), Cancelled):
        return f"{where}: interrupted while it was being loaded"
    reason = field_of(error, OSError, "strerror", str)
    if place is None and reason is not None:
        return f"{where}: can't be read: {reason}"
    module = missing_module(error)
    if module is None:
        return f"{where}: {say_what(error, with_text)}"
    if module == source:
        return f"{where}: there is no module of this name; is the file {module}.py meant?"
    if module.partition(".")[0] in sys.modules:
        return f"{where} imports {module!r}, which was not found"
    return f"{where} imports {module!r}, which is not installed{INSTALL}{install(module)}"
