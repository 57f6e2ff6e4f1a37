"""`duet-rpc gateway --check`: each backend started and spoken to once, in a table.

A gateway of our own does it. What is asked depends on the dialect: the handshake of a
language server or an MCP server says who it is; a plain server need only answer, and
that it does not know the method is an answer too.
"""

from __future__ import annotations

import sys
from time import monotonic

from duet_rpc.jsonrpc.errors import REQUEST_FAILED
from duet_rpc.log import escape
from duet_rpc.terminal import client as clients
from duet_rpc.terminal.client import Client, DaemonError, Reply
from duet_rpc.terminal.pretty import paint, say, wants_color
from duet_rpc.terminal.request import leave_on_signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from duet_rpc.config.files import Config
    from duet_rpc.config.settings import BackendSettings

PATIENCE = 30.0
"""Seconds for all backends together: the first start of some means a download."""

QUESTIONS: dict[str, tuple[str, dict[str, object] | None]] = {
    "plain": ("rpc.discover", None),
    "lsp": ("initialize", {"processId": None, "rootUri": None, "capabilities": {}}),
    "mcp": ("initialize", None),
}

TEXT_MAX = 200
TAIL = 5
"""Lines of a backend's stderr that are shown."""


class Row:
    """What was found of one backend."""

    def __init__(self, settings: BackendSettings) -> None:
        self.settings = settings
        self.good = False
        self.seconds = 0.0
        self.detail = (
            f"no answer within {PATIENCE:g} s; is it a server, "
            f"of dialect {settings.dialect} and framing {settings.framing}?"
        )
        self.tail: list[str] = []


def check(config: Config, flags: Sequence[str], no_color: bool) -> int:
    """Start every backend and say how it is; return 1 where one is not well."""
    color = wants_color(sys.stdout, no_color)
    for warning in config.warnings:
        say(f"duet-rpc: {warning}")
    if not config.backends:
        print("there are no backends: name one in [backends.NAME] of a configuration file")
        return 1 if config.warnings else 0
    rows = {name: Row(settings) for name, settings in config.backends.items()}
    leave_on_signals()
    try:
        with Client(clients.daemon_command(flags, "gateway")) as client:
            ask(client, rows)
    except DaemonError as error:
        say(f"{paint('duet-rpc:', 'bad', wants_color(sys.stderr, no_color))} {error}")
        return 1
    width = max(map(len, rows))
    for name, row in rows.items():
        mark = paint("✓", "good", color) if row.good else paint("✗", "bad", color)
        if not str(getattr(sys.stdout, "encoding", "")).lower().startswith("utf"):
            mark = "ok" if row.good else "X "
        how = f"{row.settings.dialect}, {row.settings.framing}"
        time = f"{row.seconds * 1000:.0f} ms"
        detail = escape(row.detail, TEXT_MAX)
        print(f"{mark} {name:<{width}}  {how:<22} {time:>8}  {detail}")
        for line in row.tail:
            print(f"  {'':<{width}}  {escape(line, TEXT_MAX)}")
    return 0 if all(row.good for row in rows.values()) else 1


def ask(client: Client, rows: dict[str, Row]) -> None:
    """Ask all at once, and take the answers as they come."""
    start = monotonic()
    waiting: dict[object, tuple[str, str]] = {}
    for name, row in rows.items():
        method, params = QUESTIONS[row.settings.dialect]
        waiting[client.send(f"{name}/{method}", params)] = (name, row.settings.dialect)
    while waiting:
        left = start + PATIENCE - monotonic()
        message = client.receive(left) if left > 0 else None
        if message is None:
            break
        if not isinstance(message, Reply) or message.id not in waiting:
            continue
        name, what = waiting.pop(message.id)
        row = rows[name]
        row.seconds = monotonic() - start
        row.good = take(row, what, message)
        if what == "mcp" and row.good:
            waiting[client.send(f"{name}/tools/list")] = (name, "tools")
    for name, _ in waiting.values():
        said = client.call("gateway/log", {"backend": name})
        lines = said["lines"] if isinstance(said, dict) else []
        rows[name].tail = [str(line) for line in lines][-TAIL:]


def take(row: Row, what: str, reply: Reply) -> bool:
    """Read one answer; True where the backend is well."""
    error, result = reply.error, reply.result
    if error is not None and error.code == REQUEST_FAILED:
        row.detail = error.message.partition(f"backend {row.settings.name}: ")[2] or error.message
        data = error.data if isinstance(error.data, dict) else {}
        row.tail = str(data.get("stderr") or "").splitlines()[-TAIL:]
        return False
    if what == "tools":
        tools = result.get("tools") if isinstance(result, dict) else None
        if isinstance(tools, list):
            more = " and more" if isinstance(result, dict) and result.get("nextCursor") else ""
            row.detail += f", {len(tools)} tools{more}"
        return True
    if what == "plain":
        row.detail = "answers"
        return True
    if error is not None:
        row.detail = f"it refuses the handshake: {error.message}"
        return False
    info = result.get("serverInfo") if isinstance(result, dict) else None
    info = info if isinstance(info, dict) else {}
    row.detail = f"{info.get('name', 'it does not say its name')} {info.get('version', '')}".strip()
    if isinstance(result, dict) and what == "mcp":
        row.detail += f", MCP {result.get('protocolVersion')}"
    return True
