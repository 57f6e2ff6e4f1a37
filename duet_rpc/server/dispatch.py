"""A request in, its result or its failure out. Whatever a method does, this returns."""

from __future__ import annotations

from duet_rpc.methods.context import Cancelled
from duet_rpc.methods.registry import BadResult
from duet_rpc.protocol.errors import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    TITLES,
    RpcError,
)
from duet_rpc.protocol.limits import RECEIVED_MAX
from duet_rpc.protocol.messages import Failure, to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from duet_rpc.methods.context import Context
    from duet_rpc.methods.registry import Method, Registry
    from duet_rpc.protocol.messages import Request


def find(registry: Registry, request: Request) -> Method | Failure:
    """Find the method that a request names."""
    method = registry.find(request.method)
    if method is not None:
        return method
    name = "".join(c if c.isprintable() else "?" for c in request.method[:RECEIVED_MAX])
    return Failure(request.id, METHOD_NOT_FOUND, f"{TITLES[METHOD_NOT_FOUND]}: {name}")


def call(method: Method, request: Request, context: Context | None = None) -> bytes | Failure:
    """Call a method; return its result as JSON, or what to say instead."""
    try:
        try:
            return method.call(request.params, context)
        except RpcError as error:
            to_json([error.code, error.message, error.data])  # or it is a failure of its own
            return Failure(request.id, error.code, error.message, error.data)
    except Cancelled:
        return Failure(request.id, REQUEST_CANCELLED, TITLES[REQUEST_CANCELLED])
    except BadResult as error:  # raised in our code, but not by it
        return Failure(
            request.id, INTERNAL_ERROR, TITLES[INTERNAL_ERROR], cause=error.with_traceback(None)
        )
    except BaseException as error:  # noqa: BLE001 - SystemExit too: a method does not end the daemon
        return Failure(request.id, INTERNAL_ERROR, TITLES[INTERNAL_ERROR], cause=error)
