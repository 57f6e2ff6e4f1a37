"""The face of `duet-rpc rpc`: a request names a method, and that is called."""

from __future__ import annotations

from duet_rpc.jsonrpc.messages import Failure
from duet_rpc.methods.builtin import add_builtin
from duet_rpc.methods.registry import Registry
from duet_rpc.server import dispatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.jsonrpc.messages import Request
    from duet_rpc.server.daemon import Daemon


class RpcFace:
    """Every method by its own name, the built-in ones among them."""

    command = "rpc"
    cancel = "$/cancelRequest"
    cancel_id = "id"
    answers_cancelled = True

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.registry = Registry()
        add_builtin(self.registry, daemon.log.set_level, daemon.shut_down)
        self._quick = frozenset(self.registry)
        self._fixed: dict[str, bytes] = {}

    def answer(self, request: Request) -> bytes | Failure:
        """Call the method that the request names."""
        # A fixed result goes straight into its reply: a sixth off each of a burst.
        if not request.params and request.method in self._fixed:
            result = self._fixed[request.method]
            piece = self._daemon.piece
            if piece is not None:
                self._daemon.repeats(piece, request.method, result)
            return result
        method = dispatch.find(self.registry, request)
        if isinstance(method, Failure):
            return method
        if method in self._quick:
            outcome = dispatch.call(request.id, method.call, request.params)
            if method.constant and type(outcome) is bytes:
                self._fixed[method.name] = outcome
            return outcome
        context = None
        if method.context is not None:
            context = self._daemon.context(request, self._progress(request))
        return self._daemon.run_method(request, method.call, request.params, context)

    def _progress(self, request: Request) -> Callable[[dict[str, object]], None] | None:
        meta = request.params.get("_meta") if isinstance(request.params, dict) else None
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        if type(token) not in (str, int, float):
            return None
        return lambda value: self._daemon.notify(
            request, "$/progress", {"token": token, "value": value}
        )
