"""Words on the command line, turned into one call.

Written by hand because `argparse` alone would double the time to the daemon's first
reply. What Emacs asks for, a server, is here; all else is in `commands`, which the daemon
does without.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import NoReturn

    from duet_rpc.config.files import Config
    from duet_rpc.log import Log
    from duet_rpc.server.loop import Handler, Server

COMMANDS = {
    "rpc": "serve JSON-RPC 2.0 on stdin and stdout; this is what Emacs starts",
    "mcp": "serve the methods as tools to an AI client, by the Model Context Protocol",
    "gateway": "serve as rpc does, with the configuration's [backends] behind it",
    "call METHOD [ARG]...": "call a method; ARG: name=value, one JSON text, or - for stdin",
    "console": "call methods at a prompt",
    "doctor": "look for what is wrong, and say how to mend it",
    "config": "show the settings in force, and where each comes from",
    "trust": "let the project's .duet-rpc.toml name code to be run",
    "untrust": "take that back",
    "version": "print the version",
}

SWITCHES = {
    "--batch": "batch",
    "--check": "check",
    "--gateway": "gateway",
    "--no-color": "no_color",
    "--json": "json",
    "--yes": "yes",
    "--help": "help",
    "-h": "help",
    "--version": "version",
}

NEEDS = {
    "--log-level": "a level: debug, info, warn or error",
    "--framing": "a framing: content-length, length-prefixed, lines or auto",
    "--methods": "a Python file or the name of a module",
}

GOES_WITH = {
    "json": ("doctor",),
    "yes": ("trust",),
    "check": ("gateway",),
    "gateway": ("mcp",),
    "framing": ("rpc",),
    "batch": ("rpc", "mcp"),
    "methods": ("rpc", "mcp", "call", "console", "doctor"),
}

FRAMING_NAMES = ("content-length", "length-prefixed", "lines", "auto")

USAGE = "usage: duet-rpc [OPTION]... COMMAND"


class UsageError(Exception):
    """The words make no sense; its text says which."""


class Words:
    """What the command line said."""

    def __init__(self, arguments: list[str]) -> None:
        self.command: str | None = None
        self.log_level: str | None = None
        self.no_color = False
        self.json = False
        self.yes = False
        self.framing: str | None = None
        self.batch = False
        self.check = False
        self.gateway = False
        self.methods: list[str] = []
        self.help = False
        self.version = False
        self.arguments: list[str] = []  # of `call`
        rest = iter(arguments)
        for word in rest:
            if word == "--" and self.command == "call":
                self.arguments += rest
            elif word.startswith("-") and len(word) > 1:
                self._read_option(word, rest)
            else:
                self._read_word(word)
        if self.help or self.version:  # whatever else was said
            self.command = None if self.help else "version"
            return
        for option, commands in GOES_WITH.items():
            if getattr(self, option) and self.command not in commands:
                raise UsageError(f"--{option} goes with {', '.join(commands)} only")
        if self.command == "call" and not self.arguments:
            raise UsageError("call needs a METHOD; `duet-rpc call listMethods` lists them")

    def _read_option(self, word: str, rest: Iterator[str]) -> None:
        name, equals, value = word.partition("=")
        if word in SWITCHES:
            setattr(self, SWITCHES[word], True)
        elif name in NEEDS:
            value = value if equals else next(rest, "")
            if not value:
                raise UsageError(f"{name} needs {NEEDS[name]}")
            if name == "--log-level":
                self.log_level = check_level(value)
            elif name == "--framing":
                self.framing = check_framing(value)
            else:
                self.methods.append(value)
        else:
            raise UsageError(f"no such option: {word}")

    def _read_word(self, word: str) -> None:
        if self.command == "call":
            self.arguments.append(word)
        elif self.command is not None:
            raise UsageError(f"one word too many: {word}")
        elif word not in [form.split()[0] for form in COMMANDS]:
            raise UsageError(f"no such command: {word}")
        else:
            self.command = word


def check_level(level: str) -> str:
    """Return a level in lower case."""
    from duet_rpc.log import LEVELS

    if level.lower() not in LEVELS:
        raise UsageError(f"no such log level: {level} (there are {', '.join(LEVELS)})")
    return level.lower()


def check_framing(name: str) -> str:
    """Return the name of a framing."""
    if name not in FRAMING_NAMES:
        raise UsageError(f"no such framing: {name} (there are {', '.join(FRAMING_NAMES)})")
    return name


def main() -> NoReturn:
    """Run the program."""
    from signal import SIG_DFL, SIGINT, default_int_handler, getsignal, signal

    try:
        if getsignal(SIGINT) == SIG_DFL:  # the launcher of the .pyz has put it off
            signal(SIGINT, default_int_handler)
        words = Words(sys.argv[1:])
        code = run(words)
        if sys.stdout is not None:
            sys.stdout.flush()
    except UsageError as error:
        complain(f"{error}\n{USAGE}\nTry `duet-rpc --help`.")
        code = 2
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        # `duet-rpc --help | head -1`: the reader has what it wanted.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 1
    except OSError as error:
        complain(f"input or output failed: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 1
    sys.exit(code)


def complain(text: str) -> None:
    """Say on stderr what is wrong."""
    from duet_rpc.terminal.pretty import say

    say(f"duet-rpc: {text}")


def run(words: Words) -> int:
    """Do what the words ask for; a server does not return from here."""
    if words.command in ("rpc", "mcp") and not words.gateway:
        run_server(words)  # from where nothing comes back
    from duet_rpc.commands import run_command

    return run_command(words)


def run_server(words: Words) -> None:
    """Serve on stdin and stdout."""
    descriptors = take_over()

    from duet_rpc.jsonrpc.framing import FRAMINGS
    from duet_rpc.server.loop import serve

    config = load_config()
    log = open_log(words, config)
    serve(
        descriptors,
        log,
        find_handler(words.command),
        [*words.methods, *config.methods],
        config.methods_folder,
        framing=FRAMINGS.get(
            words.framing or ("lines" if words.command == "mcp" else "content-length")
        ),
        batch=words.batch,
    )


def find_handler(command: str | None) -> Callable[[Server], Handler]:
    """Import what answers requests."""
    if command == "mcp":
        from duet_rpc.mcp.handler import McpHandler

        return McpHandler
    from duet_rpc.server.rpc import RpcHandler

    return RpcHandler


def take_over() -> tuple[int, int]:
    """Take signals and descriptors 0 and 1, before anything else is imported."""
    from signal import SIGHUP, SIGINT, SIGTERM, signal

    from duet_rpc.server.stdio import claim

    for number in (SIGHUP, SIGINT, SIGTERM):
        # Until the server is there to take signals nothing has been read: it just leaves.
        signal(number, lambda *_: os._exit(0))
    return claim()


def open_log(words: Words, config: Config) -> Log:
    """Make the log of a server, with what is to be said of the configuration in it."""
    from duet_rpc.log import Log

    level = words.log_level or config.log_level or "info"
    refused = words.no_color or not config.color or os.environ.get("NO_COLOR")
    color = not refused and os.isatty(2) and os.environ.get("TERM") != "dumb"
    log = Log(level, os.environ.get("DUET_RPC_LOG"), color)
    for warning in config.warnings:
        log.warn(warning)
    return log


def working_directory() -> str | None:
    """Return the working directory, or None where it was removed under us."""
    try:
        return os.getcwd()
    except OSError:
        return None


def load_config() -> Config:
    """Read the configuration files, where there are any."""
    from duet_rpc.config.files import ConfigError, load

    try:
        return load(os.environ, working_directory())
    except ConfigError as error:
        complain(str(error))
        sys.exit(2)
