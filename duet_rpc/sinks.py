"""Where log lines go when it is not a plain stderr: files, and loguru, which does the rest.

loguru knows colour, rotation, and what the user's methods log through it. It takes longer to
import than the whole start of the daemon, so `log` imports this only where it is needed.
"""

from __future__ import annotations

import os
from stat import S_ISLNK, S_ISREG

from duet_rpc.jsonrpc.limits import LOG_FILE_MAX, LOG_FILES_KEPT
from duet_rpc.log import APPEND

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from duet_rpc.log import Line, Log

LINKS_MAX = 40


class NoSink(Exception):
    """A log can't go where it should; the text says why."""


def open_file(path: str) -> tuple[str, int | None]:
    """Look whether a file can be logged to.

    Return its real name, and a descriptor where it is no file but a terminal or a pipe.
    """
    # O_NONBLOCK: a named pipe that nobody reads is refused, not waited for.
    flags = APPEND | os.O_NONBLOCK
    try:
        path = os.path.abspath(os.path.expanduser(path))
        if is_planted(path):
            raise NoSink("leads through a link of another user")
        # What a link leads to: rotation must not rename the link.
        real = os.path.realpath(path)
        if os.path.exists(path) and not os.path.exists(real):
            flags &= ~os.O_NOFOLLOW  # /dev/stderr, where that is a pipe, which has no name
        else:
            path = real
        descriptor = os.open(path, flags, 0o600)
        if not S_ISREG(os.fstat(descriptor).st_mode):
            return path, descriptor
        os.fchmod(descriptor, 0o600)
        os.close(descriptor)
    except OSError as error:
        raise NoSink(f"can't be written ({error.strerror})") from None
    return path, None


def is_planted(path: str) -> bool:
    """Return True where a link on the way may have been put there by another user."""
    ours = (os.geteuid(), 0)
    for _ in range(LINKS_MAX):
        parts = path.split("/")
        for count in range(2, len(parts) + 1):
            place, folder = "/".join(parts[:count]), "/".join(parts[: count - 1]) or "/"
            try:
                link = os.lstat(place)
                if not S_ISLNK(link.st_mode):
                    continue
                around = os.stat(folder)
                open_to_others = around.st_uid not in ours or around.st_mode & 0o022
                if open_to_others and link.st_uid not in ours:
                    return True
                path = os.path.normpath(os.path.join(folder, os.readlink(place), *parts[count:]))
                break
            except OSError:  # opening it will say what is wrong
                return False
        else:
            return False
    return False  # it goes in circles


def remove_old(path: str, files: list[str]) -> None:
    """Delete what rotation has put aside, except the newest.

    loguru would do so by itself, but it takes for its own whatever begins and ends alike.
    """
    import re

    root, ext = os.path.splitext(path)
    form = re.escape(root) + r"\.\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d{6}(\.\d+)?" + re.escape(ext)
    ours = sorted(file for file in files if re.fullmatch(form, file))
    for file in ours[:-LOG_FILES_KEPT]:
        os.remove(file)


class Watch:
    """Has the log use loguru right after somebody else has imported it."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Find loguru as everybody does, unless the log itself imports it."""
        if name != "loguru" or not self._log.claim():
            return None
        from importlib.util import find_spec

        spec = find_spec(name)
        loader: Any = spec and spec.loader
        step = "exec_module" if hasattr(loader, "exec_module") else "load_module"  # 3.9, in a zip
        run: Any = getattr(loader, step, None)

        def load(what: ModuleType | str) -> object:
            loaded = run(what)
            if getattr(what, "__name__", what) == name:  # some loaders load more than one
                self._log.use_loguru()
                self._log.settle()  # in order: what waits came before what they will say
            return loaded

        if run is not None:
            setattr(loader, step, load)
        return spec


def use_loguru(
    path: str | None, write_stream: Callable[[str], None], color: bool
) -> Callable[[Line], None]:
    """Make what writes a line with loguru, to a file or to a stream."""
    from loguru import logger

    shared: Any = logger
    # One of our own, made as loguru makes the one that all share: `logger.remove()` in a
    # method's file must not be the end of ours.
    own = type(shared)(
        core=type(shared._core)(), exception=None, depth=0, record=False, lazy=False,
        colors=False, raw=False, capture=True, patchers=[], extra={},
    )  # fmt: skip
    options: Any = {"level": 0, "catch": False, "diagnose": False}
    form = "<dim>{extra[time]}</dim> <level>{extra[severity]:<5}</level> {message}\n"
    if path is None:
        own.add(write_stream, colorize=color, format=lambda _: form, **options)
    else:
        own.add(
            path.replace("{", "{{").replace("}", "}}"),  # a time may stand between them
            rotation=LOG_FILE_MAX,
            retention=lambda files: remove_old(path, files),
            opener=lambda file, flags: os.open(file, flags | os.O_NOFOLLOW, 0o600),
            watch=True,
            encoding="utf-8",
            format=lambda _: form,
            **options,
        )
    try:
        shared.remove(0)
    except ValueError:
        pass  # the user has a way of logging already
    else:
        form_of_others = (
            "<dim>{time:YYYY-MM-DDTHH:mm:ss.SSSZ}</dim> <level>{level:<5}</level> {message}\n"
        )
        shared.add(
            lambda text: own.opt(raw=True).info(text),
            colorize=color,
            format=lambda _: form_of_others,
            **options,
        )
    names = {"WARN": "WARNING"}

    def write(line: Line) -> None:
        own.bind(time=line.time, severity=line.severity).log(
            names.get(line.severity, line.severity), line.rest
        )

    return write
