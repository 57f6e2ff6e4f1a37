"""Find the configuration files and read them into one `Config`.

The nearest `.duet-rpc.toml` upward from the working directory overrides the user's
`config.toml`; `DUET_RPC_CONFIG` names a file that replaces both. `settings` knows what a file
may contain; it is imported only where there is a file to read.

The search for a project's file goes through folders that may not be the user's: `/tmp` is
above many. What somebody else may have put there is not read, not even to find it broken.
"""

from __future__ import annotations

import os
from stat import S_ISLNK, S_IWGRP, S_IWOTH
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from duet_rpc.config.processes import BackendSettings, WorkerSettings

PROJECT_FILE = ".duet-rpc.toml"


class ConfigError(Exception):
    """A configuration file is wrong; the text says where and what to write instead."""


class Config:
    """The settings in force, and where each comes from."""

    def __init__(self) -> None:
        self.log_level: str | None = None
        self.color = True
        self.debug = False
        self.methods: list[str] = []
        self.methods_folder: str | None = None
        self.python: str | None = None  # the one to run methods with
        self.workers: dict[str, WorkerSettings] = {}
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
    paths = find_files(environ, directory, config.warnings)
    if paths:
        from duet_rpc.config.settings import apply

        for path in paths:
            apply(config, path, environ)
    return config


def find_files(environ: Mapping[str, str], directory: str | None, warnings: list[str]) -> list[str]:
    """Return the configuration files in force; a later one overrides an earlier one.

    A project's file that may be somebody else's is left out, and `warnings` says why.
    """
    only = environ.get("DUET_RPC_CONFIG")
    if only:
        return [os.path.expanduser(only)]
    folder = user_folder(environ)
    user = folder and os.path.join(folder, "config.toml")
    project = find_project_file(directory, warnings)
    return [path for path in (user, project) if path and is_file(path)]


def find_project_file(start: str | None, warnings: list[str]) -> str | None:
    """Return the nearest project file, upward from a directory, that is the user's or root's."""
    directory = start
    while directory:
        path = os.path.join(directory, PROJECT_FILE)
        if os.path.lexists(path):
            why = why_not_ours(directory, path)
            if why:
                # Relative, because a log does not name the user's folders.
                shown = os.path.relpath(path, start)
                warnings.append(
                    f"{shown} is not read: {why}. Remove it, or, if it is yours, run `chmod go-w` "
                    "on its folder and on the file, or name the file in DUET_RPC_CONFIG"
                )
            elif is_file(path):
                return path
        parent = os.path.dirname(directory)
        directory = parent if parent != directory else None
    return None


def why_not_ours(folder: str, path: str) -> str:
    """Return why a file may have been written by another user; "" where it cannot have been."""
    parts = [("its folder", os.stat(folder)), ("it", os.lstat(path))]
    if os.path.exists(path):  # where it is a link: what that leads to
        parts.append(("it", os.stat(path)))
    for name, status in parts:
        if status.st_uid not in (os.geteuid(), 0):
            return f"{name} belongs to another user"
        if not S_ISLNK(status.st_mode) and is_open_to_others(status):
            return f"other users can write to {name}"
    return ""


def is_open_to_others(status: os.stat_result) -> bool:
    """Return whether a mode lets other users write; a group of the user alone is no other."""
    if status.st_mode & S_IWOTH:
        return True
    if not status.st_mode & S_IWGRP:
        return False
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(status.st_gid)
    except KeyError:
        return True
    # As many distributions set it up, with a umask of 002: each user has a group of that name.
    is_own = group.gr_gid == user.pw_gid and group.gr_name == user.pw_name
    return not is_own or not set(group.gr_mem) <= {user.pw_name}


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
