"""A call in, its result or its refusal out. Whatever a method does, `call` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.errors import INTERNAL_ERROR, REQUEST_CANCELLED, Error, RpcError
from duet_rpc.jsonrpc.jsontext import dumps, loads
from duet_rpc.jsonrpc.limits import RECEIVED_MAX
from duet_rpc.methods.context import Cancelled
from duet_rpc.methods.method import BadResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CANCELLED = Error.of(REQUEST_CANCELLED)


class Refused:
    """A call that has no result: the error to send, and what was raised, for the log.

    `details` is what the author is told of that, where the author is listening.
    """

    __slots__ = ("cause", "details", "error")

    def __init__(self, error: Error, cause: BaseException | None = None) -> None:
        self.error = error
        self.cause = cause
        self.details: dict[str, str] | None = None


def not_found(method: str, problems: Sequence[str] = ()) -> Refused:
    """Refuse a call of an unknown method; it may be in one of the files that don't load."""
    name = "".join(c if c.isprintable() else "?" for c in method[:RECEIVED_MAX])
    error = Error.method_not_found(name)
    if problems:
        error = Error(error.code, error.message, {"problems": [*problems]})
    return Refused(error)


def refuse(function: Callable[..., str], *arguments: object) -> str | Refused:
    """Call a function; return its result, or the refusal that it raises as an `RpcError`.

    The parts of that may be the user's code.
    """
    try:
        return function(*arguments)
    except RpcError as error:
        refused = Error(error.code, error.message, error.data)
        # What can't be written is a failure of its own; and what can may be another when it is
        # written again.
        plain = loads(dumps([refused.code, refused.message, refused.data]))
        return Refused(Error(*plain))


def call(function: Callable[..., str | Refused], *arguments: object) -> str | Refused:
    """Call a function that returns JSON text; return that, or why there is none.

    All code that is not ours is called through here. What may raise an `RpcError` is called by
    `refuse` inside of it.
    """
    try:
        return function(*arguments)
    except Cancelled:
        return Refused(CANCELLED)
    except BadResult as error:  # raised in our code, but not by it
        return Refused(Error.of(INTERNAL_ERROR), error.with_traceback(None))
    except BaseException as error:  # noqa: BLE001 - SystemExit too: a method does not end the daemon
        return Refused(Error.of(INTERNAL_ERROR), error)
