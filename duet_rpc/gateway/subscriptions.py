"""Notifications of changed lists and updated resources: who has subscribed, and at which server.

A client of the handshake era is notified of lists without asking, and of resources that it has
subscribed to. One of the stateless era opens a stream (`subscriptions/listen`, a request that is
not answered) and names there what it subscribes to. Servers are subscribed to in the same two ways.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from duet_rpc.gateway.entries import CHANGED
from duet_rpc.gateway.eras import PREFIX
from duet_rpc.gateway.pending import Call
from duet_rpc.gateway.state import State
from duet_rpc.gateway.wire import params_of, raw, value_at
from duet_rpc.jsonrpc.jsontext import dumps, write_id
from duet_rpc.jsonrpc.limits import PENDING_MAX
from duet_rpc.jsonrpc.messages import Notification, Success
from duet_rpc.mcp.session import invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.catalog import Catalog
    from duet_rpc.gateway.client_requests import ClientRequests
    from duet_rpc.gateway.entries import Kind
    from duet_rpc.gateway.pending import Outcome
    from duet_rpc.jsonrpc.messages import Id, Message, Request

LISTEN = "subscriptions/listen"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
SUBSCRIBE = "resources/subscribe"
UNSUBSCRIBE = "resources/unsubscribe"
UPDATED = "notifications/resources/updated"
FIELDS = {method: f"{kinds[0].capability}ListChanged" for method, kinds in CHANGED.items()}
"""The member of a stream's filter that wants a notification."""


class Stream(NamedTuple):
    """A `subscriptions/listen` of the client, and what it subscribes to."""

    client_id: Id
    fields: frozenset[str]  # of lists
    uris: frozenset[str]


class Subscriptions:
    """Notifies the client of changes, and subscribes at the servers to what it has asked for."""

    def __init__(
        self, catalog: Catalog, requests: ClientRequests, send: Callable[[Message], None]
    ) -> None:
        self._catalog = catalog
        self._requests = requests
        self._send = send  # to the client
        self._streams: dict[int, Stream] = {}
        self._uris: set[str] = set()  # subscribed to without a stream
        self._at_servers: dict[str, tuple[Backend, int]] = {}  # by URI; and the id of a stream
        self._announced: set[Kind] = set()  # lists that the client has not asked for since

    # Subscriptions of the client.

    def listen(self, request: Request) -> None:
        """Open a stream of notifications, and acknowledge what will be sent on it."""
        wanted = value_at(params_of(request), "notifications")
        if not isinstance(wanted, dict):
            raise invalid("notifications must be an object")
        uris = wanted.get("resourceSubscriptions", [])
        if not isinstance(uris, list) or not all(isinstance(each, str) for each in uris):
            raise invalid("resourceSubscriptions must be an array of strings")
        id = self._requests.begin_own(request)
        if id is None:
            return
        fields = frozenset(each for each in FIELDS.values() if wanted.get(each) is True)
        known = [each for each in uris if self._find(each) is not None]
        for each in known:
            self._subscribe(each, lambda _outcome: None)
        self._streams[id] = stream = Stream(request.id, fields, frozenset(known))
        honored: dict[str, object] = dict.fromkeys(sorted(fields), True)
        if known:
            honored["resourceSubscriptions"] = known
        self._send_to(stream, ACKNOWLEDGED, {"notifications": honored})

    def subscribe(self, uri: str, done: Callable[[Outcome], None]) -> None:
        """Subscribe a client of the handshake era; call a function with the outcome."""
        self._uris.add(uri)
        if not self._subscribe(uri, done):
            done(Success(None, raw("{}")))

    def unsubscribe(self, uri: str) -> None:
        """Undo a subscription of a client of the handshake era."""
        self._uris.discard(uri)
        self._prune()

    def _open_streams(self) -> list[Stream]:
        """Return the streams that the client has not cancelled."""
        for id in [id for id in self._streams if not self._requests.is_own(id)]:
            del self._streams[id]
        return list(self._streams.values())

    # Notifications to the client.

    def announce(self, kind: Kind, has_handshake: bool) -> None:
        """Announce a changed list, once until the client asks for it: servers may do so often."""
        method = f"notifications/{kind.capability}/list_changed"
        if self._announced.issuperset(CHANGED[method]):
            return
        wanting = [each for each in self._open_streams() if FIELDS[method] in each.fields]
        if has_handshake:
            self._send(Notification(method))
        else:
            for stream in wanting:
                self._send_to(stream, method, {})
        if has_handshake or wanting:
            self._announced.update(CHANGED[method])

    def handle_listed(self, kind: Kind) -> None:
        """Note that the client asks for a list: it is to be told of the next change."""
        self._announced.discard(kind)

    def handle_updated(self, uri: object, has_handshake: bool) -> None:
        """Notify the client of an updated resource, where it has subscribed to that."""
        if has_handshake and uri in self._uris:
            self._send(Notification(UPDATED, raw(dumps({"uri": uri}))))
        for stream in self._open_streams():
            if uri in stream.uris:
                self._send_to(stream, UPDATED, {"uri": uri})
        self._prune()

    def _send_to(self, stream: Stream, method: str, params: dict[str, object]) -> None:
        meta = f'"_meta":{{"{PREFIX}subscriptionId":{write_id(stream.client_id)}}}'
        rest = dumps(params)[1:]
        self._send(Notification(method, raw(f"{{{meta}{',' if params else ''}{rest}")))

    # Subscriptions at the servers.

    def _find(self, uri: str) -> Backend | None:
        return self._catalog.find_resource(uri)

    def _subscribe(self, uri: str, done: Callable[[Outcome], None]) -> bool:
        """Subscribe at the server of a resource; return whether an outcome follows."""
        backend = self._find(uri)
        if backend is None or uri in self._at_servers or len(self._at_servers) >= PENDING_MAX:
            return False
        self._subscribe_at(backend, uri, done)
        return not backend.session.is_stateless

    def _subscribe_at(self, backend: Backend, uri: str, done: Callable[[Outcome], None]) -> None:
        id = self._requests.fresh_id()
        self._at_servers[uri] = (backend, id)
        if backend.session.is_stateless:
            self._open_stream_at(backend, id, {"resourceSubscriptions": [uri]})
        else:
            backend.request(id, Call(SUBSCRIBE, done), raw(dumps({"uri": uri})))

    def _open_stream_at(self, backend: Backend, id: int, wanted: dict[str, object]) -> None:
        call = Call(LISTEN, lambda _outcome: None)
        backend.request(id, call, raw(dumps({"notifications": wanted})), timed=False)

    def _prune(self) -> None:
        """Unsubscribe, at the servers, from resources that nobody is subscribed to any more."""
        wanted = self._uris.union(*(each.uris for each in self._open_streams()))
        for uri in [uri for uri in self._at_servers if uri not in wanted]:
            backend, id = self._at_servers.pop(uri)
            if backend.session.is_stateless:
                backend.cancel(id)
            elif backend.state is State.READY:
                call = Call(UNSUBSCRIBE, lambda _outcome: None)
                backend.request(self._requests.fresh_id(), call, raw(dumps({"uri": uri})))

    def handle_ready(self, backend: Backend) -> None:
        """Subscribe again at a server that has started: its lists, and the client's resources."""
        if backend.session.is_stateless:
            capabilities = backend.session.capabilities
            fields = {
                FIELDS[method]: True
                for method, kinds in CHANGED.items()
                if kinds[0].capability in capabilities
            }
            self._open_stream_at(backend, self._requests.fresh_id(), {**fields})
        for uri, (other, _) in [*self._at_servers.items()]:
            if other is backend:
                self._subscribe_at(backend, uri, lambda _outcome: None)
