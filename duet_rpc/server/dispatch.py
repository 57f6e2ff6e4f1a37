"""A call in, its result or its refusal out. Whatever a method does, `call` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.errors import INTERNAL_ERROR, REQUEST_CANCELLED, Error, RpcError
from duet_rpc.jsonrpc.jsontext import dumps
from duet_rpc.jsonrpc.limits import RECEIVED_MAX
from duet_rpc.methods.context import Cancelled
from duet_rpc.methods.registry import BadResult

if TYPE_CHECKING:
    from collections.abc import Callable

CANCELLED = Error.of(REQUEST_CANCELLED)


class Refused:
    """A call that has no result: the error to send, and what was raised, for the log."""

    __slots__ = ("cause", "error")

    def __init__(self, error: Error, cause: BaseException | None = None) -> None:
        self.error = error
        self.cause = cause


def not_found(method: str) -> Refused:
    """Refuse a call of an unknown method."""
    name = "".join(c if c.isprintable() else "?" for c in method[:RECEIVED_MAX])
    return Refused(Error.method_not_found(name))


def call(function: Callable[..., str], *arguments: object) -> str | Refused:
    """Call a function that returns JSON text; return that, or why there is none.

    All code that is not ours is called through here.
    """
    try:
        try:
            return function(*arguments)
        except RpcError as error:
            refused = Error(error.code, error.message, error.data)
            dumps([refused.message, refused.data])  # or it is a failure of its own
            return Refused(refused)
    except Cancelled:
        return Refused(CANCELLED)
    except BadResult as error:  # raised in our code, but not by it
        return Refused(Error.of(INTERNAL_ERROR), error.with_traceback(None))
    except BaseException as error:  # noqa: BLE001 - SystemExit too: a method does not end the daemon
        return Refused(Error.of(INTERNAL_ERROR), error)
