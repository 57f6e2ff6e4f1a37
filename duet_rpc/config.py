"""TOML files, turned into one `Config`.

The nearest `.duet-rpc.toml` upward from the working directory wins over the user's
`config.toml`; `DUET_RPC_CONFIG` names a file that replaces both. A TOML parser is
imported only where there is a file to read. Whatever is wrong with a file is said as a
compiler would: file, line, key, and the nearest right name.
"""

from __future__ import annotations

import os

from duet_rpc.log import LEVELS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PROJECT_FILE = ".duet-rpc.toml"
USER_FILE = "duet-rpc/config.toml"

KEYS = {"log": ("level", "color")}


class ConfigError(Exception):
    """A configuration file is wrong; the text says where and what to write instead."""


class Config:
    """The settings that the files give."""

    __slots__ = ("color", "log_level")

    def __init__(self) -> None:
        self.log_level: str | None = None
        self.color = True


def load(environ: Mapping[str, str], directory: str | None) -> Config:
    """Read the files that there are, the strongest last."""
    config = Config()
    for path in find_files(environ, directory):
        _apply(config, path)
    return config


def find_files(environ: Mapping[str, str], directory: str | None) -> list[str]:
    """Return the configuration files in force, the strongest last."""
    only = environ.get("DUET_RPC_CONFIG")
    if only:
        return [os.path.expanduser(only)]
    files = []
    home = environ.get("HOME")
    base = environ.get("XDG_CONFIG_HOME") or (home and os.path.join(home, ".config"))
    if base and os.path.isfile(os.path.join(base, USER_FILE)):
        files.append(os.path.join(base, USER_FILE))
    while directory:
        if os.path.isfile(os.path.join(directory, PROJECT_FILE)):
            files.append(os.path.join(directory, PROJECT_FILE))
            break
        parent = os.path.dirname(directory)
        directory = parent if parent != directory else None
    return files


def _apply(config: Config, path: str) -> None:
    text, tables = _read(path)
    for section, table in tables.items():
        if section not in KEYS:
            raise _wrong(path, text, section, f"no such key: {section}", KEYS)
        if not isinstance(table, dict):
            raise _wrong(path, text, section, f"{section} must be a table: [{section}]")
        for key in table:
            if key not in KEYS[section]:
                raise _wrong(path, text, key, f"no such key: {section}.{key}", KEYS[section])
    log = tables.get("log", {})
    if "level" in log:
        level = log["level"]
        if not isinstance(level, str) or level.lower() not in LEVELS:
            accepted = ", ".join(LEVELS)
            raise _wrong(path, text, "level", f"log.level must be one of {accepted}")
        config.log_level = level.lower()
    if "color" in log:
        if not isinstance(log["color"], bool):
            raise _wrong(path, text, "color", "log.color must be true or false")
        config.color = log["color"]


def _read(path: str) -> tuple[str, dict[str, dict[str, object]]]:
    import sys

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        return text, tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from None


def _wrong(
    path: str, text: str, key: str, what: str, names: Mapping[str, object] | tuple[str, ...] = ()
) -> ConfigError:
    """Point at the line that holds a key."""
    import difflib

    place = path
    for number, line in enumerate(text.splitlines(), 1):
        if line.split("=")[0].strip(" \t[]\"'").split(".")[-1].strip(" \"'") == key:
            place = f"{path}:{number}"
            break
    nearest = difflib.get_close_matches(key, list(names), 1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return ConfigError(f"{place}: {what}{hint}")
