"""The tools of all MCP servers as one list.

A tool is kept as the JSON text that its server sent, with another name in it. Each list is
requested once, and again when its server says that it has changed. Whoever asks for the
merged list waits for slow servers no longer than `LIST_TIMEOUT`, and is told whose tools
are missing. A list may be large, so it is read a few tools at a time, and no more of them
are sent than the client has room for.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from duet_rpc.gateway.backend import SEPARATOR
from duet_rpc.gateway.dialects import MCP
from duet_rpc.gateway.pending import Call
from duet_rpc.gateway.state import State
from duet_rpc.gateway.wire import raw
from duet_rpc.jsonrpc.jsontext import dumps, member, replace, split_array, split_object, without
from duet_rpc.jsonrpc.limits import BODY_MAX
from duet_rpc.jsonrpc.messages import Failure
from duet_rpc.jsonrpc.values import RawJson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.client import ClientConnection
    from duet_rpc.gateway.loop import Loop, Timer
    from duet_rpc.gateway.pending import Outcome
    from duet_rpc.jsonrpc.jsontext import Members

    Done = Callable[["Merged"], None]

PAGES_MAX = 100
TURN = 100  # tools of one server that are read before anything else has its turn
ATTEMPTS_MAX = 3  # at a list that changes while it is requested


class Tool:
    """One tool: its text, and the parts that are listed."""

    __slots__ = ("backend", "description", "name", "own_name", "schema", "text")

    def __init__(self, backend: Backend, text: str) -> None:
        found = split_object(text)[0]
        members = {name: each[0] for name, each in found.items()}
        name = members["name"]
        if not name or not isinstance(name, str):
            raise ValueError("a tool has a name")
        self.backend = backend.name
        self.own_name = name
        self.name = backend.tool_name(name)
        _, start, end = found["name"]
        self.text = f"{text[:start]}{dumps(self.name)}{text[end:]}"
        self.description = str(members.get("description") or members.get("title") or "")
        schema = members.get("inputSchema")
        self.schema: dict[str, object] = schema if isinstance(schema, dict) else {}


class Merged:
    """The tools of all servers at one time, and the lists that were made of them."""

    __slots__ = ("missing", "texts", "tools")

    def __init__(self, tools: list[Tool], missing: dict[str, str]) -> None:
        self.tools = tools
        self.missing = missing  # why the tools of some servers are not here
        self.texts: dict[str, str] = {}  # by whatever name the maker of a list chooses


class Tools:
    """The lists of the servers, and who waits for those that are still missing."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        loop: Loop,
        fresh_id: Callable[[], int],
        client: ClientConnection,
    ) -> None:
        self._backends = backends
        self._loop = loop
        self._fresh_id = fresh_id
        self._client = client
        self._known: dict[str, list[Tool]] = {}
        self._listings: dict[str, Listing] = {}  # being requested
        self._ready: deque[Waiter] = deque()  # who waits for the client alone
        self._missed: set[str] = set()  # servers whose tools were missing in the last list
        self._merged: Merged | None = None  # the last, unless something has changed since
        self.on_change: Callable[[], object] = lambda: None

    @property
    def _servers(self) -> dict[str, Backend]:
        servers = [each for each in self._backends.values() if each.dialect is MCP]
        servers.sort(key=lambda each: each.settings.kind != "worker")  # the user's own come first
        return {each.name: each for each in servers}

    def find(self, name: str) -> tuple[Backend, str] | None:
        """Return the server that `NAME__tool` names, and the tool's name there."""
        server, _, tool = name.partition(SEPARATOR)
        backend = self._backends.get(server)
        if backend is None or backend.dialect is not MCP or not backend.offers(tool):
            return None
        return backend, tool

    def forget(self, name: str) -> None:
        """Request a server's list again next time."""
        self._known.pop(name, None)
        self._merged = None
        if name in self._listings and self._listings[name].unread is not None:
            self._end_listing(name)

    def invalidate(self, name: str) -> None:
        """Request a server's list again next time, and now if it is being requested."""
        self._known.pop(name, None)
        self._merged = None
        if name in self._listings:
            self._listings[name].changed = True

    def handle_ready(self, name: str) -> None:
        """Request the tools of a server that was not ready in time for the last list."""
        if name in self._missed:
            self._request(self._servers[name])

    # The merged list.

    def collect(self, seconds: float, done: Done) -> None:
        """Call a function with all tools, after that many seconds at most."""
        waiter = Waiter(done)
        for name, backend in self._servers.items():
            if name not in self._known:
                listing = self._request(backend)
                if listing is not None:
                    listing.waiters.append(waiter)
                    waiter.missing += 1
        if waiter.missing:
            waiter.timer = self._loop.call_later(seconds, lambda: self._release(waiter))
        else:
            self._release(waiter)

    def _release(self, waiter: Waiter) -> None:
        if waiter.is_released:
            return
        waiter.is_released = True
        if waiter.timer is not None:
            waiter.timer.cancel()
        self._ready.append(waiter)
        self.deliver()

    def deliver(self) -> None:
        """Call those that wait for the merged list, as long as the client has room for it."""
        while self._ready and self._client.has_room:
            self._ready.popleft().done(self._merge())

    def _merge(self) -> Merged:
        servers = self._servers
        missing = {name: self._reason(name) for name in servers if name not in self._known}
        self._missed = set(missing)
        if self._merged is None or self._merged.missing != missing:
            tools = [tool for name in servers for tool in self._known.get(name, ())]
            self._merged = Merged(tools, missing)
        return self._merged

    def _reason(self, name: str) -> str:
        backend = self._servers[name]
        state = "slow" if backend.state is State.READY else backend.state.value
        return backend.process.reason or state

    # The list of one server.

    def _request(self, backend: Backend) -> Listing | None:
        """Request a server's list; return it while it is requested, None where it can't be."""
        name = backend.name
        if name not in self._listings and backend.refusal() is None:
            self._listings[name] = Listing()
            self._request_page(backend, None)
        return self._listings.get(name)  # a request may fail at once

    def _request_page(self, backend: Backend, cursor: str | None) -> None:
        params = None if cursor is None else raw(f'{{"cursor":{cursor}}}')
        call = Call("tools/list", lambda outcome: self._handle_page(backend, outcome, cursor))
        backend.request(self._fresh_id(), call, params)

    def _handle_page(self, backend: Backend, outcome: Outcome, cursor: str | None) -> None:
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
            self._request_page(backend, None)
            return
        members, text = split_object(result.text)[0], result.text
        tools = _text_of(members, text, "tools")
        following = _text_of(members, text, "nextCursor")
        is_last = not following.startswith('"') or following == cursor
        listing.unread = split_array(tools if tools.startswith("[") else "[]")
        listing.size += len(text)
        listing.pages += 1
        self._read_tools(backend, listing, None if is_last else following)

    def _read_tools(self, backend: Backend, listing: Listing, following: str | None) -> None:
        """Read some tools of a page; then the rest of it, the page that follows, or the end."""
        if self._listings.get(backend.name) is not listing or listing.unread is None:
            return  # the server has exited meanwhile
        for _ in range(TURN):
            text = next(listing.unread, None)
            if text is None:
                break
            listing.add(backend, text)
        else:
            self._loop.call_soon(lambda: self._read_tools(backend, listing, following))
            return
        listing.unread = None
        if following and listing.pages < PAGES_MAX and listing.size < BODY_MAX:
            self._request_page(backend, following)
            return
        listing.report(backend, is_cut=following is not None)
        self._known[backend.name] = list(listing.tools.values())
        self._end_listing(backend.name)
        if listing.changed:
            self.forget(backend.name)

    def _end_listing(self, name: str) -> None:
        self._merged = None
        listing = self._listings.pop(name, None)
        if name in self._missed and name in self._known:
            self._missed.discard(name)
            self.on_change()
        for waiter in listing.waiters if listing is not None else ():
            waiter.missing -= 1
            if not waiter.missing:
                self._release(waiter)


class Listing:
    """The tools that a server has listed so far, and who waits for them."""

    __slots__ = (
        "attempts", "changed", "left_out", "pages", "size", "tools", "unread", "waiters",
    )  # fmt: skip

    def __init__(self) -> None:
        self.waiters: list[Waiter] = []
        self.unread: Iterator[str] | None = None  # of the page that has come
        self.attempts = 0
        self.begin_again()

    def begin_again(self) -> None:
        """Forget what the server has listed."""
        self.tools: dict[str, Tool] = {}  # by the names that the server gives them
        self.left_out = self.pages = self.size = 0
        self.changed = False
        self.attempts += 1

    def add(self, backend: Backend, text: str) -> None:
        """Add a tool; of two with one name the first, because a call could name no other."""
        try:
            tool = Tool(backend, text)
        except (KeyError, ValueError, IndexError):
            backend.log.output("left out a tool without a name")
        except RecursionError:
            backend.log.output("left out a tool that is nested too deeply")
        else:
            if backend.offers(tool.own_name):
                self.left_out += self.tools.setdefault(tool.own_name, tool) is not tool

    def report(self, backend: Backend, is_cut: bool) -> None:
        """Log what the list has and the tools do not."""
        if self.left_out:
            backend.log.warn(f"left out {self.left_out} tools whose names other tools have")
        if is_cut:
            backend.log.warn(
                f"its list of tools is too long: {len(self.tools)} were read and the rest left out"
            )


class Waiter:
    """Somebody who has asked for the merged list."""

    __slots__ = ("done", "is_released", "missing", "timer")

    def __init__(self, done: Done) -> None:
        self.done = done
        self.missing = 0  # lists that have not come
        self.is_released = False  # waits no longer for them
        self.timer: Timer | None = None


def _text_of(members: Members, text: str, name: str) -> str:
    found = members.get(name)
    return "" if found is None else text[found[1] : found[2]]


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
