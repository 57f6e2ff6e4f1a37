"""The layout of the package: who may import whom, and what the first reply does without."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import TOP, request

CORE = {"jsonrpc"}
SHARED = {"methods", "peer", "log", "sinks", "failures", "config", "program"}
SHARED |= {"environments"} | CORE
LINE = {"command_line", "program", "suggestions"}

ARROWS: dict[str, set[str]] = {
    # the core knows nothing else of the package
    "jsonrpc": set(),
    # what the commands share
    "peer": CORE,
    "failures": set(),
    "sinks": CORE,
    "log": {"sinks", "failures"} | CORE,
    "program": set(),
    "suggestions": set(),
    "command_line": {"log"} | LINE | CORE,
    "config": {"log", "program", "suggestions"} | CORE,
    "environments": {"config", "program", "suggestions"},
    "methods": {"log", "failures", "environments"} | CORE,
    "workers": {"environments", "program", "methods", "config"} | CORE,
    "testing": {"methods", "log", "failures"} | CORE,
    # the commands
    "server": {"workers"} | SHARED,
    "mcp": {"server"} | SHARED,
    "gateway": {"server", "mcp", "workers"} | SHARED,
    "terminal": {"workers"} | LINE | SHARED,
    # the boundary, where a command is chosen and what it needs is imported
    "cli": {"server", "mcp", "gateway", "terminal", "workers"} | LINE | SHARED,
    "__main__": {"cli"},
    "__init__": {"methods", "jsonrpc"},
}
"""Which parts of the package each part may import, itself and the version aside."""

INPUT_AND_OUTPUT = {
    "os", "time", "select", "selectors", "socket", "signal", "subprocess", "threading",
    "asyncio", "logging", "loguru",
}  # fmt: skip

FRAMING = {"Framing", "framing", "content_length", "length_prefixed", "lines", "reader"}
PACKAGING = {path.stem for path in (TOP / "packaging").glob("*.py")}
# As they are named in the .pyz, and in a clone, where `packaging` is also a library's name.
PACKAGING |= {f"_{name}" for name in PACKAGING} | {f"packaging.{name}" for name in PACKAGING}

MODULES = sorted((TOP / "duet_rpc").rglob("*.py"))


def imports_of(path: Path) -> Iterator[str]:
    """Name all modules that a file imports, anywhere in it, for a type checker or not."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            assert node.module is not None
            # Of `from duet_rpc.gateway import loop` both may be modules.
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of(path: Path) -> str:
    """Return which part of the package a file belongs to."""
    return path.relative_to(TOP / "duet_rpc").parts[0].removesuffix(".py")


def parts_imported(path: Path) -> set[str]:
    """Return which other parts of the package a file imports."""
    words = [name.split(".") for name in imports_of(path)]
    found = {each[1] for each in words if each[0] == "duet_rpc" and len(each) > 1}
    parts = {part_of(each) for each in MODULES}
    return (found & parts) - {part_of(path), "__init__"}


@pytest.fixture(params=MODULES, ids=lambda path: str(path.relative_to(TOP)))
def module(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_a_module_imports_only_what_its_part_may(module: Path) -> None:
    assert part_of(module) in ARROWS, "a part that has no row in the table yet"
    assert parts_imported(module) - ARROWS[part_of(module)] == set()


def test_the_table_has_no_row_for_nothing() -> None:
    assert set(ARROWS) - {part_of(path) for path in MODULES} <= {"testing"}


# It runs inside the .pyz and asks that where it was unpacked.
KNOWS_THE_ARCHIVE = "doctor_checks.py"


def test_nobody_imports_how_it_is_packaged(module: Path) -> None:
    imported = set(imports_of(module))
    names = {name.split(".")[0] for name in imported} | imported
    assert not names & PACKAGING or module.name == KNOWS_THE_ARCHIVE


def test_no_private_module_is_imported(module: Path) -> None:
    names = {name.split(".")[0] for name in imports_of(module)} - PACKAGING
    # The manual of Python describes `_thread`.
    assert {name for name in names if name.startswith("_")} <= {"__future__", "_thread"}


@pytest.mark.parametrize(
    "path", [path for path in MODULES if part_of(path) == "jsonrpc"], ids=lambda path: path.name
)
def test_the_core_does_no_input_or_output(path: Path) -> None:
    imported = list(imports_of(path))
    assert not {name.split(".")[0] for name in imported} & INPUT_AND_OUTPUT
    assert "duet_rpc" not in imported, "not even for the version"


@pytest.mark.parametrize(
    "path", [path for path in MODULES if part_of(path) == "methods"], ids=lambda path: path.name
)
def test_methods_know_no_wire(path: Path) -> None:
    names = {name for name in imports_of(path) if name.startswith("duet_rpc.jsonrpc.")}
    assert not {name.split(".")[2] for name in names} & FRAMING


# What is loaded before the first reply. A person waits for it.

SLOW_TO_LOAD = {"loguru", "dataclasses", "inspect", "argparse", "subprocess", "asyncio"}

FOR_OTHERS = {"gateway", "terminal", "mcp", "workers", "environments"}
FOR_FILES = {f"duet_rpc.methods.{name}" for name in ("loading", "signature", "scripts", "changes")}
FOR_FILES |= {"duet_rpc.server.handover", "duet_rpc.server.worker"}
"""What a daemon without files of methods does without."""

MODULES_MAX = 65

SHOW_MODULES = """
import os, sys
write = os.write
def look(descriptor, data):
    if bytes(data).startswith(b"Content-Length:"):
        write(2, ("\\n" + " ".join(sys.modules)).encode())
        os._exit(0)
    return write(descriptor, data)
sys.argv[:1] = ["duet-rpc", "rpc"]
{}
"""


def modules_loaded(start: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", SHOW_MODULES.format(start)],
        input=request(1),
        capture_output=True,
        cwd=TOP,
        timeout=20,
        check=True,
    )
    return set(done.stderr.decode().splitlines()[-1].split())


def test_the_first_reply_waits_for_nothing_slow_to_load() -> None:
    loaded = modules_loaded("os.write = look; from duet_rpc.cli import main; main()")
    assert "duet_rpc.cli" in loaded
    of_python = modules_loaded("look(1, b'Content-Length:')")
    assert not (loaded - of_python) & SLOW_TO_LOAD
    ours = {name for name in loaded if name.startswith("duet_rpc.")}
    assert not {name.split(".")[1] for name in ours} & FOR_OTHERS
    assert not ours & FOR_FILES
    assert len(ours) <= MODULES_MAX, sorted(ours)
