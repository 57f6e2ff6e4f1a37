"""The processes that a configuration describes: workers and backends, key by key.

A worker runs some of the user's methods in a process of its own; a backend is a server that
somebody else wrote. What a key may contain is checked here; where it stands in its file is
found in `settings`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from duet_rpc.jsonrpc.framing import FRAMINGS
from duet_rpc.jsonrpc.limits import REQUEST_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable

MEMORY_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


class ProcessSettings:
    """A process that is started for the user: what workers and backends have in common."""

    kind: str

    def __init__(self, name: str) -> None:
        self.name = name
        self.command: list[str] = []
        self.framing = "content-length"
        self.dialect = "plain"
        self.env: dict[str, str] = {}
        self.cwd: str | None = None
        self.start = "lazy"
        self.timeout = 0.0  # seconds; 0 is none
        self.memory: int | None = None  # bytes

    def offers(self, tool: str) -> bool:
        """Return whether a tool that the process has is offered to AI clients."""
        return bool(tool)


class WorkerSettings(ProcessSettings):
    """A process for some of the user's methods: one `[workers.NAME]` table."""

    kind = "worker"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.methods: list[str] = []
        self.python: str | None = None
        self.dependencies: list[str] | None = None

    def __str__(self) -> str:
        """Return what it runs, for a person."""
        words = ", ".join(self.methods)
        if self.dependencies is not None:
            return f"{words} with {', '.join(self.dependencies) or 'no packages'}"
        return words if self.python is None else f"{words} with {self.python}"


class BackendSettings(ProcessSettings):
    """A server behind the gateway: one `[backends.NAME]` table."""

    kind = "backend"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.framing = ""  # the default of the dialect
        self.timeout = REQUEST_TIMEOUT
        self.capabilities: dict[str, object] = {}
        self.tools: list[str] = []  # patterns of the tools that are offered; all without any

    def offers(self, tool: str) -> bool:
        """Return whether a tool is offered; the last pattern that matches decides.

        A tool that none matches is offered where all patterns take tools away.
        """
        offered = all(each.startswith("!") for each in self.tools)
        for pattern in self.tools:
            if fnmatchcase(tool, pattern.lstrip("!")):
                offered = not pattern.startswith("!")
        return offered and bool(tool)

    def __str__(self) -> str:
        """Return what is run, as a shell command."""
        words = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        place = "" if self.cwd is None else f"cd {shlex.quote(self.cwd)} && "
        return place + " ".join([*words, *map(shlex.quote, self.command)])


# Each key has a function that checks a value and stores it, or returns what is wrong with it.


def is_text(value: object) -> bool:
    """Return whether a value is a string that can be passed to a program."""
    return isinstance(value, str) and "\0" not in value


def is_texts(value: object) -> bool:
    """Return whether a value is a list of such strings, none of them empty."""
    return isinstance(value, list) and all(is_text(each) and each for each in value)


def find_program(name: str, path: str) -> str:
    """Return a program's path, relative to the file that names it; a name on PATH unchanged."""
    name = os.path.expanduser(name)
    if os.sep in name:
        folder = os.path.dirname(os.path.abspath(path))
        name = os.path.normpath(os.path.join(folder, name))
    return name


def resolve(source: str, path: str) -> str:
    """Return a path relative to the configuration file that names it; a module unchanged."""
    if source.endswith(".py") or os.sep in source:
        return os.path.join(os.path.dirname(os.path.abspath(path)), os.path.expanduser(source))
    return source


def _set_command(backend: BackendSettings, value: Any, path: str) -> str | None:
    if not isinstance(value, list) or not value or not all(map(is_text, value)) or not value[0]:
        return 'must be a list of strings, such as ["server", "--stdio"]'
    backend.command = [find_program(value[0], path), *value[1:]]
    return None


def _set_methods(worker: WorkerSettings, value: Any, path: str) -> str | None:
    if not is_texts(value) or not value:
        return 'must be a list of files and modules, such as ["plots.py"]'
    worker.methods = [resolve(each, path) for each in value]
    return None


def _set_python(worker: WorkerSettings, value: Any, path: str) -> str | None:
    if not is_text(value) or not value:
        return 'must be the path of a Python, such as "~/venv/bin/python"'
    worker.python = find_program(value, path)
    return None


def _set_dependencies(worker: WorkerSettings, value: Any, _path: str) -> str | None:
    if not is_texts(value):
        return 'must be a list of packages, such as ["pandas>=2"]'
    worker.dependencies = value
    return None


def _set_memory(worker: ProcessSettings, value: Any, _path: str) -> str | None:
    match = re.fullmatch(r"([1-9][0-9]{0,9})([KMGT]?)B?", value, re.I) if is_text(value) else None
    if match is None:
        return 'must be a size, such as "512M" or "2G"'
    worker.memory = int(match[1]) * MEMORY_UNITS[match[2].upper()]
    return None


def _set_cwd(process: ProcessSettings, value: Any, path: str) -> str | None:
    if not is_text(value) or not value:
        return "must be the path of a folder"
    folder = os.path.dirname(os.path.abspath(path))
    process.cwd = os.path.normpath(os.path.join(folder, os.path.expanduser(value)))
    return None


def _set_env(process: ProcessSettings, value: Any, _path: str) -> str | None:
    if not isinstance(value, dict) or not all(map(is_text, value.values())):
        return 'must be a table of strings, such as { LANG = "C" }'
    if not all(name and is_text(name) and "=" not in name for name in value):
        return "contains a name that no environment variable can have"
    process.env = value
    return None


def _set_timeout(process: ProcessSettings, value: Any, _path: str) -> str | None:
    if type(value) not in (int, float) or not 0 <= value < 1e9:
        return "must be a number of seconds, or 0 for none"
    process.timeout = float(value)
    return None


def _set_capabilities(backend: BackendSettings, value: Any, _path: str) -> str | None:
    if not isinstance(value, dict):
        return "must be a table, such as { sampling = {} }"
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return "contains a value that JSON cannot represent"
    backend.capabilities = value
    return None


def _set_tools(backend: BackendSettings, value: Any, _path: str) -> str | None:
    if not is_texts(value) or "!" in value:
        return 'must be a list of patterns, such as ["search*", "!delete*"]'
    backend.tools = value
    return None


def _one_of(key: str, *choices: str) -> Callable[[Any, Any, str], str | None]:
    def set_choice(process: ProcessSettings, value: Any, _path: str) -> str | None:
        if value not in choices:
            return f"must be one of {', '.join(choices)}"
        setattr(process, key, value)
        return None

    return set_choice


_COMMON_KEYS: dict[str, Callable[[Any, Any, str], str | None]] = {
    "env": _set_env,
    "cwd": _set_cwd,
    "start": _one_of("start", "lazy", "eager"),
    "timeout": _set_timeout,
}

BACKEND_KEYS: dict[str, Callable[[Any, Any, str], str | None]] = {
    "command": _set_command,
    "dialect": _one_of("dialect", "plain", "lsp", "mcp"),
    "framing": _one_of("framing", *FRAMINGS),
    **_COMMON_KEYS,
    "capabilities": _set_capabilities,
    "tools": _set_tools,
}

WORKER_KEYS: dict[str, Callable[[Any, Any, str], str | None]] = {
    "methods": _set_methods,
    "python": _set_python,
    "dependencies": _set_dependencies,
    **_COMMON_KEYS,
    "memory": _set_memory,
}


def check_backend(backend: BackendSettings) -> tuple[str, str] | None:
    """Complete a backend; return a key, or "" for all of it, and what is wrong with it."""
    if not backend.command:
        return "", 'has no command, such as command = ["server"]'
    if backend.dialect != "mcp":
        for key in ("capabilities", "tools"):
            if getattr(backend, key):
                return key, 'needs dialect = "mcp"'
    if not backend.framing:
        backend.framing = "lines" if backend.dialect == "mcp" else "content-length"
    return None


def check_worker(worker: WorkerSettings) -> tuple[str, str] | None:
    """Return a key, or "" for all of it, and what is wrong with a worker; None: nothing."""
    if not worker.methods:
        return "", 'has no methods, such as methods = ["plots.py"]'
    if worker.python is not None and worker.dependencies is not None:
        return "python", "and dependencies exclude each other: packages go into an environment"
    return None
