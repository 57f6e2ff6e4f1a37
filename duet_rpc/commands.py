"""What the words on the command line ask for, beside a daemon: the gateway, and all for people."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

from duet_rpc import __version__
from duet_rpc.cli import (
    COMMANDS,
    USAGE,
    UsageError,
    Words,
    complain,
    load_config,
    open_log,
    take_over,
    working_directory,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from duet_rpc.config.files import Config

OPTIONS = {
    "--methods SOURCE": "load methods from a Python file or module; may be given again",
    "--log-level LEVEL": "debug, info, warn or error",
    "--framing FRAMING": "rpc: content-length (the default), length-prefixed, lines or auto",
    "--batch": "rpc: take arrays of requests, as JSON-RPC 2.0 has them",
    "--gateway": "mcp: with the tools of the configuration's [backends] beside the methods",
    "--check": "gateway: start each backend, say how it is, and stop",
    "--no-color": "no colour in what a terminal shows",
    "--json": "doctor: write for programs",
    "--yes": "trust: do not ask",
    "--version": "print the version",
    "-h, --help": "print this help",
}

VARIABLES = {
    "DUET_RPC_LOG": "log to this file instead of stderr",
    "DUET_RPC_CONFIG": "read this configuration file and no other",
    "NO_COLOR": "no colour, where not empty",
}


def run_command(words: Words) -> int:
    """Do what the words ask for; a server does not return from here."""
    command = words.command
    if command == "mcp":
        run_mcp_gateway(words)  # from where nothing comes back
    if command == "gateway" and not words.check:
        run_gateway(words)  # nor from here
    if isinstance(sys.stdout, TextIOWrapper):  # paths and texts may be in any script
        sys.stdout.reconfigure(errors="backslashreplace")
    if command in ("call", "console", "doctor", "gateway"):
        return run_for_people(words)
    if command in ("config", "trust", "untrust"):
        return run_settings(words)
    print(__version__ if command == "version" else help_text())
    return 0


def help_text() -> str:
    """Write the help from the tables."""
    lines = [
        "duet-rpc lets you write an Emacs command in Python.",
        "",
        USAGE,
    ]
    for title, table in (
        ("commands", COMMANDS),
        ("options (before or after the command)", OPTIONS),
        ("environment", VARIABLES),
    ):
        lines += ["", f"{title}:"]
        lines += [f"  {name:<20} {what}" for name, what in table.items()]
    return "\n".join(lines)


def run_gateway(words: Words) -> None:
    """Serve on stdin and stdout, with other servers behind."""
    descriptors = take_over()

    from duet_rpc.gateway.serve import serve

    config = load_config()
    serve(descriptors, open_log(words, config), config.backends.values())


def run_mcp_gateway(words: Words) -> None:
    """Serve the backends' tools and the user's methods as one MCP server."""
    descriptors = take_over()

    from duet_rpc.config.settings import BackendSettings
    from duet_rpc.gateway.mcp import McpGateway
    from duet_rpc.gateway.serve import serve
    from duet_rpc.gateway.tools import OWN
    from duet_rpc.methods.sources import any_source
    from duet_rpc.terminal.client import daemon_command

    config = load_config()
    backends = [each for each in config.backends.values() if each.dialect == "mcp"]
    if any_source([*words.methods, *config.methods], config.methods_folder):
        own = BackendSettings(OWN)
        level = words.log_level or config.log_level or "warn"  # its start is no news
        own.command = daemon_command(daemon_flags(words, level), "mcp")
        own.dialect, own.framing = "mcp", "lines"
        backends.insert(0, own)
    serve(descriptors, open_log(words, config), backends, kind=McpGateway)


def run_for_people(words: Words) -> int:
    """Run what talks to a daemon of its own, and to a person."""
    if words.command == "doctor":
        from duet_rpc.terminal.doctor import doctor

        return doctor(daemon_flags(words, words.log_level or "warn"), words.json, words.no_color)
    config = load_config()
    flags = daemon_flags(words, words.log_level or config.log_level or "warn")
    if words.command == "gateway":
        from duet_rpc.terminal.check import check

        # What it has to say of the backends is in the table.
        flags = daemon_flags(words, words.log_level or config.log_level or "error")
        return check(config, flags, words.no_color)
    if words.command == "console":
        from duet_rpc.terminal.console import console

        return console(flags, words.no_color)
    from duet_rpc.terminal.arguments import ArgumentError
    from duet_rpc.terminal.call import call

    command = "gateway" if is_for_gateway(words.arguments[0], config) else "rpc"
    try:
        return call(words.arguments, flags, words.no_color, command, config.backends)
    except ArgumentError as error:
        raise UsageError(str(error)) from None


def is_for_gateway(method: str, config: Config) -> bool:
    """Tell a method of the gateway, or of what is behind it, by its name."""
    if method.startswith(("gateway/", "tools/")):
        return True
    return method.split("/")[0].split("__")[0] in config.backends and method not in config.backends


def daemon_flags(words: Words, level: str) -> list[str]:
    """Return the options that a daemon of our own is started with."""
    methods = [word for source in words.methods for word in ("--methods", source)]
    return ["--log-level", level, *(["--no-color"] if words.no_color else []), *methods]


def run_settings(words: Words) -> int:
    """Run what shows or changes the settings."""
    from duet_rpc.config.files import PROJECT_FILE, ConfigError, find_project_file
    from duet_rpc.config.trust import NoRecord, trust, untrust

    if words.command == "config":
        show_config(words)
        return 0
    try:
        path = find_project_file(working_directory())
        if path is None:
            complain(f"no {PROJECT_FILE} here or in a folder above")
            return 1
        if words.command == "untrust":
            return untrust(path, os.environ)
        return trust(path, words.yes, os.environ)
    except ConfigError as error:
        complain(str(error))
        return 2
    except NoRecord as error:
        complain(f"nothing has changed: {error}")
        return 1


def show_config(words: Words) -> None:
    """Print each setting with its value and its origin."""
    from duet_rpc.log import MESSAGE_MAX, escape

    config = load_config()
    sink = os.environ.get("DUET_RPC_LOG")
    level = words.log_level or config.log_level or "info for servers, warn for the rest"
    colorless = "--no-color" if words.no_color else "NO_COLOR" if os.environ.get("NO_COLOR") else ""
    rows = [
        ("log.level", level, "--log-level" if words.log_level else ""),
        ("log.color", "false" if colorless else str(config.color).lower(), colorless),
        ("log.file", sink or "stderr", "DUET_RPC_LOG" if sink else ""),
        ("methods.load", ", ".join(config.methods) or "nothing", ""),
        ("methods folder", config.methods_folder or "none", ""),
    ]
    rows += [(f"backends.{name}", str(each), "") for name, each in config.backends.items()]
    for key, value, origin in rows:
        origin = origin or config.origins.get(key, "default")
        print(escape(f"{key:<15} {value}  ({origin})", MESSAGE_MAX))
    for warning in config.warnings:
        print(f"! {warning}")
