"""`duet-rpc call`: one call in a fresh daemon, its result on stdout."""

from __future__ import annotations

import sys

from duet_rpc.jsonrpc.errors import RpcError
from duet_rpc.terminal import client as clients
from duet_rpc.terminal.arguments import check_text, read_arguments, stdin_bytes
from duet_rpc.terminal.client import Client, DaemonError
from duet_rpc.terminal.pretty import paint, say, wants_color, write_json
from duet_rpc.terminal.request import Abandoned, Cancelled, leave_on_signals, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from duet_rpc.terminal.client import Params


def call(
    words: Sequence[str],
    flags: Sequence[str],
    no_color: bool,
    command: str = "rpc",
    backends: Collection[str] = (),
) -> int:
    """Make the call that the words ask for; return the exit code."""
    check_text(words[0])
    params = read_arguments(words[1:], stdin_bytes)
    leave_on_signals()
    try:
        with Client(clients.daemon_command(flags, command)) as client:
            return _call(client, words, params, no_color, backends)
    except DaemonError as error:
        say(f"{paint('duet-rpc:', 'bad', wants_color(sys.stderr, no_color))} {error}")
        return 1
    except Abandoned:
        return 130


def _call(
    client: Client,
    words: Sequence[str],
    params: Params,
    no_color: bool,
    backends: Collection[str],
) -> int:
    method, *arguments = words
    try:
        result = run(client, method, params)
    except Cancelled:
        say("duet-rpc: cancelled")
        return 130
    except RpcError as error:
        from duet_rpc.terminal.explain import explain

        color = wants_color(sys.stderr, no_color)
        lines = explain(error, method, arguments, client, color, backends)
        client.close()  # what the daemon logs comes before what we say
        say("\n".join(lines))
        return 1
    write_json(result, wants_color(sys.stdout, no_color))
    is_tool = method.endswith("tools/call") or method.split("__")[0] in backends
    if is_tool and isinstance(result, dict) and result.get("isError") is True:
        say("duet-rpc: the tool says that it failed")
        return 1
    return 0
