"""Requests the list of one kind from servers, page by page.

A list may be large, so it is read a few entries at a time: others have their turn in between. One
that changes while it is requested is requested again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.gateway.entries import TOOLS, Entry
from duet_rpc.gateway.pending import Call, is_made_here
from duet_rpc.gateway.state import State
from duet_rpc.gateway.wire import raw
from duet_rpc.jsonrpc.jsontext import split_array, split_object
from duet_rpc.jsonrpc.limits import BODY_MAX
from duet_rpc.jsonrpc.messages import Failure
from duet_rpc.jsonrpc.values import RawJson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.entries import Kind
    from duet_rpc.gateway.loop import Loop
    from duet_rpc.gateway.pending import Outcome
    from duet_rpc.jsonrpc.jsontext import Members

    Done = Callable[[Backend, "list[Entry] | None", bool], None]

PAGES_MAX = 100
TURN = 100  # entries of one server that are read before anything else has its turn
ATTEMPTS_MAX = 3  # at a list that changes while it is requested


class ListReader:
    """The lists of one kind that are being requested."""

    def __init__(self, kind: Kind, loop: Loop, fresh_id: Callable[[], int], done: Done) -> None:
        self._kind = kind
        self._loop = loop
        self._fresh_id = fresh_id
        self._done = done  # called with the entries, None where they can't be had; and if outdated
        self._listings: dict[str, Listing] = {}  # by server

    def request(self, backend: Backend) -> bool:
        """Request a server's list, unless that is being done; return whether it is coming."""
        name = backend.name
        if name not in self._listings and backend.refusal() is None:
            self._listings[name] = Listing()
            if backend.state is State.READY and not self._is_offered(backend):
                self._end(backend, [])
            else:
                self._request_page(backend, None)
        return name in self._listings  # a request may fail at once

    def handle_changed(self, name: str) -> None:
        """Request a list again that is being requested."""
        if name in self._listings:
            self._listings[name].changed = True

    def handle_gone(self, backend: Backend) -> None:
        """Stop reading the list of a server that has exited; a request fails by itself."""
        listing = self._listings.get(backend.name)
        if listing is not None and listing.unread is not None:
            self._end(backend, None)

    def read(self, backend: Backend, texts: list[str]) -> list[Entry]:
        """Return the entries that a server had the last time."""
        listing = Listing()
        for text in texts:
            listing.add(backend, self._kind, text)
        return list(listing.entries.values())

    def _is_offered(self, backend: Backend) -> bool:
        """Return whether a server has anything of this kind; tools may be there unannounced."""
        return self._kind is TOOLS or self._kind.capability in backend.session.capabilities

    def _end(self, backend: Backend, entries: list[Entry] | None) -> None:
        listing = self._listings.pop(backend.name)
        self._done(backend, entries, listing.changed)

    def _request_page(self, backend: Backend, cursor: str | None) -> None:
        params = None if cursor is None else raw(f'{{"cursor":{cursor}}}')
        call = Call(self._kind.method, lambda outcome: self._handle_page(backend, outcome, cursor))
        backend.request(self._fresh_id(), call, params)

    def _handle_page(self, backend: Backend, outcome: Outcome, cursor: str | None) -> None:
        listing = self._listings[backend.name]
        if isinstance(outcome, Failure):
            # A server that has nothing of this kind may refuse to list it.
            self._end(backend, None if is_made_here(outcome) else [])
            return
        result = outcome.result
        if not isinstance(result, RawJson) or not isinstance(result.value, dict):
            self._end(backend, None)
            return
        if listing.changed and listing.attempts < ATTEMPTS_MAX:
            listing.begin_again()
            self._request_page(backend, None)
            return
        members, text = split_object(result.text)[0], result.text
        entries = _text_of(members, text, self._kind.member)
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
            listing.add(backend, self._kind, text)
        else:
            self._loop.call_soon(lambda: self._read_entries(backend, listing, following))
            return
        listing.unread = None
        if following and listing.pages < PAGES_MAX and listing.size < BODY_MAX:
            self._request_page(backend, following)
            return
        listing.report(backend, self._kind, is_cut=following is not None)
        self._end(backend, list(listing.entries.values()))


class Listing:
    """What a server has listed so far."""

    __slots__ = ("attempts", "changed", "entries", "left_out", "pages", "size", "unread")

    def __init__(self) -> None:
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


def _text_of(members: Members, text: str, name: str) -> str:
    found = members.get(name)
    return "" if found is None else text[found[1] : found[2]]
