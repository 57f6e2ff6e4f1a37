"""The program: parse the command line and run the command it names.

The daemon starts through this file, so it imports little at the top. Each command imports
its own part of the program when it is run; what is for people lives in `terminal`.
"""

from __future__ import annotations

import os
import signal
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING

from duet_rpc import __version__
from duet_rpc.command_line import UsageError, daemon_flags, parse, usage
from duet_rpc.config.files import ConfigError, load_config
from duet_rpc.program import daemon_command, program_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from duet_rpc.command_line import Arguments, Options
    from duet_rpc.config.files import Config
    from duet_rpc.log import Log
    from duet_rpc.server.loop import Handler, Server


def main() -> NoReturn:
    """Run the program and exit; no traceback reaches a person."""
    try:
        if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
            # The launcher of the .pyz sets it, so that Ctrl-C during the imports is quiet.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = run(parse(sys.argv[1:]))
        if sys.stdout is not None:
            sys.stdout.flush()
    except UsageError as error:
        print_error(f"{error}\n{usage(error.command)}")
        code = 2
    except ConfigError as error:
        print_error(str(error))
        code = 2
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # `duet-rpc --help | head -1`: the reader has what it wanted
        discard_stdout()
        code = 1
    except OSError as error:
        print_error(f"input or output failed: {error.strerror}")
        discard_stdout()
        code = 1
    sys.exit(code)


def print_error(message: str) -> None:
    """Print an error message to stderr."""
    from duet_rpc.terminal.output import print_error

    print_error(message)


def discard_stdout() -> None:
    """Send what is left in the buffer of stdout nowhere: writing it would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def run(arguments: Arguments) -> int:
    """Run a command and return its exit code; a server ends the process by itself."""
    command, options = arguments.command, arguments.options
    if options.help or options.version or options.check:
        return run_for_person(arguments)
    if command == "rpc" or (command == "mcp" and not options.gateway):
        run_server(arguments)
    elif command == "mcp":
        run_mcp_gateway(arguments)
    elif command == "gateway":
        run_gateway(arguments)
    else:
        return run_for_person(arguments)
    return 0


def run_for_person(arguments: Arguments) -> int:
    """Run a command that prints for a person and return its exit code."""
    command, options = arguments.command, arguments.options
    if isinstance(sys.stdout, TextIOWrapper):  # paths and results may be in any script
        sys.stdout.reconfigure(errors="backslashreplace")
    if options.help or (command is None and not options.version):
        from duet_rpc.terminal.help import help_text

        print(help_text(command))
        return 0
    if options.version or command == "version":
        print(__version__)
        return 0
    if command == "call":
        from duet_rpc.terminal.call import call as run_command
    elif command == "console":
        from duet_rpc.terminal.console import console as run_command
    elif command == "doctor":
        from duet_rpc.terminal.doctor import doctor as run_command
    elif command == "gateway":
        from duet_rpc.terminal.check import check as run_command
    elif command == "config":
        from duet_rpc.terminal.config import show_config as run_command
    else:
        from duet_rpc.terminal.trust import run_trust as run_command
    return run_command(arguments)


# What every server does when it starts.


def open_log(options: Options, config: Config) -> Log:
    """Open the log of a server and write the warnings about its configuration to it."""
    from duet_rpc.log import Log

    level = options.log_level or config.log_level or "info"
    refused = options.no_color or not config.color or os.environ.get("NO_COLOR")
    color = not refused and os.isatty(2) and os.environ.get("TERM") != "dumb"
    log = Log(level, os.environ.get("DUET_RPC_LOG"), color)
    for warning in config.warnings:
        log.warn(warning)
    return log


def explain_waiting(descriptors: tuple[int, int], server: str, framing: str, people: str) -> None:
    """Tell a person who started a server at a terminal what it waits for."""
    if os.isatty(descriptors[0]):
        from duet_rpc.terminal.output import print_stderr

        print_stderr(
            f"{program_name()} {server}: waiting for JSON-RPC 2.0 requests on stdin "
            f"(framing: {framing}); Ctrl-D ends it. For people: {people}."
        )


# The gateway.


def run_gateway(arguments: Arguments) -> None:
    """Serve JSON-RPC on stdin and stdout, with other servers behind; does not return."""
    descriptors = take_over()

    from duet_rpc.gateway.serve import serve

    config = load_config()
    program = program_name()
    people = f"`{program} call NAME/METHOD` and `{program} gateway --check`"
    explain_waiting(descriptors, "gateway", "content-length", people)
    serve(descriptors, open_log(arguments.options, config), config.backends.values())


def run_mcp_gateway(arguments: Arguments) -> None:
    """Serve the backends' tools and the user's methods as one MCP server; does not return."""
    descriptors = take_over()

    from duet_rpc.config.settings import BackendSettings
    from duet_rpc.gateway.mcp import McpGateway
    from duet_rpc.gateway.serve import serve
    from duet_rpc.gateway.tools import OWN
    from duet_rpc.methods.sources import any_source

    options = arguments.options
    config = load_config()
    backends = [each for each in config.backends.values() if each.dialect == "mcp"]
    if any_source([*options.methods, *config.methods], config.methods_folder):
        own = BackendSettings(OWN)
        # From `warn` on: its start-up line says nothing that the gateway's does not.
        level = options.log_level or config.log_level or "warn"
        own.command = daemon_command(daemon_flags(options, level), "mcp")
        own.dialect, own.framing = "mcp", "lines"
        backends.insert(0, own)
    program = program_name()
    people = f"`{program} call NAME__TOOL` and `{program} gateway --check`"
    explain_waiting(descriptors, "mcp --gateway", "lines", people)
    serve(descriptors, open_log(options, config), backends, kind=McpGateway)


# The daemon.


def run_server(arguments: Arguments) -> None:
    """Serve on stdin and stdout; does not return."""
    descriptors = take_over()

    from duet_rpc.jsonrpc.framing import FRAMINGS
    from duet_rpc.server.loop import serve

    command, options = arguments.command or "rpc", arguments.options
    config = load_config()
    framing = options.framing or ("lines" if command == "mcp" else "content-length")
    program = program_name()
    people = f"`{program} call METHOD` and `{program} console`"
    explain_waiting(descriptors, command, framing, people)
    serve(
        descriptors,
        open_log(options, config),
        find_handler(command),
        [*options.methods, *config.methods],
        config.methods_folder,
        framing=FRAMINGS.get(framing),
        batch=options.batch,
    )


def find_handler(command: str | None) -> Callable[[Server], Handler]:
    """Import and return the class that answers the requests of a command."""
    if command == "mcp":
        from duet_rpc.mcp.handler import McpHandler

        return McpHandler
    from duet_rpc.server.rpc import RpcHandler

    return RpcHandler


def take_over() -> tuple[int, int]:
    """Take signals and descriptors 0 and 1, before anything large is imported."""
    from duet_rpc.server.stdio import claim

    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        # Nothing has been read yet, so a signal that comes before the server can handle it
        # just ends the process.
        signal.signal(number, lambda *_: os._exit(0))
    return claim()
