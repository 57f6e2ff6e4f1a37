"""`duet-rpc console`: a prompt for calling the methods of one daemon.

A line has the form of the arguments of `duet-rpc call`. Where the daemon exits, the line that
was running fails and the next line starts a new daemon.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from duet_rpc.command_line import shorten
from duet_rpc.config.files import load_config
from duet_rpc.environments.methods_python import use_python
from duet_rpc.jsonrpc.errors import RpcError
from duet_rpc.log import escape
from duet_rpc.terminal.client import Client, DaemonError
from duet_rpc.terminal.daemon import start_daemon
from duet_rpc.terminal.explain import TEXT_MAX, explain, fetch_list, show, signature, suggest
from duet_rpc.terminal.output import is_terminal, paint, print_error, print_stderr, wants_color
from duet_rpc.terminal.params import ArgumentError, check_text, parse_params, split_line
from duet_rpc.terminal.prompt import last_word, make_reader
from duet_rpc.terminal.request import Abandoned, Cancelled, exit_on_signals, run
from duet_rpc.terminal.results import write_result
from duet_rpc.terminal.stream import STREAMED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from duet_rpc.command_line import Arguments

    Description = dict[str, object]

OWN_COMMANDS = {
    "help": "list the methods; help METHOD describes one",
    "quit": "exit; so does Ctrl-D",
}

LIST_TIMEOUT = 2.0
"""Seconds that completion waits for a daemon that loads changed files."""

WELCOME = "METHOD [name=value]... calls a method, help lists them, Tab completes, Ctrl-D exits."


def console(arguments: Arguments) -> int:
    """Run lines until the end of input; return the exit code."""
    options = arguments.options
    config = load_config()
    use_python(config)
    level = options.log_level or config.log_level or "warn"
    exit_on_signals()
    session = Console(
        lambda: start_daemon(options, level), options.no_color, options.debug or config.debug
    )
    try:
        return session.run()
    finally:
        session.close()


class Console:
    """A session: reads lines and runs them in one daemon at a time."""

    def __init__(self, start: Callable[[], Client], no_color: bool, tracebacks: bool) -> None:
        self._start = start
        self._tracebacks = tracebacks
        self._color = wants_color(sys.stdout, no_color)
        self._error_color = wants_color(sys.stderr, no_color)
        self._interactive = is_terminal(sys.stdin)
        self._client: Client | None = None
        self._methods: dict[str, Description] = {}
        self._is_stale = False  # a method may have appeared since

    def run(self) -> int:
        """Read and run lines; return 1 where a line of a script failed."""
        read = make_reader(lambda text: complete(text, self._known_methods()))
        if self._interactive:
            print_stderr(WELCOME)
        good = self._run_line("")
        while True:
            try:
                line = read().strip()
                if line in ("quit", "exit"):
                    break
                if line and not line.startswith("#"):
                    good &= self._run_line(line)
            except EOFError:
                if self._interactive:
                    print_stderr("")
                break
            except KeyboardInterrupt:
                if not self._interactive:
                    raise
                print_stderr("")
        return 0 if good or self._interactive else 1

    def close(self) -> None:
        """Stop the daemon."""
        if self._client is not None:
            self._client.close()

    # One line.

    def _run_line(self, line: str) -> bool:
        """Run a line; an empty one only starts the daemon. Return whether it succeeded."""
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
            message = str(error)
        except Cancelled:
            message = "cancelled"
        except DaemonError as error:
            self._kill_daemon()
            message = f"{error}; the next line starts a new one"
        except Abandoned:
            self._kill_daemon()
            message = "the daemon was killed; the next line starts a new one"
        print_error(message, self._error_color)
        return False

    def _call(self, client: Client, method: str, words: Sequence[str]) -> bool:
        params = parse_params(words)
        self._is_stale = True
        start = monotonic()
        try:
            result = run(client, method, params, self._color)
        except RpcError as error:
            color, tracebacks = self._error_color, self._tracebacks
            lines = explain(error, method, words, client, color, tracebacks=tracebacks)
            print_stderr("\n".join(lines))
            return False
        elapsed = (monotonic() - start) * 1000
        if result is not STREAMED:
            write_result(result, self._color)
        if is_terminal(sys.stdout):
            shown = f"{elapsed:.1f}" if elapsed < 10 else f"{elapsed:.0f}"
            print(paint(f"({shown} ms)", "faint", self._color))
        if method == "shutdown":
            code = client.close()
            self._client = None
            print_stderr(f"the daemon exited with code {code}; the next line starts a new one")
        return True

    def _help(self, client: Client, words: Sequence[str]) -> bool:
        methods = self._known_methods()
        if not words:
            table = {name: first_line(each) for name, each in methods.items()}
            width = max(map(len, [*table, *OWN_COMMANDS]))
            for name, text in {**table, **OWN_COMMANDS}.items():
                print(f"{paint(name.ljust(width), 'key', self._color)}  {text}".rstrip())
            return True
        name = words[0]
        if len(words) > 1:
            raise ArgumentError(f"help takes one METHOD; remove {shorten(words[1])}")
        if name not in methods:
            self._is_stale = True
            methods = self._known_methods()
        if name not in methods:
            head = f"unknown method {shorten(name)}"
            print_error("\n".join([head, *suggest(name, client)]), self._error_color)
            return False
        lines = describe(methods[name])
        for entry in fetch_list(client, "describeMethods"):
            if entry["name"] == name:
                lines.insert(0, paint(escape(signature(entry), TEXT_MAX), "key", self._color))
        print("\n".join(lines))
        return True

    # The daemon.

    def _connect(self) -> Client:
        if self._client is not None:
            exit_reason = self._client.exit_reason
            if exit_reason is None:
                return self._client
            print_stderr(f"{exit_reason}; starting a new one")
            self._kill_daemon()
        self._client = self._start()
        self._client.tracebacks = self._tracebacks
        if self._interactive:
            self._fetch_methods(self._client)
        else:  # a list would start workers that no line may need
            self._is_stale = True
        return self._client

    def _kill_daemon(self) -> None:
        if self._client is not None:
            self._client.kill()
            self._client = None

    def _known_methods(self) -> dict[str, Description]:
        """Return the methods for help and completion, fetched again after a call.

        A method that was written or changed meanwhile is loaded with the next call, or when
        somebody asks for a list.
        """
        if self._is_stale and self._client is not None:
            with suppress(DaemonError, RpcError):  # the next line finds out
                self._take_methods(self._client.call("rpc.discover", seconds=LIST_TIMEOUT))
        return self._methods

    def _fetch_methods(self, client: Client) -> None:
        """Fetch the methods, however long it takes to load them."""
        try:
            self._take_methods(run(client, "rpc.discover", None))
        except RpcError:
            return

    def _take_methods(self, document: object) -> None:
        self._is_stale = False
        methods = document.get("methods") if isinstance(document, dict) else None
        if isinstance(methods, list):
            self._methods = {str(each["name"]): each for each in methods}


def first_line(method: Description) -> str:
    """Return the first line of a method's description."""
    text = str(method.get("summary") or method.get("description") or "")
    return escape(text.strip().partition("\n")[0], 200)


def describe(method: Description) -> list[str]:
    """Return an OpenRPC method object as lines for a person."""
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
    """Return the completions of the last word of a line."""
    word = last_word(text)
    before = text[: len(text) - len(word)].split()
    if not before:
        found = [f"{name} " for name in (*methods, "help")] + ["quit"]
    elif before[0] == "help":
        found = list(methods) if len(before) == 1 else []
    else:
        params = parameters(methods.get(before[0], {}))
        name, equals, _ = word.partition("=")
        if equals:
            found = [f"{name}={value} " for value in values(params.get(name, {}))]
        else:
            given = {each.partition("=")[0] for each in before[1:]}
            found = [f"{each}=" for each in params if each not in given]
    return [each for each in found if each.startswith(word)]


def values(param: Description) -> list[str]:
    """Return the values of a parameter that is an enum or a boolean."""
    schema = param.get("schema")
    if not isinstance(schema, dict):
        return []
    if isinstance(schema.get("enum"), list):
        return [show(value) for value in schema["enum"]]
    return ["true", "false"] if schema.get("type") == "boolean" else []
