"""A request in, its result or its failure out. Whatever a method does, this returns."""

from __future__ import annotations

from duet_rpc.jsonrpc.errors import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    TITLES,
    RpcError,
)
from duet_rpc.jsonrpc.limits import RECEIVED_MAX
from duet_rpc.jsonrpc.messages import Failure, to_json
from duet_rpc.methods.context import Cancelled
from duet_rpc.methods.registry import BadResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.jsonrpc.messages import Request
    from duet_rpc.methods.registry import Method, Registry


def find(registry: Registry, request: Request) -> Method | Failure:
    """Find the method that a request names."""
    return registry.find(request.method) or not_found(request)


def not_found(request: Request) -> Failure:
    """Say that there is no such method."""
    name = "".join(c if c.isprintable() else "?" for c in request.method[:RECEIVED_MAX])
    return Failure(request.id, METHOD_NOT_FOUND, f"{TITLES[METHOD_NOT_FOUND]}: {name}")


def call(id: str | None, run: Callable[..., bytes], *arguments: object) -> bytes | Failure:
    """Run a method; return its result as JSON, or what to say instead."""
    try:
        try:
            return run(*arguments)
        except RpcError as error:
            to_json([error.code, error.message, error.data])  # or it is a failure of its own
            return Failure(id, error.code, error.message, error.data)
    except Cancelled:
        return Failure(id, REQUEST_CANCELLED, TITLES[REQUEST_CANCELLED])
    except BadResult as error:  # raised in our code, but not by it
        cause = error.with_traceback(None)
        return Failure(id, INTERNAL_ERROR, TITLES[INTERNAL_ERROR], cause=cause)
    except BaseException as error:  # noqa: BLE001 - SystemExit too: a method does not end the daemon
        return Failure(id, INTERNAL_ERROR, TITLES[INTERNAL_ERROR], cause=error)
