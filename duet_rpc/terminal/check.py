"""`duet-rpc gateway --check`: start each backend, send it one request, print a table.

The backends run behind a gateway of this command's own. The request depends on the dialect:
the handshake with a language server or an MCP server returns its name and version; a plain
server need only answer, if with an error.
"""

from __future__ import annotations

import sys
from time import monotonic
from typing import TYPE_CHECKING

from duet_rpc import program
from duet_rpc.command_line import daemon_flags
from duet_rpc.config.files import load_config
from duet_rpc.jsonrpc.errors import REQUEST_FAILED
from duet_rpc.jsonrpc.messages import Failure, Request, Success
from duet_rpc.log import escape
from duet_rpc.terminal.client import Client, DaemonError
from duet_rpc.terminal.output import paint, print_error, wants_color
from duet_rpc.terminal.request import exit_on_signals

if TYPE_CHECKING:
    from duet_rpc.command_line import Arguments
    from duet_rpc.config.processes import BackendSettings

TIMEOUT = 30.0
"""Seconds for all backends together: some download themselves at their first start."""

REQUESTS: dict[str, tuple[str, dict[str, object] | None]] = {
    "plain": ("rpc.discover", None),
    "lsp": ("initialize", {"processId": None, "rootUri": None, "capabilities": {}}),
    "mcp": ("initialize", None),
}

TEXT_MAX = 200
STDERR_LINES = 5
"""Last lines of a backend's stderr that are shown."""


class Row:
    """The result of checking one backend."""

    def __init__(self, settings: BackendSettings) -> None:
        self.settings = settings
        self.good = False
        self.seconds = 0.0
        self.detail = (
            f"no answer within {TIMEOUT:g} s; is it a server "
            f"of dialect {settings.dialect} and framing {settings.framing}?"
        )
        self.stderr: list[str] = []


def check(arguments: Arguments) -> int:
    """Check every backend and print a table; return 1 where one does not work."""
    options = arguments.options
    config = load_config()
    for warning in config.warnings:
        print_error(warning)
    if not config.backends:
        print("no backends are configured; add [backends.NAME] to a configuration file")
        return 1 if config.warnings else 0
    rows = {name: Row(settings) for name, settings in config.backends.items()}
    # From `error` on: what the gateway would log about a backend is in the table.
    flags = daemon_flags(options, options.log_level or config.log_level or "error")
    exit_on_signals()
    try:
        with Client(program.daemon_command(flags, "gateway")) as client:
            check_backends(client, rows)
    except DaemonError as error:
        print_error(str(error), wants_color(sys.stderr, options.no_color))
        return 1
    print_table(rows, wants_color(sys.stdout, options.no_color))
    return 0 if all(row.good for row in rows.values()) else 1


def print_table(rows: dict[str, Row], color: bool) -> None:
    """Print a line for each backend, and the end of the stderr of one that does not work."""
    width = max(map(len, rows))
    for name, row in rows.items():
        mark = paint("✓", "good", color) if row.good else paint("✗", "bad", color)
        if not str(getattr(sys.stdout, "encoding", "")).lower().startswith("utf"):
            mark = "ok" if row.good else "X "
        how = f"{row.settings.dialect}, {row.settings.framing}"
        time = f"{row.seconds * 1000:.0f} ms"
        detail = escape(row.detail, TEXT_MAX)
        print(f"{mark} {name:<{width}}  {how:<22} {time:>8}  {detail}")
        for line in row.stderr:
            print(f"  {'':<{width}}  {escape(line, TEXT_MAX)}")


def check_backends(client: Client, rows: dict[str, Row]) -> None:
    """Send a request to every backend at once and fill the rows as the replies come."""
    start = monotonic()
    pending: dict[object, tuple[str, str]] = {}
    for name, row in rows.items():
        method, params = REQUESTS[row.settings.dialect]
        pending[client.send(f"{name}/{method}", params)] = (name, row.settings.dialect)
    while pending:
        left = start + TIMEOUT - monotonic()
        message = client.receive(left) if left > 0 else None
        if message is None:
            break
        if isinstance(message, Request):
            client.refuse(message)
        if not isinstance(message, (Success, Failure)) or message.id not in pending:
            continue
        name, kind = pending.pop(message.id)
        row = rows[name]
        row.seconds = monotonic() - start
        row.good = read_reply(row, kind, message)
        if kind == "mcp" and row.good:
            pending[client.send(f"{name}/tools/list")] = (name, "tools")
    for name, _ in pending.values():
        log = client.call("gateway/log", {"backend": name})
        lines = log["lines"] if isinstance(log, dict) else []
        rows[name].stderr = [str(line) for line in lines][-STDERR_LINES:]


def read_reply(row: Row, kind: str, reply: Success | Failure) -> bool:
    """Put a reply into the row of its backend; return whether the backend works."""
    error = reply.error if isinstance(reply, Failure) else None
    result = reply.result if isinstance(reply, Success) else None
    if error is not None and error.code == REQUEST_FAILED:
        row.detail = error.message.partition(f"backend {row.settings.name}: ")[2] or error.message
        data = error.data if isinstance(error.data, dict) else {}
        row.stderr = str(data.get("stderr") or "").splitlines()[-STDERR_LINES:]
        return False
    if kind == "tools":
        tools = result.get("tools") if isinstance(result, dict) else None
        if isinstance(tools, list):
            more = " and more" if isinstance(result, dict) and result.get("nextCursor") else ""
            row.detail += f", {len(tools)} tools{more}"
        return True
    if kind == "plain":
        row.detail = "answers"
        return True
    if error is not None:
        row.detail = f"refused the handshake: {error.message}"
        return False
    info = result.get("serverInfo") if isinstance(result, dict) else None
    info = info if isinstance(info, dict) else {}
    row.detail = f"{info.get('name', 'unnamed server')} {info.get('version', '')}".strip()
    if isinstance(result, dict) and kind == "mcp":
        row.detail += f", MCP {result.get('protocolVersion')}"
    return True
