"""What a configuration file may contain: its keys, and a check of each value.

An error in a file names the file, the line, the key and the nearest valid name.

A project's file was written by whoever wrote the project. The code that it names to be run
counts only once the user trusts the file: see `trust`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from typing import TYPE_CHECKING

from duet_rpc.config.files import PROJECT_FILE, Config, ConfigError
from duet_rpc.jsonrpc.limits import REQUEST_TIMEOUT
from duet_rpc.log import LEVELS, MESSAGE_MAX, escape
from duet_rpc.program import program_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

SHOWN_MAX = 60
"""Characters of a line with a syntax error that are shown."""


class BackendSettings:
    """A server behind the gateway: one `[backends.NAME]` table."""

    __slots__ = (
        "capabilities", "command", "cwd", "dialect", "env", "framing", "name", "start", "timeout",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.command: list[str] = []
        self.dialect = "plain"
        self.framing = ""  # the default of the dialect
        self.env: dict[str, str] = {}
        self.cwd: str | None = None
        self.start = "lazy"
        self.timeout = REQUEST_TIMEOUT
        self.capabilities: dict[str, object] = {}

    def __str__(self) -> str:
        """Return what is run, as a shell command."""
        words = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        place = "" if self.cwd is None else f"cd {shlex.quote(self.cwd)} && "
        return place + " ".join([*words, *map(shlex.quote, self.command)])


# Each key has a function that checks a value and stores it, or returns what is wrong with it.


def _set_level(config: Config, value: object, _path: str) -> str | None:
    if not isinstance(value, str) or value.lower() not in LEVELS:
        return f"must be one of {', '.join(LEVELS)}"
    config.log_level = value.lower()
    return None


def _set_color(config: Config, value: object, _path: str) -> str | None:
    if not isinstance(value, bool):
        return "must be true or false"
    config.color = value
    return None


def _set_methods(config: Config, value: object, path: str) -> str | None:
    if not isinstance(value, list) or not all(map(_is_text, value)):
        return 'must be a list of files and modules, such as ["words.py"]'
    config.methods = [resolve(each, path) for each in value]
    return None


KEYS: dict[str, dict[str, Callable[[Config, object, str], str | None]]] = {
    "log": {"level": _set_level, "color": _set_color},
    "methods": {"load": _set_methods},
    "backends": {},  # by name, each with BACKEND_KEYS
}


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _set_command(backend: BackendSettings, value: object, path: str) -> str | None:
    if not isinstance(value, list) or not value or not all(map(_is_text, value)) or not value[0]:
        return 'must be a list of strings, such as ["server", "--stdio"]'
    program = os.path.expanduser(value[0])
    if os.sep in program:
        folder = os.path.dirname(os.path.abspath(path))
        program = os.path.normpath(os.path.join(folder, program))
    backend.command = [program, *value[1:]]
    return None


def _set_cwd(backend: BackendSettings, value: object, path: str) -> str | None:
    if not _is_text(value) or not value:
        return "must be the path of a folder"
    folder = os.path.dirname(os.path.abspath(path))
    backend.cwd = os.path.normpath(os.path.join(folder, os.path.expanduser(str(value))))
    return None


def _set_env(backend: BackendSettings, value: object, _path: str) -> str | None:
    if not isinstance(value, dict) or not all(map(_is_text, value.values())):
        return 'must be a table of strings, such as { LANG = "C" }'
    if not all(name and _is_text(name) and "=" not in name for name in value):
        return "contains a name that no environment variable can have"
    backend.env = value
    return None


def _set_timeout(backend: BackendSettings, value: object, _path: str) -> str | None:
    if type(value) not in (int, float) or not 0 < value < 1e9:  # type: ignore[operator]
        return "must be a number of seconds above 0"
    backend.timeout = float(value)  # type: ignore[arg-type]
    return None


def _set_capabilities(backend: BackendSettings, value: object, _path: str) -> str | None:
    if not isinstance(value, dict):
        return "must be a table, such as { sampling = {} }"
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return "contains a value that JSON cannot represent"
    backend.capabilities = value
    return None


def _one_of(key: str, *choices: str) -> Callable[[BackendSettings, object, str], str | None]:
    def set_choice(backend: BackendSettings, value: object, _path: str) -> str | None:
        if value not in choices:
            return f"must be one of {', '.join(choices)}"
        setattr(backend, key, value)
        return None

    return set_choice


BACKEND_KEYS: dict[str, Callable[[BackendSettings, object, str], str | None]] = {
    "command": _set_command,
    "dialect": _one_of("dialect", "plain", "lsp", "mcp"),
    "framing": _one_of("framing", "content-length", "lines", "length-prefixed"),
    "env": _set_env,
    "cwd": _set_cwd,
    "start": _one_of("start", "lazy", "eager"),
    "timeout": _set_timeout,
    "capabilities": _set_capabilities,
}

RESERVED_NAMES = ("gateway", "tools", "notifications", "rpc")
"""What comes before the slash in a method of the gateway itself."""

RUNS_CODE = {"methods", "backends"}
"""The sections that name code to be run."""


def resolve(source: str, path: str) -> str:
    """Return a path relative to the configuration file that names it; a module unchanged."""
    if source.endswith(".py") or os.sep in source:
        return os.path.join(os.path.dirname(os.path.abspath(path)), os.path.expanduser(source))
    return source


def apply(config: Config, path: str, environ: Mapping[str, str]) -> None:
    """Add the settings of one file to a Config; of an untrusted file, those that run no code."""
    named = environ.get("DUET_RPC_CONFIG")
    text, tables = read(path, " (named in DUET_RPC_CONFIG)" if named else "")
    # A file that DUET_RPC_CONFIG names is the user's own, whatever its name is.
    is_project = os.path.basename(path) == PROJECT_FILE and not named
    runs_code = is_project and not RUNS_CODE.isdisjoint(tables)
    trusted = not runs_code or _is_recorded(path, text, environ)
    fill(config, path, text, tables, () if trusted else RUNS_CODE)


def fill(
    config: Config,
    path: str,
    text: str,
    tables: dict[str, object],
    skipped: Collection[str] = (),
) -> None:
    """Add the settings of one file to a Config, except the skipped sections; check them all."""
    for section, table in tables.items():
        if section not in KEYS:
            raise _unknown_key(path, text, (section,), KEYS)
        if not isinstance(table, dict):
            example = "backends.NAME" if section == "backends" else section
            raise _wrong(path, text, (section,), f"{section} must be a table: [{example}]")
        counts = section not in skipped
        target = config if counts else Config()
        if section == "backends":
            keys = _apply_backends(target, path, text, table)
        else:
            keys = _apply_section(target, path, text, section, table)
        if counts:
            config.origins.update((f"{section}.{key}", path) for key in keys)
        else:
            config.warnings.append(
                f"[{section}] of the project's {PROJECT_FILE} is skipped: the file is not trusted. "
                f"Read it, then run `{program_name()} trust` there"
            )


def _apply_section(
    config: Config, path: str, text: str, section: str, table: dict[str, object]
) -> list[str]:
    for key, value in table.items():
        where = (section, key)
        setter = KEYS[section].get(key)
        if setter is None:
            raise _unknown_key(path, text, where, KEYS[section])
        problem = setter(config, value, path)
        if problem:
            raise _wrong(path, text, where, f"{section}.{key} {problem}")
    return list(table)


def _apply_backends(config: Config, path: str, text: str, tables: dict[str, object]) -> list[str]:
    found = {backend.name: backend for backend in read_backends(path, text, tables)}
    config.backends.update(found)
    return list(found)


def read_backends(path: str, text: str, tables: dict[str, object]) -> Iterator[BackendSettings]:
    """Yield the backends of one file."""
    for name, table in tables.items():
        where = ("backends", name)
        full = f"backends.{name}"
        plain = name.replace("-", "").replace("_", "").replace(".", "")
        if not plain.isascii() or not plain.isalnum() or "__" in name or name[-1] == "_":
            what = f"invalid backend name {name!r}: use letters, digits, -, . and single _"
            raise _wrong(path, text, where, what)
        if name in RESERVED_NAMES:
            raise _wrong(path, text, where, f"backend name {name!r} is reserved; choose another")
        if not isinstance(table, dict):
            what = f"{full} must be a table: [{full}]"
            if name in BACKEND_KEYS:
                what = f"{name} belongs to one backend: put it below [backends.NAME]"
            raise _wrong(path, text, where, what)
        yield _read_backend(path, text, name, table)


def _read_backend(path: str, text: str, name: str, table: dict[str, object]) -> BackendSettings:
    backend = BackendSettings(name)
    where = ("backends", name)
    full = f"backends.{name}"
    for key, value in table.items():
        setter = BACKEND_KEYS.get(key)
        if setter is None:
            raise _unknown_key(path, text, (*where, key), BACKEND_KEYS)
        problem = setter(backend, value, path)
        if problem:
            raise _wrong(path, text, (*where, key), f"{full}.{key} {problem}")
    if not backend.command:
        raise _wrong(path, text, where, f'{full} has no command, such as command = ["server"]')
    if backend.capabilities and backend.dialect != "mcp":
        what = f'{full}.capabilities needs dialect = "mcp"'
        raise _wrong(path, text, (*where, "capabilities"), what)
    if not backend.framing:
        backend.framing = "lines" if backend.dialect == "mcp" else "content-length"
    return backend


def _is_recorded(path: str, text: str, environ: Mapping[str, str]) -> bool:
    # Imported here: it needs hashlib, and few projects have a file that names code.
    from duet_rpc.config.trust import is_trusted

    return is_trusted(path, text, environ)


def read(path: str, origin: str = "") -> tuple[str, dict[str, object]]:
    """Read a file; return its text and its tables. `origin` says who named the file."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise ConfigError(f"{path}{origin}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8") from None
    try:
        return text, tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise _syntax_error(path, text, error) from None


def _syntax_error(path: str, text: str, error: Exception) -> ConfigError:
    """Return the error for a text that is not TOML, with its line."""
    if isinstance(error, RecursionError):
        return ConfigError(f"{path}: nested too deeply")
    if text.startswith("\ufeff"):
        what = "begins with a byte-order mark; save it as UTF-8 without one"
        return ConfigError(f"{path}:1: {what}")
    what, _, place = str(error).rpartition(" (at ")
    what = re.sub(r" \(.*\)", "", what)  # a key as Python writes it; the line is shown instead
    numbers = re.match(r"line (\d+)", place)
    if not what:  # an error of int(), which the parser passes on
        return ConfigError(f"{path}: contains a number that is too long")
    lines = text.rstrip("\n").split("\n")
    number = int(numbers.group(1)) if numbers else len(lines)
    line = lines[min(number, len(lines)) - 1]
    # Not the value, which may be a secret.
    key = escape(line.partition("=")[0].strip(), SHOWN_MAX)
    return ConfigError(f"{path}:{number}: {what}: {key}" if key else f"{path}:{number}: {what}")


def _unknown_key(
    path: str, text: str, key: tuple[str, ...], names: Mapping[str, object]
) -> ConfigError:
    """Return the error for a key that does not exist, with the nearest one that does."""
    from duet_rpc.suggestions import did_you_mean

    nearest = did_you_mean(key[-1], names)
    return _wrong(path, text, key, f"unknown key '{'.'.join(key)}'{nearest and f'; {nearest}'}")


def _wrong(path: str, text: str, key: tuple[str, ...], what: str) -> ConfigError:
    """Return the error for a key, with its line."""
    from duet_rpc.config.toml_lines import line_of

    number = line_of(text, key, tomllib.loads)
    place = path if number is None else f"{path}:{number}"
    return ConfigError(f"{place}: {escape(what, MESSAGE_MAX)}")
