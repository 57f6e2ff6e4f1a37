"""What a configuration file may contain: its keys, and a check of each value.

An error in a file names the file, the line, the key and the nearest valid name.

A project's file was written by whoever wrote the project. The code that it names to be run
counts only once the user trusts the file: see `trust`.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any

from duet_rpc.config.files import PROJECT_FILE, Config, ConfigError
from duet_rpc.config.processes import (
    BACKEND_KEYS,
    WORKER_KEYS,
    BackendSettings,
    WorkerSettings,
    check_backend,
    check_worker,
    find_program,
    is_text,
    resolve,
)
from duet_rpc.config.toml_lines import DEPTH_MAX, line_of, line_too_deep
from duet_rpc.log import LEVELS, MESSAGE_MAX, escape
from duet_rpc.program import program_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

SIZE_MAX = 512 * 1024
"""Bytes of a configuration file."""

SHOWN_MAX = 60
"""Characters of a line with a syntax error that are shown."""


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


def _set_debug(config: Config, value: object, _path: str) -> str | None:
    if not isinstance(value, bool):
        return "must be true or false"
    config.debug = value
    return None


def _set_methods(config: Config, value: object, path: str) -> str | None:
    if not isinstance(value, list) or not all(map(is_text, value)):
        return 'must be a list of files and modules, such as ["words.py"]'
    config.methods = [resolve(each, path) for each in value]
    return None


def _set_python(config: Config, value: object, path: str) -> str | None:
    if not is_text(value) or not value:
        return 'must be the path of a Python, such as "~/venv/bin/python"'
    config.python = find_program(str(value), path)
    return None


TOP_KEYS: dict[str, Callable[[Config, object, str], str | None]] = {"debug": _set_debug}

KEYS: dict[str, dict[str, Callable[[Config, object, str], str | None]]] = {
    "log": {"level": _set_level, "color": _set_color},
    "methods": {"load": _set_methods, "python": _set_python},
    "workers": {},  # by name, each with WORKER_KEYS,
    "backends": {},  # and with BACKEND_KEYS
}


RESERVED_NAMES = ("gateway", "tools", "notifications", "rpc", "client", "emacs", "main")
"""What comes before the slash in other methods, and the worker that has a name of its own."""

NEEDS_TRUST = {"methods", "workers", "backends", "debug"}
"""What names code to be run, or shows more of the user's data than usual."""


def apply(config: Config, path: str, environ: Mapping[str, str]) -> None:
    """Add the settings of one file to a Config; of an untrusted file, those that need no trust."""
    named = environ.get("DUET_RPC_CONFIG")
    text, tables = read(path, " (named in DUET_RPC_CONFIG)" if named else "")
    # A file that DUET_RPC_CONFIG names is the user's own, whatever its name is.
    is_project = os.path.basename(path) == PROJECT_FILE and not named
    needs_trust = is_project and not NEEDS_TRUST.isdisjoint(tables)
    trusted = not needs_trust or _is_recorded(path, text, environ)
    fill(config, path, text, tables, () if trusted else NEEDS_TRUST)


def fill(
    config: Config,
    path: str,
    text: str,
    tables: dict[str, object],
    skipped: Collection[str] = (),
) -> None:
    """Add the settings of one file to a Config, except the skipped ones; check them all."""
    for name, value in tables.items():
        counts = name not in skipped
        target = config if counts else Config()
        keys = _apply_top(target, path, text, name, value)
        if counts:
            config.origins.update((key, path) for key in keys)
        else:
            what = name if name in TOP_KEYS else f"[{name}]"
            config.warnings.append(
                f"{what} of the project's {PROJECT_FILE} is skipped: the file is not trusted. "
                f"Read it, then run `{program_name()} trust` there"
            )


def _apply_top(config: Config, path: str, text: str, name: str, value: object) -> list[str]:
    """Add a key or a table of the top level to a Config; return the names of its keys."""
    if name in TOP_KEYS:
        problem = TOP_KEYS[name](config, value, path)
        if problem:
            raise _wrong(path, text, (name,), f"{name} {problem}")
        return [name]
    if name not in KEYS:
        raise _unknown_key(path, text, (name,), {**KEYS, **TOP_KEYS})
    if not isinstance(value, dict):
        example = name if KEYS[name] else f"{name}.NAME"
        raise _wrong(path, text, (name,), f"{name} must be a table: [{example}]")
    if name == "workers":
        workers = {each.name: each for each in read_workers(path, text, value)}
        config.workers.update(workers)
        keys = list(workers)
    elif name == "backends":
        backends = {each.name: each for each in read_backends(path, text, value)}
        config.backends.update(backends)
        keys = list(backends)
    else:
        keys = _apply_section(config, path, text, name, value)
    for each in config.workers:
        if each in config.backends:
            where = f"the worker and the backend {each!r} have the same name; rename one"
            raise _wrong(path, text, (name, each), where)
    return [f"{name}.{key}" for key in keys]


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


def read_backends(path: str, text: str, tables: dict[str, object]) -> Iterator[BackendSettings]:
    """Yield the backends of one file."""
    for name, table in _named_tables(path, text, "backends", tables):
        backend = BackendSettings(name)
        _fill(backend, path, text, table, BACKEND_KEYS)
        _check(path, text, ("backends", name), check_backend(backend))
        yield backend


def read_workers(path: str, text: str, tables: dict[str, object]) -> Iterator[WorkerSettings]:
    """Yield the workers of one file."""
    for name, table in _named_tables(path, text, "workers", tables):
        worker = WorkerSettings(name)
        _fill(worker, path, text, table, WORKER_KEYS)
        _check(path, text, ("workers", name), check_worker(worker))
        yield worker


def _named_tables(
    path: str, text: str, section: str, tables: dict[str, object]
) -> Iterator[tuple[str, dict[str, object]]]:
    kind, keys = section[:-1], BACKEND_KEYS if section == "backends" else WORKER_KEYS
    for name, table in tables.items():
        where = (section, name)
        full = f"{section}.{name}"
        plain = name.replace("-", "").replace("_", "").replace(".", "")
        if not plain.isascii() or not plain.isalnum() or "__" in name or name[-1] == "_":
            what = f"invalid {kind} name {name!r}: use letters, digits, -, . and single _"
            raise _wrong(path, text, where, what)
        if name in RESERVED_NAMES:
            raise _wrong(path, text, where, f"{kind} name {name!r} is reserved; choose another")
        if not isinstance(table, dict):
            what = f"{full} must be a table: [{full}]"
            if name in keys:
                what = f"{name} belongs to one {kind}: put it below [{section}.NAME]"
            raise _wrong(path, text, where, what)
        yield name, table


def _fill(
    process: WorkerSettings | BackendSettings,
    path: str,
    text: str,
    table: dict[str, object],
    keys: dict[str, Callable[[Any, Any, str], str | None]],
) -> None:
    where = (f"{process.kind}s", process.name)
    for key, value in table.items():
        setter = keys.get(key)
        if setter is None:
            raise _unknown_key(path, text, (*where, key), keys)
        problem = setter(process, value, path)
        if problem:
            raise _wrong(path, text, (*where, key), f"{'.'.join((*where, key))} {problem}")


def _check(path: str, text: str, where: tuple[str, str], wrong: tuple[str, str] | None) -> None:
    if wrong is not None:
        key, problem = wrong
        at = (*where, key) if key else where
        raise _wrong(path, text, at, f"{'.'.join(at)} {problem}")


def _is_recorded(path: str, text: str, environ: Mapping[str, str]) -> bool:
    # Imported here: it needs hashlib, and few projects have a file that names code.
    from duet_rpc.config.trust import is_trusted

    return is_trusted(path, text, environ)


def read(path: str, origin: str = "") -> tuple[str, dict[str, object]]:
    """Read a file; return its text and its tables. `origin` says who named the file."""
    try:
        with open(path, "rb") as file:
            data = file.read(SIZE_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}{origin}: cannot be read: {error.strerror}") from None
    if len(data) > SIZE_MAX:
        what = f"is larger than {SIZE_MAX:,} bytes, the limit for a configuration file"
        raise ConfigError(f"{path}{origin}: {what}")
    try:
        text = data.decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8") from None
    line = line_too_deep(text)
    if line is not None:
        what = f"nested too deeply: at most {DEPTH_MAX} tables and arrays inside one another"
        raise ConfigError(f"{path}:{line}: {what}")
    try:
        return text, tomllib.loads(text)
    except ValueError as error:
        raise _syntax_error(path, text, error) from None


def _syntax_error(path: str, text: str, error: Exception) -> ConfigError:
    """Return the error for a text that is not TOML, with its line."""
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


def place_of(path: str, key: tuple[str, ...]) -> str:
    """Return file and line of a key, for a fault that is found later than by reading."""
    number = line_of(read(path)[0], key, tomllib.loads)
    return f"{path}:{number}"


def _wrong(path: str, text: str, key: tuple[str, ...], what: str) -> ConfigError:
    """Return the error for a key, with its line."""
    number = line_of(text, key, tomllib.loads)
    place = path if number is None else f"{path}:{number}"
    return ConfigError(f"{place}: {escape(what, MESSAGE_MAX)}")
