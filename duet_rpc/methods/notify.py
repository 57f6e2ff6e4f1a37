"""`duet_rpc.notify`: tell the client something that it did not ask for, at any time.

It belongs to no call, so there is no `Context` to send it through: the process has one client,
and the server says here how to reach it. Without a server, as under pytest, nobody is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_send: list[Callable[[str, object], None]] = []
"""How to reach the client: one function, or none."""


def notify(topic: str, params: object = None) -> None:
    """Send a message of some topic to the client, from any thread, at any time.

    In Emacs it goes to the functions of `(duet-rpc-handle TOPIC FUNCTION)`; in a terminal it is a
    line on stderr. `params` is whatever a method could return.
    """
    if not isinstance(topic, str):
        raise TypeError(f"topic must be str, not {type(topic).__name__}")
    for send in _send:
        send(topic, params)


def connect(send: Callable[[str, object], None]) -> Callable[[], None]:
    """Send notifications with a function; return how to go back."""
    before = _send[:]
    _send[:] = [send]

    def disconnect() -> None:
        _send[:] = before

    return disconnect
