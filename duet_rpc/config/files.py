"""TOML files, turned into one `Config`.

The nearest `.duet-rpc.toml` upward from the working directory wins over the user's
`config.toml`; `DUET_RPC_CONFIG` names a file that replaces both. What stands in a file
is the business of `config_file`, which is imported only where there is one to read.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
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
        self.origins: dict[str, str] = {}  # key to file
        self.warnings: list[str] = []


def load(environ: Mapping[str, str], directory: str | None) -> Config:
    """Read the files that there are, the strongest last."""
    config = Config()
    own = user_folder(environ)
    config.methods_folder = own and os.path.join(own, "methods")
    for path in find_files(environ, directory):
        from duet_rpc.config.settings import apply

        apply(config, path, environ)
    return config


def find_files(environ: Mapping[str, str], directory: str | None) -> list[str]:
    """Return the configuration files in force, the strongest last."""
    only = environ.get("DUET_RPC_CONFIG")
    if only:
        return [os.path.expanduser(only)]
    own = user_folder(environ)
    user = own and os.path.join(own, "config.toml")
    project = find_project_file(directory)
    return [path for path in (user, project) if path and is_there(path)]


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


def is_there(path: str) -> bool:
    """Return True for a file; somebody who put something else there wants to know."""
    if not os.path.lexists(path):
        return False
    if os.path.isdir(path):
        raise ConfigError(f"{path}: this is a folder: put a file in its place, or move it away")
    if not os.path.exists(path):
        raise ConfigError(f"{path}: this is a link that leads to no file: mend it, or remove it")
    return os.path.isfile(path)


def find_project_file(directory: str | None) -> str | None:
    """Find the nearest project file, upward from a directory."""
    while directory:
        path = os.path.join(directory, PROJECT_FILE)
        if is_there(path):
            return path
        parent = os.path.dirname(directory)
        directory = parent if parent != directory else None
    return None
