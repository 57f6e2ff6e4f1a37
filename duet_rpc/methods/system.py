"""A bundled pack, loaded by its name: `duet-rpc rpc --methods system`."""

from __future__ import annotations

from duet_rpc import method


@method("system.ping")
def ping() -> str:
    """Answer "pong"."""
    return "pong"


@method("system.echo")
def echo(message: str) -> str:
    """Answer with the message."""
    return message
