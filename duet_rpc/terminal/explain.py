"""Error replies, written for the person who made the call.

The daemon's error says what is wrong; from its lists comes what would be right.
"""

from __future__ import annotations

import difflib
import json

from duet_rpc.jsonrpc.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from duet_rpc.log import escape
from duet_rpc.terminal.arguments import read_value
from duet_rpc.terminal.client import DaemonError
from duet_rpc.terminal.pretty import paint, pretty

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from duet_rpc.terminal.client import Client

TEXT_MAX = 2000
HINT_SECONDS = 2.0
GATEWAY = ("gateway/", "tools/")
ROWS = ("param", "expected", "received", "accepted")


def explain(
    error: RpcError,
    method: str,
    words: Sequence[str],
    client: Client,
    color: bool,
    backends: Collection[str] = (),
) -> list[str]:
    """Write an error as lines: the message first, then what helps; `words` made the params.

    A gateway is not asked for its lists: that would start every backend there is.
    """
    head = escape(error.message, TEXT_MAX) or "the method failed"
    lines = [f"{paint('duet-rpc:', 'bad', color)} {head} ({error.code})"]
    backend = backend_of(method)
    if backend in backends and backend != method:
        lines += explain_backend(error, backend, method[len(backend) :], client, color)
    elif method.startswith(GATEWAY):
        lines += show_rows(error.data) if isinstance(error.data, dict) else []
    elif error.code == METHOD_NOT_FOUND:
        lines += suggest(method, client, backends)
    elif error.code == INVALID_PARAMS and isinstance(error.data, dict):
        lines += explain_params(error.data, method, words, client)
    elif error.data is not None:
        lines += ["  " + line for line in pretty(error.data, color).splitlines()]
    elif error.code == INTERNAL_ERROR:
        lines.append("  the log says why: it is on stderr, or in the file that DUET_RPC_LOG names")
    return lines


def backend_of(method: str) -> str:
    """Return the name of the backend that a method would go to."""
    return method.split("/")[0].split("__")[0]


def explain_backend(
    error: RpcError, backend: str, rest: str, client: Client, color: bool
) -> list[str]:
    """Say more about what came from behind a gateway."""
    if rest.startswith("__") and error.code in (METHOD_NOT_FOUND, INVALID_PARAMS):
        tools = ask(client, f"{backend}/tools/list", "tools")
        if rest[2:] not in [tool["name"] for tool in tools]:
            return nearest(backend + rest, [f"{backend}__{tool['name']}" for tool in tools])
    if error.code == METHOD_NOT_FOUND:
        what = escape(rest[1:], TEXT_MAX)
        return [f"  backend {backend} has no method {what}" if what else "  which method of it?"]
    if error.data is None:
        return []
    return ["  " + line for line in pretty(error.data, color).splitlines()]


def suggest(method: str, client: Client, backends: Collection[str] = ()) -> list[str]:
    """Name the methods that were probably meant."""
    if method in backends:
        return [f"  {method} is a backend: call {method}/METHOD or {method}__TOOL"]
    backend = backend_of(method)
    lines = nearest(method, [str(entry["name"]) for entry in ask(client, "listMethods")])
    if backends and backend != method and "did you mean" not in "".join(lines):
        return [f"  there is no backend {escape(backend, TEXT_MAX)}", *nearest(backend, backends)]
    return lines


def nearest(wanted: str, names: Collection[str]) -> list[str]:
    """Say which of the names was meant, or all of them."""
    lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(wanted.lower(), lower, 3)
    if found:
        return [f"  did you mean {escape(' or '.join(lower[name] for name in found), TEXT_MAX)}?"]
    return [f"  there are: {escape(', '.join(names), TEXT_MAX)}"] if names else []


def explain_params(
    data: dict[str, object], method: str, words: Sequence[str], client: Client
) -> list[str]:
    """Say which parameter is wrong, and what the method takes."""
    rows = dict(data)
    for description in ask(client, "describeMethods"):
        if description["name"] == method:
            rows["signature"] = signature(description)
    lines = show_rows(rows)
    wants_text = str(data.get("expected")).startswith("string")
    for word in words:
        name, _, typed = word.partition("=")
        if wants_text and name == data.get("param") and not isinstance(read_value(typed), str):
            import shlex

            quoted = shlex.quote(f"{name}={json.dumps(typed, ensure_ascii=False)}")
            lines.append(f"  for the text of these characters write {escape(quoted, 200)}")
    return lines


def show_rows(data: dict[str, object]) -> list[str]:
    """Write an error's data in lines, what is wrong first."""
    rows = {name: data[name] for name in ROWS if name in data}
    return [f"  {name + ':':<11}{show(value)}" for name, value in {**rows, **data}.items()]


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


def ask(client: Client, method: str, member: str = "") -> list[dict[str, object]]:
    """Fetch a list of methods; an empty one where the daemon has no answer left."""
    try:
        entries = client.call(method, seconds=HINT_SECONDS)
        if member and isinstance(entries, dict):
            entries = entries.get(member)
    except (DaemonError, RpcError):
        return []
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, dict) and "name" in entry]
