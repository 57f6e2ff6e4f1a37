"""The lists of all MCP servers, of one kind, as one list.

Each list is requested once, and again when its server announces a change (`list_reader.py`). A
worker is asked each time: the user may have saved a file, which it notices when it is asked.
Whoever asks for the merged list waits for slow servers no longer than they were told to, and is
told whose entries are missing. No more lists are sent than the client has room for.

For a client that asks once and at once, the lists of the last time are on disk (`kept.py`): they
are sent in place of those that have not come, and a difference is announced to the client.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from duet_rpc.gateway.dialects import MCP
from duet_rpc.gateway.list_reader import ListReader
from duet_rpc.gateway.state import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.client import ClientConnection
    from duet_rpc.gateway.entries import Entry, Kind
    from duet_rpc.gateway.kept import KeptLists
    from duet_rpc.gateway.loop import Loop, Timer
    from duet_rpc.gateway.runtime import Runtime

    Done = Callable[["Merged"], None]


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
    """What is known of the lists of all servers, and the list that is made of them."""

    def __init__(
        self,
        kind: Kind,
        backends: Mapping[str, Backend],
        runtime: Runtime,
        fresh_id: Callable[[], int],
        kept: KeptLists | None,
    ) -> None:
        self.kind = kind
        self._backends = backends
        self._kept = kept  # of the last time; None: not used
        self._reader = ListReader(kind, runtime.loop, fresh_id, self._handle_list)
        self._waiters = Waiters(runtime.loop, runtime.client, self._answer)
        self._known: dict[str, list[Entry]] = {}
        self._served: dict[str, list[str]] = {}  # what the last list had of servers not known then
        self._merged: Merged | None = None  # the last, unless something has changed since
        self.on_change: Callable[[], object] = lambda: None

    @property
    def _servers(self) -> dict[str, Backend]:
        servers = [each for each in self._backends.values() if each.dialect is MCP]
        servers.sort(key=lambda each: each.settings.kind != "worker")  # the user's own come first
        return {each.name: each for each in servers}

    def handle_gone(self, backend: Backend) -> None:
        """Request the list of a server that has exited again next time."""
        self._forget(backend.name)
        self._reader.handle_gone(backend)

    def handle_changed(self, name: str) -> None:
        """Request a server's list again next time, and now if it is being requested."""
        self._forget(name)
        self._reader.handle_changed(name)

    def _forget(self, name: str) -> None:
        self._known.pop(name, None)
        self._merged = None

    def handle_ready(self, name: str) -> None:
        """Request the list of a server that was not ready in time for the last list.

        Where lists are kept, each is requested: what is kept is to be what there is.
        """
        if (name in self._served or self._kept is not None) and name not in self._known:
            self._reader.request(self._servers[name])

    def _handle_list(self, backend: Backend, entries: list[Entry] | None, is_old: bool) -> None:
        """Store the list of a server, and announce it where it is not what was sent last."""
        name = backend.name
        if entries is not None:
            texts = own_texts(entries)
            if name not in self._known or own_texts(self._known[name]) != texts:
                self._known[name] = entries
                self._merged = None
            if self._kept is not None:
                self._kept.write(backend, self.kind.method, texts)
            served = self._served.pop(name, None)
            if served is not None and served != texts:
                self.on_change()
        self._waiters.handle_list(name)
        if is_old:
            self._forget(name)

    # The merged list.

    def collect(self, patience: Patience, done: Done, is_sent: bool = True) -> None:
        """Call a function with all entries, when they have come or patience is over.

        What is sent to the client is remembered, so that a difference can be announced later.
        """
        waiter = Waiter(done, is_sent)
        for name, backend in self._servers.items():
            is_known, is_worker = name in self._known, backend.settings.kind == "worker"
            is_wanted = not is_known or (is_worker and backend.state is State.READY)
            if is_wanted and self._reader.request(backend):
                waiter.missing.add(name)
                if is_worker and not is_known and self._kept_of(backend) is None:
                    waiter.slow_workers.add(name)
        self._waiters.add(waiter, patience)

    def deliver(self) -> None:
        """Call those that wait for the merged list, as long as the client has room for it."""
        self._waiters.deliver()

    def _answer(self, waiter: Waiter) -> None:
        merged = self.merge()
        if waiter.is_sent:
            late = {name: self._known[name] for name in waiter.missing if name in self._known}
            self._served = {**merged.unknown, **{name: own_texts(late[name]) for name in late}}
        waiter.done(merged)

    def merge(self) -> Merged:
        """Return what there is now; where a list has not come, what was kept of it."""
        entries: list[Entry] = []
        missing: dict[str, str] = {}
        unknown: dict[str, list[str]] = {}
        for name, backend in self._servers.items():
            found = self._known.get(name)
            if found is None:
                missing[name] = _reason(backend)
                found = self._kept_of(backend) or []
                unknown[name] = own_texts(found)
            entries += found
        if self._merged is None or self._merged.missing != missing:
            self._merged = Merged(entries, missing, unknown)
        return self._merged

    def _kept_of(self, backend: Backend) -> list[Entry] | None:
        """Return what a server had the last time; None where that is not known."""
        if self._kept is None or backend.state is State.FAILED:
            return None
        texts = self._kept.read(backend, self.kind.method)
        return None if texts is None else self._reader.read(backend, texts)


def own_texts(entries: list[Entry]) -> list[str]:
    """Return the entries as their server has written them."""
    return [each.own_text for each in entries]


def _reason(backend: Backend) -> str:
    state = "slow" if backend.state is State.READY else backend.state.value
    return backend.process.reason or state


class Waiter:
    """Somebody who has asked for the merged list."""

    __slots__ = ("done", "is_sent", "is_short_over", "missing", "slow_workers", "timers")

    def __init__(self, done: Done, is_sent: bool) -> None:
        self.done = done
        self.is_sent = is_sent  # to the client
        self.missing: set[str] = set()  # servers whose lists have not come
        self.slow_workers: set[str] = set()  # workers among them, which get the long timeout
        self.is_short_over = False  # the short timeout is over
        self.timers: tuple[Timer, ...] = ()


class Waiters:
    """Those who have asked for the merged list and wait: for servers, then for the client."""

    def __init__(
        self, loop: Loop, client: ClientConnection, answer: Callable[[Waiter], None]
    ) -> None:
        self._loop = loop
        self._client = client
        self._answer = answer
        self._waiting: list[Waiter] = []  # for servers
        self._ready: deque[Waiter] = deque()  # for the client alone

    def add(self, waiter: Waiter, patience: Patience) -> None:
        """Let somebody wait for the servers that are missing."""
        self._waiting.append(waiter)
        if waiter.missing:
            waiter.timers = (
                self._loop.call_later(patience.short, lambda: self._handle_short_timeout(waiter)),
                self._loop.call_later(patience.long, lambda: self._release(waiter)),
            )
        else:
            self._release(waiter)

    def handle_list(self, name: str) -> None:
        """Release those who have waited for the list of a server and wait for no other."""
        for waiter in [each for each in self._waiting if name in each.missing]:
            waiter.missing.discard(name)
            waiter.slow_workers.discard(name)
            if not waiter.missing or (waiter.is_short_over and not waiter.slow_workers):
                self._release(waiter)

    def _handle_short_timeout(self, waiter: Waiter) -> None:
        waiter.is_short_over = True
        if not waiter.slow_workers:
            self._release(waiter)

    def _release(self, waiter: Waiter) -> None:
        if waiter not in self._waiting:
            return
        self._waiting.remove(waiter)
        for timer in waiter.timers:
            timer.cancel()
        self._ready.append(waiter)
        self.deliver()

    def deliver(self) -> None:
        """Answer those who are ready, as long as the client has room."""
        while self._ready and self._client.has_room:
            self._answer(self._ready.popleft())
