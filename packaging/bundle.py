"""The modules of the daemon's start, in one file.

Finding, checking and reading twenty small files takes longer than running what is in
them, and so does the way that each takes through `importlib`: a fifteenth of the time to
the first reply. `make` writes them into one file when the archive is unpacked, and `run` is
what that file does when it is run. Where it is missing the modules are imported one by one,
as ever.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

AT_START = (
    "duet_rpc", "duet_rpc.jsonrpc", "duet_rpc.jsonrpc.limits", "duet_rpc.jsonrpc.errors",
    "duet_rpc.jsonrpc.content_length", "duet_rpc.jsonrpc.framing",
    "duet_rpc.jsonrpc.messages", "duet_rpc.jsonrpc.reader", "duet_rpc.jsonrpc.repeat",
    "duet_rpc.methods", "duet_rpc.methods.context", "duet_rpc.methods.registry",
    "duet_rpc.log", "duet_rpc.config", "duet_rpc.config.files", "duet_rpc.methods.builtin",
    "duet_rpc.server", "duet_rpc.server.stdio", "duet_rpc.server.lifecycle",
    "duet_rpc.server.dispatch", "duet_rpc.server.daemon", "duet_rpc.server.rpc",
    "duet_rpc.cli",
)  # fmt: skip
"""What `duet-rpc rpc` imports on the way to its first reply; none before what it imports."""


def make(packages: str) -> None:
    """Write the file, beside the modules."""
    import marshal
    import os
    from pathlib import Path

    modules = []
    for name in AT_START:
        path = Path(packages, *name.split("."))
        is_package = path.is_dir()
        file = path / "__init__.py" if is_package else path.with_suffix(".py")
        code = compile_module(file.read_bytes(), str(file))
        modules.append((name, is_package, str(file), code))
    made = Path(packages, "duet_rpc", f"start.{os.getpid()}")
    made.write_bytes(marshal.dumps((run.__code__, modules)))
    made.replace(made.with_name("start.bin"))


def compile_module(source: bytes, file: str) -> CodeType:
    """Compile one module so that importing `__future__` is not part of what it does."""
    import __future__

    import ast

    tree = ast.parse(source)
    tree.body = [
        step
        for step in tree.body
        if not isinstance(step, ast.ImportFrom) or step.module != "__future__"
    ]
    flags = __future__.annotations.compiler_flag
    code: CodeType = compile(tree, file, "exec", flags, dont_inherit=True)
    return code


def run(directory: int, packages: str, modules: list[tuple[str, bool, str, CodeType]]) -> None:
    """Start the program with these modules, unless they are being deleted."""
    import gc
    import sys
    from fcntl import LOCK_NB, LOCK_SH, flock
    from importlib.machinery import ModuleSpec, SourceFileLoader

    try:
        # Held until the process ends: nobody deletes it meanwhile.
        flock(directory, LOCK_SH | LOCK_NB)
    except OSError:
        gc.enable()
        return

    sys.path[0] = packages
    for name, is_package, file, code in modules:
        loader = SourceFileLoader(name, file)
        spec = ModuleSpec(name, loader, origin=file, is_package=is_package)
        spec.has_location = True
        module = sys.modules[name] = type(sys)(name)
        parent, _, own = name.rpartition(".")
        module.__file__, module.__loader__, module.__spec__ = file, loader, spec
        module.__package__ = name if is_package else parent
        if is_package:
            folder = file[: -len("/__init__.py")]
            spec.submodule_search_locations = module.__path__ = [folder]
        exec(code, module.__dict__)  # noqa: S102 - as an import does it
        if parent:
            setattr(sys.modules[parent], own, module)
    # What is there by now stays, and is never looked at again.
    gc.freeze()
    gc.enable()
    sys.modules["duet_rpc.cli"].main()
