"""`duet-rpc console`: a prompt in front of one daemon, for trying things out.

A line is what `duet-rpc call` takes as words. A daemon that dies costs the line it died
of: the next one is answered by a new daemon.
"""

from __future__ import annotations

import sys
from time import monotonic

from duet_rpc.jsonrpc.errors import RpcError
from duet_rpc.log import escape
from duet_rpc.terminal import client as clients
from duet_rpc.terminal.arguments import ArgumentError, check_text, read_arguments, split_line
from duet_rpc.terminal.client import Client, DaemonError
from duet_rpc.terminal.explain import TEXT_MAX, ask, explain, show, signature, suggest
from duet_rpc.terminal.pretty import is_terminal, paint, say, wants_color, write_json
from duet_rpc.terminal.prompt import last_piece, make_reader
from duet_rpc.terminal.request import Abandoned, Cancelled, leave_on_signals, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    Description = dict[str, object]

WORDS = {
    "help": "list the methods; help METHOD says more of one",
    "quit": "leave; so does Ctrl-D",
}

WELCOME = "METHOD [name=value]... calls a method, help lists them, Tab completes, Ctrl-D leaves."


def console(flags: Sequence[str], no_color: bool) -> int:
    """Answer lines until there are no more; return the exit code."""
    leave_on_signals()
    session = Console(clients.daemon_command(flags), no_color)
    try:
        return session.run()
    finally:
        session.close()


class Console:
    """One person or script, one daemon at a time."""

    def __init__(self, command: Sequence[str], no_color: bool) -> None:
        self._command = command
        self._color = wants_color(sys.stdout, no_color)
        self._error_color = wants_color(sys.stderr, no_color)
        self._interactive = is_terminal(sys.stdin)
        self._client: Client | None = None
        self._methods: dict[str, Description] = {}

    def run(self) -> int:
        """Read and answer; a script's exit code says whether all went well."""
        read = make_reader(lambda text: complete(text, self._methods))
        if self._interactive:
            say(WELCOME)
        good = self._answer("")
        while True:
            try:
                line = read().strip()
                if line in ("quit", "exit"):
                    break
                if line and not line.startswith("#"):
                    good &= self._answer(line)
            except EOFError:
                if self._interactive:
                    say("")
                break
            except KeyboardInterrupt:
                if not self._interactive:
                    raise
                say("")
        return 0 if good or self._interactive else 1

    def close(self) -> None:
        """Leave no daemon behind."""
        if self._client is not None:
            self._client.close()

    # One line.

    def _answer(self, line: str) -> bool:
        """Do what a line says; an empty one gets a daemon ready. False where it failed."""
        try:
            words = split_line(line)
            check_text(line)
            client = self._connect()
            if not words:
                return True
            if words[0] == "help":
                return self._help(client, words[1:])
            return self._call(client, words[0], words[1:])
        except ArgumentError as error:
            trouble = str(error)
        except Cancelled:
            trouble = "cancelled"
        except DaemonError as error:
            self._lose()
            trouble = f"{error}; the next line starts a new one"
        except Abandoned:
            self._lose()
            trouble = "the daemon was ended; the next line starts a new one"
        say(f"{paint('duet-rpc:', 'bad', self._error_color)} {trouble}")
        return False

    def _call(self, client: Client, method: str, words: Sequence[str]) -> bool:
        params = read_arguments(words)
        start = monotonic()
        try:
            result = run(client, method, params)
        except RpcError as error:
            say("\n".join(explain(error, method, words, client, self._error_color)))
            return False
        elapsed = (monotonic() - start) * 1000
        write_json(result, self._color)
        if is_terminal(sys.stdout):
            shown = f"{elapsed:.1f}" if elapsed < 10 else f"{elapsed:.0f}"
            print(paint(f"({shown} ms)", "faint", self._color))
        if method == "shutdown":
            code = client.close()
            self._client = None
            say(f"the daemon ended with exit code {code}; the next line starts a new one")
        elif method == "reloadMethods":
            self._learn(client)
        return True

    def _help(self, client: Client, words: Sequence[str]) -> bool:
        if not words:
            table = {name: first_line(each) for name, each in self._methods.items()}
            width = max(map(len, [*table, *WORDS]))
            for name, text in {**table, **WORDS}.items():
                print(f"{paint(name.ljust(width), 'key', self._color)}  {text}".rstrip())
            return True
        name = words[0]
        if len(words) > 1:
            raise ArgumentError(f"help takes one METHOD: {words[1]} is too much")
        if name not in self._methods:
            say(
                "\n".join([f"duet-rpc: no such method: {escape(name, 80)}", *suggest(name, client)])
            )
            return False
        lines = describe(self._methods[name])
        for entry in ask(client, "describeMethods"):
            if entry["name"] == name:
                lines.insert(0, paint(escape(signature(entry), TEXT_MAX), "key", self._color))
        print("\n".join(lines))
        return True

    # The daemon.

    def _connect(self) -> Client:
        if self._client is not None:
            how = self._client.ended
            if how is None:
                return self._client
            say(f"{how}; this is a new one")
            self._lose()
        self._client = Client(self._command)
        self._learn(self._client)
        return self._client

    def _lose(self) -> None:
        if self._client is not None:
            self._client.kill()
            self._client = None

    def _learn(self, client: Client) -> None:
        """Fetch what there is to complete and to explain, however long loading it takes."""
        try:
            document = run(client, "rpc.discover", None)
        except RpcError:
            return
        methods = document.get("methods") if isinstance(document, dict) else None
        if isinstance(methods, list):
            self._methods = {str(each["name"]): each for each in methods}


def first_line(method: Description) -> str:
    """Return what fits beside a method's name."""
    text = str(method.get("summary") or method.get("description") or "")
    return escape(text.strip().partition("\n")[0], 200)


def describe(method: Description) -> list[str]:
    """Write what an OpenRPC document says of a method, for a person."""
    summary, text = str(method.get("summary") or ""), str(method.get("description") or "")
    if not text.startswith(summary):
        text = f"{summary}\n\n{text}".strip()
    lines = [("  " + escape(line, 1000)).rstrip() for line in text.splitlines()]
    params = parameters(method)
    if params:
        lines.append("")
    for name, param in params.items():
        schema = param.get("schema")
        schema = schema if isinstance(schema, dict) else {}
        notes = [str(param.get("description") or schema.get("description") or "")]
        notes.append("required" if param.get("required") else "optional")
        if "default" in schema:
            notes[-1] = f"default {show(schema['default'])}"
        if "enum" in schema:
            notes.append(f"one of {show(schema['enum'])}")
        lines.append(f"  {name}: " + escape("; ".join(filter(None, notes)), 1000))
    return lines


def parameters(method: Description) -> dict[str, Description]:
    """Return a method's parameters by name."""
    params = method.get("params")
    return {str(each["name"]): each for each in params} if isinstance(params, list) else {}


def complete(text: str, methods: dict[str, Description]) -> list[str]:
    """Return what can stand in the place of the last piece of a line."""
    piece = last_piece(text)
    before = text[: len(text) - len(piece)].split()
    if not before:
        found = [f"{name} " for name in (*methods, "help")] + ["quit"]
    elif before[0] == "help":
        found = list(methods) if len(before) == 1 else []
    else:
        params = parameters(methods.get(before[0], {}))
        name, equals, _ = piece.partition("=")
        if equals:
            found = [f"{name}={value} " for value in values(params.get(name, {}))]
        else:
            given = {word.partition("=")[0] for word in before[1:]}
            found = [f"{each}=" for each in params if each not in given]
    return [each for each in found if each.startswith(piece)]


def values(param: Description) -> list[str]:
    """Return the values that a parameter takes, where they are few."""
    schema = param.get("schema")
    if not isinstance(schema, dict):
        return []
    if isinstance(schema.get("enum"), list):
        return [show(value) for value in schema["enum"]]
    return ["true", "false"] if schema.get("type") == "boolean" else []
