"""The handler of `duet-rpc rpc`: a request names a method, and that is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.jsontext import dumps, write_id
from duet_rpc.jsonrpc.messages import exact_member
from duet_rpc.methods.builtin import add_builtin
from duet_rpc.methods.registry import Registry
from duet_rpc.server.dispatch import call, not_found
from duet_rpc.server.intake import CancelForm

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.server.dispatch import Refused
    from duet_rpc.server.intake import Arrival
    from duet_rpc.server.loop import Call, Server

TOKEN = ("_meta", "progressToken")


class RpcHandler:
    """Calls every method by its own name, the built-in ones among them."""

    cancel = CancelForm("$/cancelRequest", "id")
    answers_cancelled = True

    def __init__(self, server: Server) -> None:
        self._server = server
        self.registry = Registry()
        stop = server.lifecycle.stop
        add_builtin(self.registry, server.log.set_level, lambda: stop("shutdown requested"))
        self._builtin = frozenset(self.registry)

    def answer(self, arrival: Arrival, request: Call) -> str | Refused:
        """Call the method that the request names."""
        method = self.registry.find(request.method)
        if method is None:
            return not_found(request.method)
        if method in self._builtin:
            return call(method.call, request.params)
        context = None
        if method.context is not None:
            context = self._server.context(request, self._progress(arrival, request))
        return self._server.run_method(method.call, request.params, context)

    def _progress(
        self, arrival: Arrival, request: Call
    ) -> Callable[[dict[str, object]], None] | None:
        token = find_token(arrival, request)
        if token is None:
            return None
        text = write_id(token)
        return lambda value: self._server.notify(
            request, "$/progress", f'{{"token":{text},"value":{dumps(value)}}}'
        )


def find_token(arrival: Arrival, request: Call) -> str | int | float | None:
    """Return the token under which the caller wants to hear of progress, as it is spelled."""
    meta = request.params.get(TOKEN[0]) if isinstance(request.params, dict) else None
    token = meta.get(TOKEN[1]) if isinstance(meta, dict) else None
    if type(token) not in (str, int, float):
        return None
    return exact_member(arrival.body, ("params", *TOKEN), token)
