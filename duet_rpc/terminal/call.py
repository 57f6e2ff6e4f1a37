"""`duet-rpc call`: one call in a new daemon, its result on stdout."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from duet_rpc.command_line import UsageError
from duet_rpc.config.files import load_config
from duet_rpc.environments.methods_python import use_python
from duet_rpc.jsonrpc.errors import RpcError
from duet_rpc.program import WORKER
from duet_rpc.terminal.client import Client, DaemonError
from duet_rpc.terminal.daemon import start_daemon
from duet_rpc.terminal.output import print_error, print_stderr, wants_color
from duet_rpc.terminal.params import ArgumentError, check_text, parse_params, read_stdin
from duet_rpc.terminal.request import Abandoned, Cancelled, exit_on_signals, run
from duet_rpc.terminal.results import write_result
from duet_rpc.terminal.stream import STREAMED
from duet_rpc.terminal.worker import config_of, find_worker
from duet_rpc.workers.order import MAIN, take_order

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from duet_rpc.command_line import Arguments, Options
    from duet_rpc.config.files import Config
    from duet_rpc.terminal.client import Params


def call(arguments: Arguments) -> int:
    """Make the call that the command line asks for; return the exit code."""
    options = arguments.options
    config = load_config()
    method, *words = arguments.operands
    try:
        check_text(method)
        params = parse_params(words, None if options.pdb else read_stdin)
    except ArgumentError as error:
        raise UsageError(str(error), "call") from None
    if WORKER in os.environ:  # this is the Python of the worker that has the method
        config = config_of(take_order())
    worker = find_worker(method, options, config)
    if worker is None or worker.name == MAIN:
        use_python(config)
    if options.pdb:
        from duet_rpc.terminal.debugger import debug, use_worker

        if worker is not None:
            use_worker(worker)
        return debug(method, words, params, options, config)
    level = options.log_level or config.log_level or "warn"
    server = "gateway" if is_for_gateway(method, config.backends) else "rpc"
    exit_on_signals()
    try:
        with start_daemon(options, level, server, worker=worker) as client:
            client.asks = server == "rpc"
            client.tracebacks = options.debug or config.debug
            return _call(client, method, words, params, options, config)
    except DaemonError as error:
        print_error(str(error), wants_color(sys.stderr, options.no_color))
        return 1
    except Abandoned:
        return 130


def _call(
    client: Client,
    method: str,
    words: Sequence[str],
    params: Params,
    options: Options,
    config: Config,
) -> int:
    """Print the result of a method, or its error; return the exit code."""
    try:
        result = run(client, method, params, wants_color(sys.stdout, options.no_color))
    except Cancelled:
        print_error("cancelled")
        return 130
    except RpcError as error:
        from duet_rpc.terminal.explain import explain

        color = wants_color(sys.stderr, options.no_color)
        lines = explain(error, method, words, client, color, config.backends, client.tracebacks)
        client.close()  # the daemon's log comes before the error
        print_stderr("\n".join(lines))
        return 1
    if result is not STREAMED:
        write_result(result, wants_color(sys.stdout, options.no_color))
    is_tool = method.endswith("tools/call") or method.split("__")[0] in config.backends
    if is_tool and isinstance(result, dict) and result.get("isError") is True:
        print_error("the tool reports an error")
        return 1
    return 0


def is_for_gateway(method: str, backends: Collection[str]) -> bool:
    """Return whether a method belongs to the gateway or to a backend, by its name."""
    if method.startswith(("gateway/", "tools/")):
        return True
    return method.split("/")[0].split("__")[0] in backends and method not in backends
