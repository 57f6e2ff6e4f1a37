"""The user's methods in a running server: loaded when they are wanted, up to date when called.

All that is the user's runs under the server's guard, where it can be cancelled, is bounded by
the shutdown deadline and ends nothing but itself. A server whose user has no methods does
without the loader, which brings in `inspect`, `typing` and more, and without what reads files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.methods.builtin import STRING, array, record
from duet_rpc.methods.method import Method, Mismatch, Param, json_type
from duet_rpc.methods.sources import RELOAD, InstalledPackages, absolute, files_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.methods.loading import Loader
    from duet_rpc.methods.registry import Registry
    from duet_rpc.methods.scripts import Scripts

LOAD = "loadMethods"
RELOADED = record(methods=array(STRING), problems=array(STRING))


class UserMethods:
    """Brings the user's methods in a registry up to date."""

    def __init__(
        self,
        registry: Registry,
        sources: list[str],
        folder: str | None,
        report: Callable[[str, str], None],
        debug: bool,
        is_elsewhere: Callable[[str], bool],
    ) -> None:
        """Begin; `is_elsewhere` tells which sources belong to other workers."""
        self._registry = registry
        self._is_elsewhere = is_elsewhere
        self._sources = sources
        self._folder = folder
        self._report = report
        self._debug = debug
        self._packages = InstalledPackages()
        self._loader: Loader | None = None
        self.loaded: list[str] = []  # files that somebody has named while this runs
        add_reload(registry, self.reload, self.load_file)

    @property
    def are_loaded(self) -> bool:
        """True where the user's files have been loaded, as far as that went."""
        return self._loader is not None

    @property
    def problems(self) -> list[str]:
        """What is wrong with the user's files."""
        return self._loader.problems if self._loader is not None else []

    def is_current(self, name: str) -> bool:
        """Return whether a method of the user's can be called as it is."""
        return self._loader is not None and self._loader.is_current(name)

    def is_of_package(self, name: str) -> bool:
        """Return whether a method comes from an installed package that nobody has named."""
        return self._loader is not None and self._loader.is_of_package(name)

    def problem_of(self, name: str) -> str | None:
        """Return what is wrong with the file of a method, if that could not be loaded again."""
        return self._loader.problem_of(name) if self._loader is not None else None

    def refresh(self, wanted: str | None = None) -> str:
        """Load what is new or has changed; raises nothing but Cancelled."""
        if self._loader is not None or self._has_any():
            self._get_loader().load(wanted)
        return ""

    def stop(self) -> str:
        """Run what the user's files want to be done at the end."""
        if self._loader is not None:
            self._loader.stop()
        return ""

    def _has_any(self) -> bool:
        return bool(self._sources or files_in(self._folder) or self._packages.folders())

    def _get_loader(self) -> Loader:
        if self._loader is None:
            from duet_rpc.methods.loading import Loader

            self._loader = Loader(
                self._registry,
                self._sources,
                self._folder,
                self._report,
                self._debug,
                self._is_elsewhere,
            )
        return self._loader

    def reload(self) -> dict[str, object]:
        """Load everything again, changed or not; return what there is then."""
        if self._loader is not None or self._has_any():
            self._get_loader().reload()
        return self._loaded()

    def load_file(self, file: str) -> dict[str, object]:
        """Load one more file, until the process ends; return what there is then."""
        self._get_loader().add_file(file)
        self.loaded.append(file)
        return self._loaded()

    def _loaded(self) -> dict[str, object]:
        return {"methods": self._registry.user_names(), "problems": self.problems}


class Handover:
    """Knows whether there is a file that needs a worker."""

    def __init__(self) -> None:
        self._scripts: Scripts | None = None
        self.is_due = False

    def has_any(self, sources: list[str], folder: str | None) -> bool:
        """Return whether any of the user's files needs a worker."""
        files = [*map(absolute, sources), *files_in(folder)]
        return any(self.is_elsewhere(each) for each in files)

    def is_elsewhere(self, source: str) -> bool:
        """Return whether a source of methods needs a worker, and remember that one does."""
        if self._scripts is None:
            from duet_rpc.methods.scripts import Scripts

            self._scripts = Scripts()
        found = self._scripts.is_script(source)
        self.is_due |= found
        return found


def add_reload(
    registry: Registry, reload: Callable[[], object], load_file: Callable[[str], object]
) -> None:
    """Register the two methods that load the user's."""
    description = "Load the user's methods again, with what has changed in their files."
    registry.add(Method(RELOAD, description, reload, label="object", returns=RELOADED), hidden=True)
    registry.add(
        Method(
            LOAD,
            "Load a file of methods, until the daemon exits.",
            load_file,
            params={"file": Param("path", STRING, check_path)},
            label="object",
            returns=RELOADED,
        ),
        hidden=True,
    )


def check_path(value: object) -> str:
    """Return an absolute path: nobody can know what another one is relative to."""
    if isinstance(value, str) and value.startswith("/") and "\0" not in value:
        return value
    raise Mismatch("an absolute path", "string" if isinstance(value, str) else json_type(value))
