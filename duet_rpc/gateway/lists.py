"""What all MCP servers offer, as one list of each kind: tools, resources, templates, prompts.

An entry is kept as the JSON text that its server sent; a tool or a prompt with another name in
it. Each list is requested once, and again when its server announces a change. Whoever asks
for a merged list waits for slow servers no longer than they were told to, and is told whose
entries are missing. A list may be large, so it is read a few entries at a time, and no more lists
are sent than the client has room for.

For a client that asks once and at once, the lists of the last time are on disk (`kept.py`): they
are sent in place of those that have not come, and a difference is announced to the client.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from duet_rpc.gateway.dialects import MCP
from duet_rpc.gateway.pending import Call, is_made_here
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
    from duet_rpc.gateway.kept import KeptLists
    from duet_rpc.gateway.loop import Loop, Timer
    from duet_rpc.gateway.pending import Outcome
    from duet_rpc.jsonrpc.jsontext import Members

    Done = Callable[["Merged"], None]

PAGES_MAX = 100
TURN = 100  # entries of one server that are read before anything else has its turn
ATTEMPTS_MAX = 3  # at a list that changes while it is requested


class Kind(NamedTuple):
    """One kind of what servers offer."""

    method: str  # that lists it
    member: str  # of the result, with the entries
    key: str  # the member of an entry that it is known by
    capability: str  # of a server that has any
    word: str  # for people

    @property
    def has_names(self) -> bool:
        """True where entries have names, to which the gateway adds the server's; URIs are kept."""
        return self.key == "name"


TOOLS = Kind("tools/list", "tools", "name", "tools", "tool")
RESOURCES = Kind("resources/list", "resources", "uri", "resources", "resource")
TEMPLATES = Kind(
    "resources/templates/list", "resourceTemplates", "uriTemplate", "resources", "template"
)
PROMPTS = Kind("prompts/list", "prompts", "name", "prompts", "prompt")
KINDS = {kind.method: kind for kind in (TOOLS, RESOURCES, TEMPLATES, PROMPTS)}
NAMED = {"tools/call": TOOLS, "prompts/get": PROMPTS}
"""The requests that name an entry by the name that it has in a merged list."""

CHANGED = {
    "notifications/tools/list_changed": (TOOLS,),
    "notifications/resources/list_changed": (RESOURCES, TEMPLATES),
    "notifications/prompts/list_changed": (PROMPTS,),
}
"""The notifications by which a server announces changes, and the lists that may have changed."""


class Entry:
    """One tool, resource, template or prompt: its text, and the parts that are listed."""

    __slots__ = ("backend", "description", "name", "own_name", "own_text", "schema", "text")

    def __init__(self, backend: Backend, kind: Kind, text: str) -> None:
        found = split_object(text)[0]
        members = {name: each[0] for name, each in found.items()}
        name = members[kind.key]
        if not name or not isinstance(name, str):
            raise ValueError("an entry has a name")
        self.backend = backend.name
        self.own_name = self.name = name
        self.own_text = self.text = text
        if kind.has_names:
            self.name = backend.tool_name(name)
            _, start, end = found["name"]
            self.text = f"{text[:start]}{dumps(self.name)}{text[end:]}"
        self.description = str(members.get("description") or members.get("title") or "")
        schema = members.get("inputSchema")
        self.schema: dict[str, object] = schema if isinstance(schema, dict) else {}


class Merged:
    """The entries of all servers at one time, and the lists that were made of them."""

    __slots__ = ("entries", "missing", "texts", "unknown")

    def __init__(
        self, entries: list[Entry], missing: dict[str, str], unknown: dict[str, list[str]]
    ) -> None:
        self.entries = entries
        self.missing = missing  # servers whose lists have not come, and why
        self.unknown = unknown  # the texts of the kept entries that stand in for those
        self.texts: dict[str, str] = {}  # finished lists; `names` and `gateway` choose the keys


class Patience(NamedTuple):
    """How many seconds a merged list waits for the lists of servers."""

    short: float  # for a server, and for a worker whose list was kept
    long: float  # for a worker of the user's own whose list was not


class ServerLists:
    """The lists of all servers, of one kind, and who waits for those that are still missing."""

    def __init__(
        self,
        kind: Kind,
        backends: Mapping[str, Backend],
        loop: Loop,
        fresh_id: Callable[[], int],
        client: ClientConnection,
        kept: KeptLists | None,
    ) -> None:
        self.kind = kind
        self._backends = backends
        self._loop = loop
        self._fresh_id = fresh_id
        self._client = client
        self._kept = kept  # of the last time; None: not used
        self._known: dict[str, list[Entry]] = {}
        self._listings: dict[str, Listing] = {}  # being requested
        self._ready: deque[Waiter] = deque()  # who waits for the client alone
        self._served: dict[str, list[str]] = {}  # what the last list had of servers not known then
        self._merged: Merged | None = None  # the last, unless something has changed since
        self.on_change: Callable[[], object] = lambda: None

    @property
    def _servers(self) -> dict[str, Backend]:
        servers = [each for each in self._backends.values() if each.dialect is MCP]
        servers.sort(key=lambda each: each.settings.kind != "worker")  # the user's own come first
        return {each.name: each for each in servers}

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
        """Request the list of a server that was not ready in time for the last list.

        Where lists are kept, each is requested: what is kept is to be what there is.
        """
        if (name in self._served or self._kept is not None) and name not in self._known:
            self._request(self._servers[name])

    # The merged list.

    def collect(self, patience: Patience, done: Done, is_sent: bool = True) -> None:
        """Call a function with all entries, when they have come or patience is over.

        What is sent to the client is remembered, so that a difference can be announced later.
        """
        waiter = Waiter(done, is_sent)
        for name, backend in self._servers.items():
            if name not in self._known:
                listing = self._request(backend)
                if listing is not None:
                    listing.waiters.append(waiter)
                    waiter.missing.add(name)
                    if backend.settings.kind == "worker" and self._kept_of(backend) is None:
                        waiter.slow_workers.add(name)
        if waiter.missing:
            waiter.timers = (
                self._loop.call_later(patience.short, lambda: self._handle_short_timeout(waiter)),
                self._loop.call_later(patience.long, lambda: self._release(waiter)),
            )
        else:
            self._release(waiter)

    def _handle_short_timeout(self, waiter: Waiter) -> None:
        waiter.is_short_over = True
        if not waiter.slow_workers:
            self._release(waiter)

    def _release(self, waiter: Waiter) -> None:
        if waiter.is_released:
            return
        waiter.is_released = True
        for timer in waiter.timers:
            timer.cancel()
        self._ready.append(waiter)
        self.deliver()

    def deliver(self) -> None:
        """Call those that wait for the merged list, as long as the client has room for it."""
        while self._ready and self._client.has_room:
            waiter = self._ready.popleft()
            merged = self.merge()
            if waiter.is_sent:
                self._served = merged.unknown
            waiter.done(merged)

    def merge(self) -> Merged:
        """Return what there is now; where a list has not come, what was kept of it."""
        entries: list[Entry] = []
        missing: dict[str, str] = {}
        unknown: dict[str, list[str]] = {}
        for name, backend in self._servers.items():
            found = self._known.get(name)
            if found is None:
                missing[name] = self._reason(backend)
                found = self._kept_of(backend) or []
                unknown[name] = [each.own_text for each in found]
            entries += found
        if self._merged is None or self._merged.missing != missing:
            self._merged = Merged(entries, missing, unknown)
        return self._merged

    def _kept_of(self, backend: Backend) -> list[Entry] | None:
        """Return what a server had the last time; None where that is not known."""
        if self._kept is None or backend.state is State.FAILED:
            return None
        texts = self._kept.read(backend, self.kind.method)
        if texts is None:
            return None
        listing = Listing()
        for text in texts:
            listing.add(backend, self.kind, text)
        return list(listing.entries.values())

    def _reason(self, backend: Backend) -> str:
        state = "slow" if backend.state is State.READY else backend.state.value
        return backend.process.reason or state

    # The list of one server.

    def _request(self, backend: Backend) -> Listing | None:
        """Request a server's list; return it while it is requested, None where it can't be."""
        name = backend.name
        if name not in self._listings and backend.refusal() is None:
            self._listings[name] = Listing()
            if backend.state is State.READY and not self._is_offered(backend):
                self._store(backend, [])
            else:
                self._request_page(backend, None)
        return self._listings.get(name)  # a request may fail at once

    def _is_offered(self, backend: Backend) -> bool:
        """Return whether a server has anything of this kind; tools may be there unannounced."""
        return self.kind is TOOLS or self.kind.capability in backend.session.capabilities

    def _store(self, backend: Backend, entries: list[Entry]) -> None:
        self._known[backend.name] = entries
        if self._kept is not None:
            self._kept.write(backend, self.kind.method, [each.own_text for each in entries])
        self._end_listing(backend.name)

    def _request_page(self, backend: Backend, cursor: str | None) -> None:
        params = None if cursor is None else raw(f'{{"cursor":{cursor}}}')
        call = Call(self.kind.method, lambda outcome: self._handle_page(backend, outcome, cursor))
        backend.request(self._fresh_id(), call, params)

    def _handle_page(self, backend: Backend, outcome: Outcome, cursor: str | None) -> None:
        name = backend.name
        if isinstance(outcome, Failure):
            if is_made_here(outcome):
                self._end_listing(name)
            else:  # a server that has nothing of this kind may refuse to list it
                self._store(backend, [])
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
        entries = _text_of(members, text, self.kind.member)
        following = _text_of(members, text, "nextCursor")
        is_last = not following.startswith('"') or following == cursor
        listing.unread = split_array(entries if entries.startswith("[") else "[]")
        listing.size += len(text)
        listing.pages += 1
        self._read_entries(backend, listing, None if is_last else following)

    def _read_entries(self, backend: Backend, listing: Listing, following: str | None) -> None:
        """Read some entries of a page; then the rest of it, the page that follows, or the end."""
        if self._listings.get(backend.name) is not listing or listing.unread is None:
            return  # the server has exited meanwhile
        for _ in range(TURN):
            text = next(listing.unread, None)
            if text is None:
                break
            listing.add(backend, self.kind, text)
        else:
            self._loop.call_soon(lambda: self._read_entries(backend, listing, following))
            return
        listing.unread = None
        if following and listing.pages < PAGES_MAX and listing.size < BODY_MAX:
            self._request_page(backend, following)
            return
        listing.report(backend, self.kind, is_cut=following is not None)
        self._store(backend, list(listing.entries.values()))
        if listing.changed:
            self.forget(backend.name)

    def _end_listing(self, name: str) -> None:
        self._merged = None
        listing = self._listings.pop(name, None)
        served = self._served.pop(name, None) if name in self._known else None
        if served is not None and served != [each.own_text for each in self._known[name]]:
            self.on_change()
        for waiter in listing.waiters if listing is not None else ():
            waiter.missing.discard(name)
            waiter.slow_workers.discard(name)
            if not waiter.missing or (waiter.is_short_over and not waiter.slow_workers):
                self._release(waiter)


class Listing:
    """What a server has listed so far, and who waits for it."""

    __slots__ = (
        "attempts", "changed", "entries", "left_out", "pages", "size", "unread", "waiters",
    )  # fmt: skip

    def __init__(self) -> None:
        self.waiters: list[Waiter] = []
        self.unread: Iterator[str] | None = None  # of the page that has come
        self.attempts = 0
        self.begin_again()

    def begin_again(self) -> None:
        """Forget what the server has listed."""
        self.entries: dict[str, Entry] = {}  # by the names that the server gives them
        self.left_out = self.pages = self.size = 0
        self.changed = False
        self.attempts += 1

    def add(self, backend: Backend, kind: Kind, text: str) -> None:
        """Add an entry; of two with one name the first, because a call could name no other."""
        try:
            entry = Entry(backend, kind, text)
        except (KeyError, ValueError, IndexError):
            backend.log.output(f"left out a {kind.word} without a {kind.key}")
        except RecursionError:
            backend.log.output(f"left out a {kind.word} that is nested too deeply")
        else:
            if kind is not TOOLS or backend.settings.offers(entry.own_name):
                self.left_out += self.entries.setdefault(entry.own_name, entry) is not entry

    def report(self, backend: Backend, kind: Kind, is_cut: bool) -> None:
        """Log what the list has and the entries do not."""
        if self.left_out:
            what = f"{self.left_out} {kind.word}s whose names other {kind.word}s have"
            backend.log.warn(f"left out {what}")
        if is_cut:
            backend.log.warn(
                f"its list of {kind.word}s is too long: {len(self.entries)} were read "
                "and the rest left out"
            )


class Waiter:
    """Somebody who has asked for the merged list."""

    __slots__ = (
        "done",
        "is_released",
        "is_sent",
        "is_short_over",
        "missing",
        "slow_workers",
        "timers",
    )

    def __init__(self, done: Done, is_sent: bool) -> None:
        self.done = done
        self.is_sent = is_sent  # to the client
        self.missing: set[str] = set()  # servers whose lists have not come
        self.slow_workers: set[str] = set()  # workers among them, which get the long timeout
        self.is_short_over = False  # the short timeout is over
        self.is_released = False  # waits for no server any more
        self.timers: tuple[Timer, ...] = ()


def _text_of(members: Members, text: str, name: str) -> str:
    found = members.get(name)
    return "" if found is None else text[found[1] : found[2]]


def rename(text: str, name: str) -> str:
    """Return an object with another text in its member `name`."""
    return replace(text, ("name",), dumps(name))


def rename_call(params: RawJson, name: str) -> RawJson:
    """Return the params of a call with the name that a tool or a prompt has at its server."""
    value = {**params.value, "name": name} if isinstance(params.value, dict) else None
    return RawJson(rename(params.text, name), value)


def call_by_name(tool: str, arguments: RawJson | None) -> RawJson | None:
    """Return the params of `tools/call` for a tool called as a method; None for an array."""
    text, given = ("{}", {}) if arguments is None else (arguments.text, arguments.value)
    if not isinstance(given, dict):
        return None
    value = {"name": tool, "arguments": given}
    if "_meta" not in given:
        return RawJson(f'{{"name":{dumps(tool)},"arguments":{text}}}', value)
    # It is about the call and is not an argument.
    meta, rest = member(text, "_meta"), without(text, "_meta")
    value = {**value, "_meta": given["_meta"]}
    return RawJson(f'{{"_meta":{meta},"name":{dumps(tool)},"arguments":{rest}}}', value)
