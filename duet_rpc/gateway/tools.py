"""The tools of all MCP servers as one list.

A tool is kept as the JSON text that its server sent, with another name in it. Each list is
requested once, and again when its server says that it has changed. Whoever asks for the
merged list waits for slow servers no longer than `LIST_TIMEOUT`, and is told whose tools
are missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.gateway.dialects import MCP
from duet_rpc.gateway.pending import Call
from duet_rpc.gateway.state import State
from duet_rpc.gateway.wire import raw
from duet_rpc.jsonrpc.jsontext import dumps, member, replace, split_array, split_object, without
from duet_rpc.jsonrpc.messages import Failure
from duet_rpc.jsonrpc.values import RawJson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.loop import Loop, Timer
    from duet_rpc.gateway.pending import Outcome

    Done = Callable[[list["Tool"], dict[str, str]], None]
    """Takes all tools, and why those of some servers are missing."""

PAGES_MAX = 100
ATTEMPTS_MAX = 3  # at a list that changes while it is requested
SEPARATOR = "__"

OWN = "your methods"
"""The name of the backend that has the user's methods; no name in a configuration can be this."""


class Tool:
    """One tool: its text, and the parts that are listed."""

    __slots__ = ("backend", "description", "name", "own_name", "schema", "text")

    def __init__(self, backend: str, text: str) -> None:
        members = {name: each[0] for name, each in split_object(text)[0].items()}
        name = members["name"]
        if not name or not isinstance(name, str):
            raise ValueError("a tool has a name")
        self.backend = backend
        self.own_name = name
        self.name = name if backend == OWN else f"{backend}{SEPARATOR}{name}"
        self.text = replace(text, ("name",), dumps(self.name))
        self.description = str(members.get("description") or members.get("title") or "")
        schema = members.get("inputSchema")
        self.schema: dict[str, object] = schema if isinstance(schema, dict) else {}


class Tools:
    """The lists of the servers, and who waits for those that are still missing."""

    def __init__(
        self, backends: Iterable[Backend], loop: Loop, fresh_id: Callable[[], int]
    ) -> None:
        self._servers = {each.name: each for each in backends if each.dialect is MCP}
        self._loop = loop
        self._fresh_id = fresh_id
        self._known: dict[str, list[Tool]] = {}
        self._listings: dict[str, Listing] = {}  # being requested
        self._waiters: list[Waiter] = []
        self._missed: set[str] = set()  # servers whose tools were missing in the last list
        self.on_change: Callable[[], object] = lambda: None

    def find(self, name: str) -> tuple[Backend, str] | None:
        """Return the server that `NAME__tool` names, and the tool's name there."""
        server, _, tool = name.partition(SEPARATOR)
        backend = self._servers.get(server)
        return (backend, tool) if backend is not None and tool else None

    def forget(self, name: str) -> None:
        """Request a server's list again next time."""
        self._known.pop(name, None)

    def invalidate(self, name: str) -> None:
        """Request a server's list again next time, and now if it is being requested."""
        self.forget(name)
        if name in self._listings:
            self._listings[name].changed = True

    def handle_ready(self, name: str) -> None:
        """Request the tools of a server that was not ready in time for the last list."""
        if name in self._missed:
            self._request(self._servers[name])

    def collect(self, seconds: float, done: Done) -> None:
        """Call a function with all tools, after that many seconds at most."""
        missing = [name for name in self._servers if name not in self._known]
        waiter = Waiter(set(missing), done)
        self._waiters.append(waiter)
        waiter.timer = self._loop.call_later(seconds, lambda: self._finish(waiter))
        for name in missing:
            self._request(self._servers[name])
        self._check(waiter)

    def _request(self, backend: Backend) -> None:
        if backend.name in self._listings:
            return
        if backend.refusal() is not None:
            self._end_listing(backend.name)
            return
        self._listings[backend.name] = Listing()
        self._request_page(backend, None, 1)

    def _request_page(self, backend: Backend, cursor: str | None, page: int) -> None:
        params = None if cursor is None else raw(f'{{"cursor":{cursor}}}')
        call = Call("tools/list", lambda outcome: self._handle_page(backend, outcome, cursor, page))
        backend.request(self._fresh_id(), call, params)

    def _handle_page(
        self, backend: Backend, outcome: Outcome, cursor: str | None, page: int
    ) -> None:
        name = backend.name
        if isinstance(outcome, Failure):
            # An error of the server's own, and not one of ours, says that it has no tools.
            if not isinstance(outcome.error.data, dict):
                self._known[name] = []
            self._end_listing(name)
            return
        result = outcome.result
        if not isinstance(result, RawJson) or not isinstance(result.value, dict):
            self._end_listing(name)
            return
        listing = self._listings[name]
        if listing.changed and listing.attempts < ATTEMPTS_MAX:
            listing.begin_again()
            self._request_page(backend, None, 1)
            return
        tools = member(result.text, "tools") or "[]"
        for text in split_array(tools) if tools.startswith("[") else ():
            try:
                listing.tools.append(Tool(name, text))
            except (KeyError, ValueError, IndexError):
                backend.log.output("left out a tool without a name")
            except RecursionError:
                backend.log.output("left out a tool that is nested too deeply")
        following = member(result.text, "nextCursor")
        if following and following.startswith('"') and following != cursor and page < PAGES_MAX:
            self._request_page(backend, following, page + 1)
            return
        self._known[name] = listing.tools
        self._end_listing(name)
        if listing.changed:
            self.forget(name)

    def _end_listing(self, name: str) -> None:
        self._listings.pop(name, None)
        if name in self._missed and name in self._known:
            self._missed.discard(name)
            self.on_change()
        for waiter in list(self._waiters):
            waiter.missing.discard(name)
            self._check(waiter)

    def _check(self, waiter: Waiter) -> None:
        if not waiter.missing and waiter in self._waiters:
            self._finish(waiter)

    def _finish(self, waiter: Waiter) -> None:
        self._waiters.remove(waiter)
        if waiter.timer is not None:
            waiter.timer.cancel()
        tools = [tool for name in self._servers for tool in self._known.get(name, ())]
        missing = {
            name: backend.process.reason
            or ("slow" if backend.state is State.READY else backend.state.value)
            for name, backend in self._servers.items()
            if name not in self._known
        }
        self._missed = set(missing)
        waiter.done(tools, missing)


class Listing:
    """The tools that a server has listed so far."""

    __slots__ = ("attempts", "changed", "tools")

    def __init__(self) -> None:
        self.attempts = 0
        self.begin_again()

    def begin_again(self) -> None:
        """Forget what the server has listed."""
        self.tools: list[Tool] = []
        self.changed = False
        self.attempts += 1


class Waiter:
    """Somebody who has asked for the merged list."""

    __slots__ = ("done", "missing", "timer")

    def __init__(self, missing: set[str], done: Done) -> None:
        self.missing = missing
        self.done = done
        self.timer: Timer | None = None


def rename(text: str, name: str) -> str:
    """Return an object with another text in its member `name`."""
    return replace(text, ("name",), dumps(name))


def rename_call(params: RawJson, tool: str) -> RawJson:
    """Return the params of `tools/call` with a tool's own name in them."""
    value = {**params.value, "name": tool} if isinstance(params.value, dict) else None
    return RawJson(rename(params.text, tool), value)


def call_by_name(tool: str, arguments: RawJson | None) -> RawJson | None:
    """Return the params of `tools/call` for a tool called as a method; None where it can't be."""
    text, given = ("{}", {}) if arguments is None else (arguments.text, arguments.value)
    if not isinstance(given, dict):
        return None
    value = {"name": tool, "arguments": given}
    if "_meta" not in given:
        return RawJson(f'{{"name":{dumps(tool)},"arguments":{text}}}', value)
    # It says something about the call and is not an argument.
    meta, rest = member(text, "_meta"), without(text, "_meta")
    value = {**value, "_meta": given["_meta"]}
    return RawJson(f'{{"_meta":{meta},"name":{dumps(tool)},"arguments":{rest}}}', value)
