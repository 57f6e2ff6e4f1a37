"""Methods that the Emacs tests call."""

from __future__ import annotations

from duet_rpc import Context, RpcError, method


@method
def forever() -> None:
    """Never end."""
    while True:
        pass


@method("count.slowly")
def count_slowly(to: int, ctx: Context) -> int:
    """Count, and report each step."""
    for number in range(to):
        ctx.progress(number + 1, to, f"step {number + 1}")
    return to


@method
def refuse(why: str) -> None:
    """Refuse the call."""
    raise RpcError(-32001, f"No: {why}", {"why": why})
