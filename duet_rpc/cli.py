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
from duet_rpc.program import CALLER, WORKER, daemon_command, program_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from duet_rpc.command_line import Arguments, Options
    from duet_rpc.config.files import Config
    from duet_rpc.gateway.router import Router
    from duet_rpc.jsonrpc.framing import Framing
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
    elif command in ("mcp", "gateway"):
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
    return find_command_for_person(command)(arguments)


def find_command_for_person(command: str | None) -> Callable[[Arguments], int]:
    """Import and return the function that runs a command for a person."""
    if command == "call":
        from duet_rpc.terminal.call import call as run_command
    elif command == "console":
        from duet_rpc.terminal.console import console as run_command
    elif command == "new":
        from duet_rpc.terminal.new import new as run_command
    elif command == "list":
        from duet_rpc.terminal.list import list_methods as run_command
    elif command == "doctor":
        from duet_rpc.terminal.doctor import doctor as run_command
    elif command == "gateway":
        from duet_rpc.terminal.check import check as run_command
    elif command == "env":
        from duet_rpc.terminal.env import env as run_command
    elif command == "config":
        from duet_rpc.terminal.config import show_config as run_command
    else:
        from duet_rpc.terminal.trust import run_trust as run_command
    return run_command


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


def heed_caller(log: Log, passes_on: bool = False) -> None:
    """Leave refusals out of the log where whoever started this server shows them there itself.

    A router passes that on to its workers, whose log is part of its own.
    """
    log.logs_refusals = CALLER not in os.environ or log.sink != "stderr"
    if log.logs_refusals or not passes_on:
        os.environ.pop(CALLER, None)


def explain_waiting(descriptors: tuple[int, int], command: str, options: Options) -> None:
    """Tell a person who started a server at a terminal what it waits for."""
    if os.isatty(descriptors[0]):
        from duet_rpc.terminal.output import print_stderr

        program = program_name()
        framing = options.framing or ("lines" if command == "mcp" else "content-length")
        server = f"{command} --gateway" if options.gateway else command
        people = f"`{program} call METHOD` and `{program} console`"
        print_stderr(
            f"{program} {server}: waiting for JSON-RPC 2.0 requests on stdin "
            f"(framing: {framing}); Ctrl-D ends it. For people: {people}."
        )


# The daemon.


def run_server(arguments: Arguments) -> None:
    """Serve on stdin and stdout; does not return."""
    descriptors = take_over()
    if WORKER in os.environ:
        run_worker(arguments, descriptors)
        return

    from duet_rpc.server.user_methods import Handover

    command, options = arguments.command or "rpc", arguments.options
    config = load_config()
    sources = [*options.methods, *config.methods]
    handover = Handover()
    has_servers = config.workers or (config.backends if command == "rpc" else {})
    if has_servers or handover.has_any(sources, config.methods_folder):
        run_router(arguments, descriptors, config, with_backends=command == "rpc")
        return

    from duet_rpc.server.serve import serve

    if config.python is not None:
        from duet_rpc.environments.methods_python import use_python

        use_python(config, descriptors)
    explain_waiting(descriptors, command, options)
    log = open_log(options, config)
    heed_caller(log)
    serve(
        descriptors,
        log,
        find_handler(command, options),
        sources,
        config.methods_folder,
        framing=framing_of(command, options),
        batch=options.batch,
        debug=options.debug or config.debug,
        handover=handover,
    )


def run_worker(arguments: Arguments, descriptors: tuple[int, int]) -> None:
    """Serve the methods that whoever started this process has named; does not return."""
    from duet_rpc.config.files import Config
    from duet_rpc.jsonrpc.framing import CONTENT_LENGTH
    from duet_rpc.methods.scripts import Scripts
    from duet_rpc.server.serve import serve
    from duet_rpc.server.worker import WorkerHandler, WorkerRole
    from duet_rpc.workers.order import MAIN, limit_memory, prepare, take_order

    command, options = arguments.command or "rpc", arguments.options
    order = take_order()
    framing = framing_of(command, options)
    if not order.is_prepared:
        prepare(order, framing or CONTENT_LENGTH, descriptors)
    if order.memory is not None:
        limit_memory(order.memory)
    log = open_log(options, Config())
    log.logs_lifecycle = False
    heed_caller(log)
    scripts, others = Scripts(), {*order.others}
    # Files of others are in its folder and, where it has one, it has all that nobody else has.
    is_elsewhere = (
        (lambda source: source in others or scripts.is_script(source))
        if order.name == MAIN
        else (lambda _source: False)
    )
    serve(
        descriptors,
        log,
        find_handler(command, options, order.name == MAIN) if command == "mcp" else WorkerHandler,
        order.methods,
        order.folder,
        framing=framing,
        debug=options.debug,
        worker=WorkerRole(is_elsewhere),
    )


def framing_of(command: str, options: Options) -> Framing | None:
    """Return the framing of a command; None where it is guessed."""
    from duet_rpc.jsonrpc.framing import FRAMINGS

    return FRAMINGS.get(options.framing or ("lines" if command == "mcp" else "content-length"))


# The router.


def run_gateway(arguments: Arguments) -> None:
    """Serve with other servers behind; does not return."""
    run_router(arguments, take_over(), load_config(), with_backends=True)


def run_router(
    arguments: Arguments, descriptors: tuple[int, int], config: Config, with_backends: bool
) -> None:
    """Serve the user's methods, each in its worker, and the backends; does not return."""
    from duet_rpc.gateway.gateway import Gateway
    from duet_rpc.gateway.runtime import Setup, Times
    from duet_rpc.gateway.serve import serve
    from duet_rpc.server.handover import take_passed
    from duet_rpc.workers.plan import Plan

    command, options = arguments.command or "rpc", arguments.options
    kind: Callable[[Setup], Router] = Gateway
    if command == "mcp":
        from duet_rpc.gateway.mcp import McpGateway

        kind = McpGateway
    explain_waiting(descriptors, command, options)
    passed = take_passed()
    if passed is not None:
        options.log_level = passed.level
    log = open_log(options, config)
    heed_caller(log, passes_on=True)
    options.debug |= config.debug
    plan = Plan(
        daemon_command(
            daemon_flags(options, log.level_name, methods=False), worker_command(command)
        ),
        [*options.methods, *config.methods],
        config.methods_folder,
        config.workers,
        config.python,
        config.origins.get("methods.python", ""),
        needs_main=options.emacs,
    )
    backends = [
        each
        for each in config.backends.values()
        if with_backends and (command != "mcp" or each.dialect == "mcp")
    ]
    framing = framing_of(command, options)
    setup = Setup(descriptors, framing, options.batch, passed, backends, plan, log, Times())
    serve(setup, kind)


def worker_command(command: str) -> str:
    """Return the command of the workers behind a router."""
    return "mcp" if command == "mcp" else "rpc"


def find_handler(
    command: str | None, options: Options, lisp_tools: bool = True
) -> Callable[[Server], Handler]:
    """Import and return what makes the handler that answers the requests of a command."""
    if command == "mcp":
        from duet_rpc.mcp.handler import McpHandler

        if not options.emacs:
            return lambda server: McpHandler(server, None, None)
        from duet_rpc.mcp.emacs import EmacsServer
        from duet_rpc.mcp.lisp_tools import LispTools

        emacs = EmacsServer(options.server_name)
        tools = LispTools(emacs) if lisp_tools else None
        return lambda server: McpHandler(server, emacs, tools)
    from duet_rpc.server.rpc import RpcHandler

    return RpcHandler


def take_over() -> tuple[int, int]:
    """Take signals and descriptors 0 and 1, before anything large is imported."""
    from duet_rpc.server.stdio import claim

    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        # Nothing has been read yet, so a signal that comes before the server can handle it
        # just ends the process.
        signal.signal(number, lambda *_: os._exit(0))
    # A daemon that becomes the router has blocked them until here.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP, signal.SIGINT, signal.SIGTERM))
    return claim()
