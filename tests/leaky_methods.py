"""Methods that fail with what they were given in the message of their exception."""

from __future__ import annotations

import os
from typing import Any

from duet_rpc import Context, RpcError, method


@method
def repeat(token: str) -> None:
    """Repeat it in the message."""
    raise ValueError(f"bad token {token!r}, that is {token}")


@method
def number(token: str) -> int:
    """Let Python repeat it."""
    return int(token)


@method
def key(tokens: dict[str, Any]) -> None:
    """Repeat the keys and what is deep inside."""
    raise KeyError(list(tokens), tokens)


@method
def refuse(token: str) -> None:
    """Refuse the call and say why to the caller, who knows it."""
    raise RpcError(-32001, f"no such token: {token}", {"token": token})


@method
def open_it(token: str) -> None:
    """Name a file that is not there."""
    os.remove(os.path.join("/nowhere", token, "file"))


@method
def careful(token: str, ctx: Context) -> int:
    """Get it, and say nothing."""
    ctx.progress(1, 2, token)
    return len(token)
