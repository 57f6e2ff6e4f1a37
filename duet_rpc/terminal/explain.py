"""Error replies, explained to the person who made the call.

The error says what is wrong; the daemon's lists of methods say what would be right.
"""

from __future__ import annotations

import json
import os
import shlex
from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from duet_rpc.log import escape
from duet_rpc.methods.sources import RELOAD
from duet_rpc.suggestions import did_you_mean
from duet_rpc.terminal.client import DaemonError
from duet_rpc.terminal.output import paint
from duet_rpc.terminal.params import parse_value
from duet_rpc.terminal.pretty import pretty

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Protocol

    class Server(Protocol):
        """Where the methods are: a daemon, or this process."""

        said: list[str]

        def call(self, method: str, *, seconds: float) -> object:
            """Call a method that lists others."""


TEXT_MAX = 2000
HINT_TIMEOUT = 2.0
GATEWAY_PREFIXES = ("gateway/", "tools/")
FIRST_ROWS = ("param", "expected", "received", "accepted")


def explain(
    error: RpcError,
    method: str,
    words: Sequence[str],
    client: Server,
    color: bool,
    backends: Collection[str] = (),
    tracebacks: bool = False,
) -> list[str]:
    """Return an error as lines: its message, then help; `words` are what the params came from.

    A gateway is not asked for its lists of methods, which would start every backend.
    """
    program = paint("duet-rpc:", "bad", color)
    backend = backend_of(method)
    raised = Raised.find(error) if backend not in backends else None
    if raised is not None:
        return [f"{program} {escape(method, TEXT_MAX)}: {raised}", *raised.more(tracebacks)]
    head = escape(error.message, TEXT_MAX) or "the method failed"
    lines = [f"{program} {head} ({error.code})"]
    if backend in backends and backend != method:
        lines += explain_backend(error, backend, method[len(backend) :], client, color)
    elif method.startswith(GATEWAY_PREFIXES):
        lines += show_rows(error.data) if isinstance(error.data, dict) else []
    elif error.code == METHOD_NOT_FOUND:
        lines += suggest(method, client, backends)
        lines += show_problems(error.data, client.said)
    elif error.code == INVALID_PARAMS and isinstance(error.data, dict):
        lines += explain_params(error.data, method, words, client)
    elif error.data is not None:
        lines += ["  " + line for line in pretty(error.data, color).splitlines()]
    elif error.code == INTERNAL_ERROR:
        lines.append("  the log has the reason: on stderr, or in the file that DUET_RPC_LOG names")
    return lines


RAISED = ("type", "text", "place", "traceback", "problem")


class Raised:
    """The exception that a method has failed with, as a daemon with --debug describes it."""

    def __init__(self, type: str, text: str, place: str, traceback: str, problem: str) -> None:
        self.type = type
        self.text = text
        self.place = place
        self.traceback = traceback
        self.problem = problem  # why that was an earlier version of the file

    @staticmethod
    def find(error: RpcError) -> Raised | None:
        """Return the exception that an error reply is about, if it says."""
        if error.code != INTERNAL_ERROR or not isinstance(error.data, dict):
            return None
        data = error.data
        values = [data.get(name) or "" for name in RAISED]
        texts = [each for each in values if isinstance(each, str)]
        return Raised(*texts) if len(texts) == len(values) and texts[0] else None

    def __str__(self) -> str:
        """Return type, text and place: `KeyError: 'x' (words.py:12)`."""
        what = f"{self.type}: {self.text}" if self.text else self.type
        where = f" ({os.path.basename(self.place)})" if self.place else ""
        return escape(what, TEXT_MAX) + escape(where, TEXT_MAX)

    def more(self, traceback: bool) -> list[str]:
        """Return the traceback as Python prints it, or how to see it."""
        lines = []
        if self.problem:
            lines.append("  this was the file before its last change, which could not be loaded:")
            lines.append(f"  {escape(self.problem, TEXT_MAX)}")
        if traceback:
            lines += [escape(line, TEXT_MAX) for line in self.traceback.rstrip().splitlines()]
        elif self.traceback:
            lines.append("  --debug shows the traceback; `call --pdb` stops there in the debugger")
        return lines


def show_problems(data: object, said: Collection[str]) -> list[str]:
    """Return the files that could not be loaded, except those that a person was told of."""
    problems = data.get("problems") if isinstance(data, dict) else None
    texts = [each for each in problems if isinstance(each, str)] if problems else []
    new = [each for each in texts if not any(each in other for other in said)]
    return [f"  could not be loaded: {escape(each, TEXT_MAX)}" for each in new]


def backend_of(method: str) -> str:
    """Return the name of the backend that a method would be routed to."""
    return method.split("/")[0].split("__")[0]


def explain_backend(
    error: RpcError, backend: str, rest: str, client: Server, color: bool
) -> list[str]:
    """Return the lines that explain an error of a backend."""
    if rest.startswith("__") and error.code in (METHOD_NOT_FOUND, INVALID_PARAMS):
        tools = fetch_list(client, f"{backend}/tools/list", "tools")
        if rest[2:] not in [tool["name"] for tool in tools]:
            return suggest_names(backend + rest, [f"{backend}__{tool['name']}" for tool in tools])
    if error.code == METHOD_NOT_FOUND:
        what = escape(rest[1:], TEXT_MAX)
        hint = f"backend {backend} has no method {what}"
        return [f"  {hint}" if what else f"  add the name of a method: {backend}/METHOD"]
    if error.data is None:
        return []
    return ["  " + line for line in pretty(error.data, color).splitlines()]


def suggest(method: str, client: Server, backends: Collection[str] = ()) -> list[str]:
    """Return the lines that name the methods a person probably meant."""
    if method in backends:
        return [f"  {method} is a backend: call {method}/METHOD or {method}__TOOL"]
    backend = backend_of(method)
    names = [str(entry["name"]) for entry in fetch_list(client, "listMethods")]
    if backends and backend != method and not did_you_mean(method, names):
        first = f"  there is no backend {escape(backend, TEXT_MAX)}"
        return [first, *suggest_names(backend, backends)]
    built_in = names.index(RELOAD) + 1 if RELOAD in names else 0
    return suggest_names(method, [*names[built_in:], *names[:built_in]])  # their own first


def suggest_names(wanted: str, names: Collection[str]) -> list[str]:
    """Return a line with the names closest to the wanted one, or else with all names."""
    nearest = did_you_mean(wanted, names, most=3)
    if nearest:
        return [f"  {escape(nearest, TEXT_MAX)}"]
    return [f"  available: {escape(', '.join(names), TEXT_MAX)}"] if names else []


def explain_params(
    data: dict[str, object], method: str, words: Sequence[str], client: Server
) -> list[str]:
    """Return the lines that name the wrong parameter and the method's signature."""
    rows = dict(data)
    for description in fetch_list(client, "describeMethods"):
        if description["name"] == method:
            rows["signature"] = signature(description)
    lines = show_rows(rows)
    wants_text = str(data.get("expected")).startswith("string")
    for word in words:
        name, _, typed = word.partition("=")
        if wants_text and name == data.get("param") and not isinstance(parse_value(typed), str):
            quoted = shlex.quote(f"{name}={json.dumps(typed, ensure_ascii=False)}")
            lines.append(f"  to send it as text, write {escape(quoted, 200)}")
    return lines


def show_rows(data: dict[str, object]) -> list[str]:
    """Return one line for each member of an error's data, the most useful ones first."""
    rows = {name: data[name] for name in FIRST_ROWS if name in data}
    return [f"  {name + ':':<11}{show(value)}" for name, value in {**rows, **data}.items()]


def show(value: object) -> str:
    """Return a value of an error's data in one line."""
    if isinstance(value, list):
        return ", ".join(show(each) for each in value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return escape(text, TEXT_MAX)


def signature(description: dict[str, object]) -> str:
    """Return an entry of describeMethods in the form of a Python signature."""
    params = description.get("params")
    names = ", ".join(str(each) for each in params) if isinstance(params, list) else ""
    return f"{description['name']}({names}) -> {description.get('returns', 'any')}"


def fetch_list(client: Server, method: str, member: str = "") -> list[dict[str, object]]:
    """Call a method that lists named entries; return an empty list where that fails."""
    try:
        entries = client.call(method, seconds=HINT_TIMEOUT)
        if member and isinstance(entries, dict):
            entries = entries.get(member)
    except (DaemonError, RpcError):
        return []
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, dict) and "name" in entry]
