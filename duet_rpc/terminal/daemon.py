"""The daemon of `call`, `console` and `list`.

Whoever calls from a terminal is the author of the methods, so it always runs with --debug:
errors come with their text and their place. They are shown from the reply, and the daemon is
asked not to log them on the same terminal as well.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from duet_rpc import program
from duet_rpc.command_line import daemon_flags
from duet_rpc.terminal.client import Client
from duet_rpc.workers.order import MAIN

if TYPE_CHECKING:
    from typing import IO

    from duet_rpc.command_line import Options
    from duet_rpc.config.processes import WorkerSettings


def start_daemon(
    options: Options,
    level: str,
    command: str = "rpc",
    stderr: IO[bytes] | None = None,
    worker: WorkerSettings | None = None,
) -> Client:
    """Start a daemon, a gateway or one worker, that logs from a level on."""
    flags = daemon_flags(options, level, methods=worker is None)
    if not options.debug:
        flags.append("--debug")
    environ = dict(os.environ)
    # With a level of their own a person wants to see the whole log.
    if command == "rpc" and options.log_level is None:
        environ[program.CALLER] = "terminal"
    words = program.daemon_command(flags, command)
    if worker is None:
        return Client(words, stderr, environ)
    environ.update(worker.env)
    if worker.name == MAIN:
        return Client(words, stderr, environ, worker.cwd)
    # It imports much, and most calls are of methods without packages.
    from duet_rpc.workers.start import find_start

    start = find_start(words, environ)
    try:
        return Client(start.command, stderr, start.environ, worker.cwd, start.descriptors)
    finally:
        start.close()


def last_line(log: IO[bytes]) -> str:
    """Return the last line of what a daemon wrote to stderr."""
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").strip().splitlines()
    return str(lines[-1]) if lines else ""
