"""The modules of the daemon's start, in one file.

Finding, checking and reading twenty small files takes longer than running what is in
them; from one file it is a twenty-fifth off the time to the first reply. `make` writes that
file when the archive is unpacked, and `run` is what it does when it is run. Where it is
missing the modules are imported one by one, as ever.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

AT_START = (
    "duet_rpc", "duet_rpc.cli", "duet_rpc.config", "duet_rpc.log",
    "duet_rpc.methods", "duet_rpc.methods.builtin", "duet_rpc.methods.context",
    "duet_rpc.methods.registry",
    "duet_rpc.protocol", "duet_rpc.protocol.errors", "duet_rpc.protocol.framing",
    "duet_rpc.protocol.limits", "duet_rpc.protocol.messages", "duet_rpc.protocol.reader",
    "duet_rpc.protocol.repeat",
    "duet_rpc.server", "duet_rpc.server.daemon", "duet_rpc.server.dispatch",
    "duet_rpc.server.lifecycle", "duet_rpc.server.rpc", "duet_rpc.server.stdio",
)  # fmt: skip
"""What `duet-rpc rpc` imports on the way to its first reply."""


def make(packages: str) -> None:
    """Write the file, beside the modules."""
    import marshal
    import os
    from pathlib import Path

    modules: dict[str, tuple[bool, CodeType]] = {}
    for name in AT_START:
        path = Path(packages, *name.split("."))
        is_package = path.is_dir()
        file = path / "__init__.py" if is_package else path.with_suffix(".py")
        code = compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
        modules[name] = (is_package, code)
    made = Path(packages, "duet_rpc", f"start.{os.getpid()}")
    made.write_bytes(marshal.dumps((run.__code__, modules)))
    made.replace(made.with_name("start.bin"))


def run(directory: int, packages: str, modules: dict[str, tuple[bool, CodeType]]) -> None:
    """Start the program with these modules, unless they are being deleted."""
    import sys
    from fcntl import LOCK_NB, LOCK_SH, flock
    from importlib.machinery import ModuleSpec, SourceFileLoader

    try:
        # Held until the process ends: nobody deletes it meanwhile.
        flock(directory, LOCK_SH | LOCK_NB)
    except OSError:
        return

    class Loader(SourceFileLoader):
        def get_code(self, fullname: str) -> CodeType:
            return modules.pop(fullname)[1]

    class Finder:
        @staticmethod
        def find_spec(name: str, *_: object) -> ModuleSpec | None:
            if name not in modules:
                return None
            is_package = modules[name][0]
            folder = f"{packages}/{name.replace('.', '/')}"
            file = folder + ("/__init__.py" if is_package else ".py")
            spec = ModuleSpec(name, Loader(name, file), origin=file, is_package=is_package)
            spec.has_location = True
            if spec.submodule_search_locations is not None:
                spec.submodule_search_locations.append(folder)
            return spec

    sys.meta_path.insert(0, Finder)
    sys.path[0] = packages
    from duet_rpc.cli import main

    main()
