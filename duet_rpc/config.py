"""TOML files, turned into one `Config`.

The nearest `.duet-rpc.toml` upward from the working directory wins over the user's
`config.toml`; `DUET_RPC_CONFIG` names a file that replaces both. A TOML parser is
imported only where there is a file to read. Whatever is wrong with a file is said as a
compiler would: file, line, key, and the nearest right name.

A project's file comes with the project, from whoever wrote that. What it names to be
run counts only once the user has trusted it: see `trust`.
"""

from __future__ import annotations

import os

from duet_rpc.log import LEVELS, MESSAGE_MAX, escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PROJECT_FILE = ".duet-rpc.toml"
SHOWN_MAX = 60  # characters of a line that is no TOML


class ConfigError(Exception):
    """A configuration file is wrong; the text says where and what to write instead."""


class Config:
    """The settings in force, and where each comes from."""

    def __init__(self) -> None:
        self.log_level: str | None = None
        self.color = True
        self.methods: list[str] = []
        self.methods_folder: str | None = None
        self.origins: dict[str, str] = {}  # key to file
        self.warnings: list[str] = []


def load(environ: Mapping[str, str], directory: str | None) -> Config:
    """Read the files that there are, the strongest last."""
    config = Config()
    own = user_folder(environ)
    config.methods_folder = own and os.path.join(own, "methods")
    for path in find_files(environ, directory):
        _apply(config, path, environ)
    return config


def find_files(environ: Mapping[str, str], directory: str | None) -> list[str]:
    """Return the configuration files in force, the strongest last."""
    only = environ.get("DUET_RPC_CONFIG")
    if only:
        return [os.path.expanduser(only)]
    own = user_folder(environ)
    user = own and os.path.join(own, "config.toml")
    project = find_project_file(directory)
    return [path for path in (user, project) if path and os.path.isfile(path)]


def user_folder(environ: Mapping[str, str]) -> str | None:
    """Return the folder of the user's configuration."""
    base = xdg_folder(environ, "XDG_CONFIG_HOME", ".config")
    return base and os.path.join(base, "duet-rpc")


def xdg_folder(environ: Mapping[str, str], variable: str, below_home: str) -> str | None:
    """Return a folder that a variable or the home directory names, never a relative one."""
    for base, below in ((environ.get(variable), ""), (environ.get("HOME"), below_home)):
        if base and os.path.isabs(base):
            return os.path.join(base, below) if below else base
    return None


def find_project_file(directory: str | None) -> str | None:
    """Find the nearest project file, upward from a directory."""
    while directory:
        path = os.path.join(directory, PROJECT_FILE)
        if os.path.isfile(path):
            return path
        parent = os.path.dirname(directory)
        directory = parent if parent != directory else None
    return None


# The keys that there are, each with what checks it and puts it into force.


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
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        return 'must be a list of files and modules, such as ["words.py"]'
    config.methods = [resolve(each, path) for each in value]
    return None


KEYS: dict[str, dict[str, Callable[[Config, object, str], str | None]]] = {
    "log": {"level": _set_level, "color": _set_color},
    "methods": {"load": _set_methods},
}

RUNS_CODE = {"methods"}
"""The sections that name code to be run."""


def resolve(source: str, path: str) -> str:
    """Return a file named in a configuration file as seen from there; a module as it is."""
    if source.endswith(".py") or os.sep in source:
        return os.path.join(os.path.dirname(os.path.abspath(path)), os.path.expanduser(source))
    return source


def _apply(config: Config, path: str, environ: Mapping[str, str]) -> None:
    text, tables = read(path)
    # A file that the user names is the user's own word, whatever it is called.
    is_project = os.path.basename(path) == PROJECT_FILE and not environ.get("DUET_RPC_CONFIG")
    for section, table in tables.items():
        if section not in KEYS:
            raise _wrong(path, text, (section,), f"no such key: {section}", KEYS)
        if not isinstance(table, dict):
            raise _wrong(path, text, (section,), f"{section} must be a table: [{section}]")
        trusted = not is_project or section not in RUNS_CODE or _is_trusted(path, text, environ)
        for key, value in table.items():
            setter = KEYS[section].get(key)
            if setter is None:
                raise _wrong(
                    path, text, (section, key), f"no such key: {section}.{key}", KEYS[section]
                )
            problem = setter(config if trusted else Config(), value, path)
            if problem:
                raise _wrong(path, text, (section, key), f"{section}.{key} {problem}")
            if trusted:
                config.origins[f"{section}.{key}"] = path
        if not trusted:
            config.warnings.append(
                f"[{section}] of the project's {PROJECT_FILE} is skipped: the file is not trusted. "
                "Look at it, then run `duet-rpc trust` there"
            )


def _is_trusted(path: str, text: str, environ: Mapping[str, str]) -> bool:
    from duet_rpc.trust import is_trusted

    return is_trusted(path, text, environ)


def read(path: str) -> tuple[str, dict[str, object]]:
    """Read a file; return its text and its tables."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8") from None
    try:
        return text, _parse(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, text, error) from None


def _parse(text: str) -> dict[str, object]:
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


def _unreadable(path: str, text: str, error: Exception) -> ConfigError:
    """Point at the line that is no TOML."""
    import re

    if isinstance(error, RecursionError):
        return ConfigError(f"{path}: nested too deeply")
    what, _, place = str(error).rpartition(" (at ")
    numbers = re.match(r"line (\d+)", place)
    if not what:  # the parser lets through what Python says of it
        return ConfigError(f"{path}: it holds a number that is too long")
    lines = text.rstrip("\n").split("\n")
    number = int(numbers.group(1)) if numbers else len(lines)
    line = lines[min(number, len(lines)) - 1]
    # What is in a value may be nobody's business; its key is enough to find it.
    key = escape(line.partition("=")[0].strip(), SHOWN_MAX)
    return ConfigError(f"{path}:{number}: {what}: {key}" if key else f"{path}:{number}: {what}")


def _wrong(
    path: str, text: str, key: tuple[str, ...], what: str, names: Mapping[str, object] | None = None
) -> ConfigError:
    """Point at the line that holds a key."""
    import difflib

    from duet_rpc.toml_lines import line_of

    number = line_of(text, key, _parse)
    place = path if number is None else f"{path}:{number}"
    nearest = difflib.get_close_matches(key[-1], list(names or ()), 1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return ConfigError(f"{place}: {escape(what, MESSAGE_MAX)}{hint}")
