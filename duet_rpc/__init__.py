"""duet-rpc: write an Emacs command in Python.

    from duet_rpc import method

    @method
    def word_count(text: str) -> int:
        '''Count the words of a text.'''
        return len(text.split())

The version stands here and nowhere else; packaging, `duet-rpc version` and the
`version` method all read it.
"""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["Context", "RpcError", "__version__", "method"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol, TypeVar, overload

    from duet_rpc.jsonrpc.errors import RpcError
    from duet_rpc.methods.context import Context

    F = TypeVar("F", bound=Callable[..., object])

    class Decorator(Protocol):
        """`@method` and `@method("its.name")`, for a type checker."""

        @overload
        def __call__(self, function: F, /) -> F: ...
        @overload
        def __call__(
            self,
            name: str = ...,
            /,
            *,
            title: str | None = None,
            read_only: bool | None = None,
            destructive: bool | None = None,
            idempotent: bool | None = None,
            open_world: bool | None = None,
        ) -> Callable[[F], F]: ...

    method: Decorator


def __getattr__(name: str) -> object:
    # The daemon imports this package first thing and must not pay for what it exports.
    if name == "method":
        from duet_rpc.methods.declare import method

        return method
    if name == "Context":
        from duet_rpc.methods.context import Context

        return Context
    if name == "RpcError":
        from duet_rpc.jsonrpc.errors import RpcError

        return RpcError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
