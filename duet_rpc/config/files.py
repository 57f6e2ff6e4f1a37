"""Find the configuration files and read them into one `Config`.

The nearest `.duet-rpc.toml` upward from the working directory overrides the user's
`config.toml`; `DUET_RPC_CONFIG` names a file that replaces both. `settings` knows what a file
may contain; it is imported only where there is a file to read.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from duet_rpc.config.settings import BackendSettings

PROJECT_FILE = ".duet-rpc.toml"


class ConfigError(Exception):
    """A configuration file is wrong; the text says where and what to write instead."""


class Config:
    """The settings in force, and where each comes from."""

    def __init__(self) -> None:
        self.log_level: str | None = None
        self.color = True
        self.methods: list[str] = []
        self.methods_folder: str | None = None
        self.backends: dict[str, BackendSettings] = {}
        self.origins: dict[str, str] = {}  # from a key, such as log.level, to its file
        self.warnings: list[str] = []


def load_config() -> Config:
    """Read the configuration in force for this process."""
    return load(os.environ, working_directory())


def load(environ: Mapping[str, str], directory: str | None) -> Config:
    """Read the configuration in force for an environment and a working directory."""
    config = Config()
    folder = user_folder(environ)
    config.methods_folder = folder and os.path.join(folder, "methods")
    paths = find_files(environ, directory)
    if paths:
        from duet_rpc.config.settings import apply

        for path in paths:
            apply(config, path, environ)
    return config


def find_files(environ: Mapping[str, str], directory: str | None) -> list[str]:
    """Return the configuration files in force; a later one overrides an earlier one."""
    only = environ.get("DUET_RPC_CONFIG")
    if only:
        return [os.path.expanduser(only)]
    folder = user_folder(environ)
    user = folder and os.path.join(folder, "config.toml")
    project = find_project_file(directory)
    return [path for path in (user, project) if path and is_file(path)]


def find_project_file(directory: str | None) -> str | None:
    """Return the nearest project file, upward from a directory."""
    while directory:
        path = os.path.join(directory, PROJECT_FILE)
        if is_file(path):
            return path
        parent = os.path.dirname(directory)
        directory = parent if parent != directory else None
    return None


def is_file(path: str) -> bool:
    """Return whether there is a file to read; raise ConfigError for a folder or a broken link."""
    if not os.path.lexists(path):
        return False
    if os.path.isdir(path):
        raise ConfigError(f"{path}: is a folder; replace it with a file, or remove it")
    if not os.path.exists(path):
        raise ConfigError(f"{path}: is a broken link; fix it, or remove it")
    return os.path.isfile(path)


def user_folder(environ: Mapping[str, str]) -> str | None:
    """Return the folder of the user's configuration."""
    base = xdg_folder(environ, "XDG_CONFIG_HOME", ".config")
    return base and os.path.join(base, "duet-rpc")


def xdg_folder(environ: Mapping[str, str], variable: str, below_home: str) -> str | None:
    """Return the folder that an XDG variable or HOME names; a relative one is ignored."""
    for base, below in ((environ.get(variable), ""), (environ.get("HOME"), below_home)):
        if base and os.path.isabs(base):
            return os.path.join(base, below) if below else base
    return None


def working_directory() -> str | None:
    """Return the working directory, or None where it has been removed."""
    try:
        return os.getcwd()
    except OSError:
        return None
