"""The methods that the router answers itself: the built-in ones, and `gateway/…`."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from duet_rpc.failures import describe
from duet_rpc.gateway.methods import add_methods
from duet_rpc.gateway.wire import params_of, raw
from duet_rpc.jsonrpc.errors import TITLES
from duet_rpc.jsonrpc.jsontext import write_id
from duet_rpc.jsonrpc.messages import Failure, Request, Success
from duet_rpc.methods.builtin import add_builtin
from duet_rpc.methods.registry import Registry
from duet_rpc.server import dispatch
from duet_rpc.server.dispatch import Refused
from duet_rpc.server.user_methods import add_reload

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.gateway.backend import Backend
    from duet_rpc.jsonrpc.messages import Message, Notification
    from duet_rpc.log import Log


class OwnMethods:
    """Answers what needs neither a worker nor a backend."""

    def __init__(
        self,
        backends: dict[str, Backend],
        log: Log,
        send: Callable[[Message], None],
        pending_count: Callable[[], int],
        set_level: Callable[[str], None],
        stop: Callable[[], None],
    ) -> None:
        self._backends = backends
        self._log = log
        self._send = send  # to the client
        self._names: list[str] = []  # of workers and backends, as of the last call
        self.registry = Registry()
        add_builtin(self.registry, set_level, stop)
        add_reload(self.registry, lambda: None, lambda file: file)  # checks of their params
        add_methods(self.registry, backends, self._names, pending_count)

    def has(self, name: str) -> bool:
        """Return whether a method is one of these."""
        return self.registry.get(name) is not None

    def run(self, message: Request | Notification) -> str | Refused:
        """Return the result of a method, as JSON text."""
        self._names[:] = self._backends
        params = params_of(message)
        method = self.registry.get(message.method)
        if method is None:
            return dispatch.not_found(message.method)
        given = None if params is None else params.value
        return dispatch.call(dispatch.refuse, method.call, given)

    def call(self, message: Request | Notification) -> None:
        """Call a method and reply."""
        started = monotonic()
        result = self.run(message)
        if isinstance(result, Refused):
            refuse(message, result, self._log, self._send)
        elif isinstance(message, Request):
            took = (monotonic() - started) * 1000
            self._log.debug(f"answered in {took:.1f} ms", message.method, write_id(message.id))
            self._send(Success(message.id, raw(result)))


def refuse(
    message: Request | Notification, refused: Refused, log: Log, send: Callable[[Message], None]
) -> None:
    """Log why a message is refused, and reply to a request."""
    error = refused.error
    id = write_id(message.id) if isinstance(message, Request) else None
    if refused.cause is not None:
        log.error(f"{error.message}: {describe(refused.cause)}", message.method, id)
    elif log.logs_refusals:
        title = TITLES.get(error.code, f"refused with error {error.code}")
        log.warn(title, message.method, id)
    if isinstance(message, Request):
        send(Failure(message.id, error))
