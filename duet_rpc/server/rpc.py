"""The handler of `duet-rpc rpc`: a request names a method, and that is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.jsontext import dumps, write_id
from duet_rpc.jsonrpc.messages import Notification, Request, exact_member
from duet_rpc.jsonrpc.values import RawJson
from duet_rpc.methods.builtin import add_builtin
from duet_rpc.methods.registry import Registry
from duet_rpc.methods.stream import join
from duet_rpc.server.caller import ClientCaller, meta_of
from duet_rpc.server.dispatch import call, not_found, refuse
from duet_rpc.server.intake import CancelForm

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from duet_rpc.methods.stream import Pieces
    from duet_rpc.server.dispatch import Refused
    from duet_rpc.server.frames import Arrival
    from duet_rpc.server.intake import Call
    from duet_rpc.server.loop import Server

DISCOVER = "rpc.discover"
METHODS_CHANGED = "client/methodsChanged"
LISTS = frozenset({"listMethods", "describeMethods", DISCOVER})
"""The methods that show what the user's methods are."""

PROGRESS = "progressToken"
PARTIAL = "partialResultToken"


class RpcHandler:
    """Calls every method by its own name, the built-in ones among them."""

    cancel = CancelForm("$/cancelRequest", "id")
    answers_cancelled = True
    is_for_authors = True
    lists = LISTS

    def __init__(self, server: Server) -> None:
        self._server = server
        self.registry = Registry()
        stop = server.lifecycle.stop
        add_builtin(self.registry, server.log.set_level, lambda: stop("shutdown requested"))
        self._builtin = frozenset(self.registry)
        self.immediate: Collection[str] = {method.name for method in self._builtin} | {DISCOVER}
        self._known_version: int | None = None  # of the methods that the client knows

    @property
    def passed_on(self) -> tuple[bool, str | None, object]:
        """What a router has to know of this connection."""
        return self._known_version is not None, None, None

    def answer(self, arrival: Arrival, request: Call) -> str | Refused:
        """Call the method that the request names; report methods that the client does not know."""
        result = self._answer(arrival, request)
        known = self._known_version
        if request.method == DISCOVER and isinstance(result, str):
            self._known_version = self.registry.version
        elif known is not None and known != self.registry.version and isinstance(request, Request):
            self._known_version = None  # once: the client asks again, or does not care
            self._server.reports.notify(request, METHODS_CHANGED)
        return result

    def _answer(self, arrival: Arrival, request: Call) -> str | Refused:
        name, user_methods = request.method, self._server.user_methods
        is_list = name in self.lists
        if is_list or not (self.registry.is_builtin(name) or user_methods.is_current(name)):
            refused = self._server.refresh_methods(None if is_list else name)
            if refused is not None:
                return refused
        method = self.registry.get(name)
        if method is None:
            return not_found(name, user_methods.problems if self._server.author.debug else [])
        if method in self._builtin:
            return call(refuse, method.call, request.params)
        context = None
        if method.context is not None:
            caller = ClientCaller(self._server, request, meta_of(request.params).get("client"))
            context = self._server.reports.context(
                request, self._progress(arrival, request), caller
            )
        send = None
        if method.streams is not None:
            send = self._pieces(arrival, request, method.streams)
        result = self._server.run_method(method.call, request.params, context, send)
        if not isinstance(result, str) and result.details is not None:
            problem = user_methods.problem_of(name)
            if problem is not None:  # or its author would look for the wrong mistake
                result.details["problem"] = problem
        return result

    def reply_now(self, request: Request) -> str | None:  # noqa: ARG002
        """Return nothing: requests are answered in their order."""
        return None

    def notification(self, topic: str, params: str) -> Notification:
        """Return what tells the client of something at any time."""
        text = f'{{"topic":{dumps(topic)},"params":{params}}}'
        return Notification("client/notify", RawJson(text, None))

    def _progress(
        self, arrival: Arrival, request: Call
    ) -> Callable[[dict[str, object]], None] | None:
        send = self._report(arrival, request, PROGRESS)
        if send is None:
            return None
        paced = self._server.reports.pace(lambda reports: send(reports[-1]), only_newest=True)
        return lambda value: paced.add(dumps(value))

    def _pieces(
        self, arrival: Arrival, request: Call, kind: Pieces
    ) -> Callable[[str], None] | None:
        send = self._report(arrival, request, PARTIAL)
        if send is None:
            return None
        return self._server.reports.pace(lambda pieces: send(join(pieces, kind))).add

    def _report(self, arrival: Arrival, request: Call, name: str) -> Callable[[str], None] | None:
        """Return the function that sends a report of some kind, where the caller wants them."""
        token = find_token(arrival, request, name)
        if token is None:
            return None
        text = write_id(token)
        return lambda value: self._server.reports.notify(
            request, "$/progress", f'{{"token":{text},"value":{value}}}'
        )


def find_token(arrival: Arrival, request: Call, name: str = PROGRESS) -> str | int | float | None:
    """Return the token under which the caller wants reports of some kind, as it is spelled."""
    token = meta_of(request.params).get(name)
    if type(token) not in (str, int, float):
        return None
    return exact_member(arrival.body, ("params", "_meta", name), token)
