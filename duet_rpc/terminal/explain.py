"""Error replies, written for the person who made the call.

The daemon's error says what is wrong; from its lists comes what would be right.
"""

from __future__ import annotations

import difflib
import json

from duet_rpc.client import DaemonError
from duet_rpc.log import escape
from duet_rpc.protocol.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from duet_rpc.terminal.pretty import paint, pretty

TYPE_CHECKING = False
if TYPE_CHECKING:
    from duet_rpc.client import Client, Params

TEXT_MAX = 2000
HINT_SECONDS = 2.0
ROWS = ("param", "expected", "received", "accepted")


def explain(error: RpcError, method: str, params: Params, client: Client, color: bool) -> list[str]:
    """Write an error as lines: the message first, then what helps."""
    head = escape(error.message, TEXT_MAX) or "the method failed"
    lines = [f"{paint('duet-rpc:', 'bad', color)} {head} ({error.code})"]
    if error.code == METHOD_NOT_FOUND:
        lines += suggest(method, client)
    elif error.code == INVALID_PARAMS and isinstance(error.data, dict):
        lines += explain_params(error.data, method, params, client)
    elif error.data is not None:
        lines += ["  " + line for line in pretty(error.data, color).splitlines()]
    elif error.code == INTERNAL_ERROR:
        lines.append("  the log says why: it is on stderr, or in the file that DUET_RPC_LOG names")
    return lines


def suggest(method: str, client: Client) -> list[str]:
    """Name the methods that were probably meant."""
    names = [str(entry["name"]) for entry in ask(client, "listMethods")]
    lower = {name.lower(): name for name in names}
    nearest = difflib.get_close_matches(method.lower(), lower, 3)
    if nearest:
        return [f"  did you mean {' or '.join(lower[name] for name in nearest)}?"]
    return [f"  there are: {escape(', '.join(names), TEXT_MAX)}"] if names else []


def explain_params(
    data: dict[str, object], method: str, params: Params, client: Client
) -> list[str]:
    """Say which parameter is wrong, and what the method takes."""
    rows = {name: data[name] for name in ROWS if name in data}
    rows.update((name, value) for name, value in data.items() if name not in rows)
    for description in ask(client, "describeMethods"):
        if description["name"] == method:
            rows["signature"] = signature(description)
    lines = [f"  {name + ':':<11}{show(value)}" for name, value in rows.items()]
    name = data.get("param")
    if isinstance(params, dict) and isinstance(name, str) and name in params:
        value = params[name]
        if str(data.get("expected")).startswith("string") and not isinstance(value, str):
            import shlex

            quoted = shlex.quote(f"{name}={json.dumps(json.dumps(value))}")
            lines.append(f"  for the text of these characters write {escape(quoted, 200)}")
    return lines


def show(value: object) -> str:
    """Write a value of an error's data in one line."""
    if isinstance(value, list):
        return ", ".join(show(each) for each in value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return escape(text, TEXT_MAX)


def signature(description: dict[str, object]) -> str:
    """Write an entry of describeMethods as Python would."""
    params = description.get("params")
    names = ", ".join(str(each) for each in params) if isinstance(params, list) else ""
    return f"{description['name']}({names}) -> {description.get('returns', 'any')}"


def ask(client: Client, method: str) -> list[dict[str, object]]:
    """Fetch a list of methods; an empty one where the daemon has no answer left."""
    try:
        entries = client.call(method, seconds=HINT_SECONDS)
    except (DaemonError, RpcError):
        return []
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, dict) and "name" in entry]
