"""What MCP servers say about how to use them, as one text for the client.

A client is told so in the reply to its `initialize` or `server/discover`, and the servers are told
of the client in that request. So for a moment the reply waits for servers that have never been
seen before; of all others it has what they said the last time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.gateway.backend import SEPARATOR
from duet_rpc.gateway.state import State
from duet_rpc.jsonrpc.jsontext import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.kept import KeptLists
    from duet_rpc.gateway.loop import Loop, Timer

    Done = Callable[[str], None]

MEMBER = "instructions"
EACH_MAX = 4_000
TOTAL_MAX = 16_000
"""Characters of one server, and of all: a model reads them before anything else."""


class Instructions:
    """The instructions of all servers, and who waits for those that are not known."""

    def __init__(self, backends: Mapping[str, Backend], loop: Loop, kept: KeptLists | None) -> None:
        self._backends = backends
        self._loop = loop
        self._kept = kept
        self._waiting: dict[Timer, Done] = {}

    def collect(self, seconds: float, done: Done) -> None:
        """Call a function with the merged text, when all servers are known or time is up."""
        if None not in self._texts().values():
            done(self._merge())
            return
        timer = self._loop.call_later(seconds, lambda: self._release(timer))
        self._waiting[timer] = done

    def handle_state(self, backend: Backend) -> None:
        """Keep what a server says that is ready, and release those who have waited for it."""
        if backend.state is State.READY and self._kept is not None and is_foreign(backend):
            text = backend.session.instructions
            self._kept.write(backend, MEMBER, [dumps({MEMBER: text})] if text else [])
        if self._waiting and None not in self._texts().values():
            for timer in [*self._waiting]:
                self._release(timer)

    def _release(self, timer: Timer) -> None:
        timer.cancel()
        self._waiting.pop(timer)(self._merge())

    def _texts(self) -> dict[str, str | None]:
        """Return what each server says; None where that is not known and may be soon."""
        return {
            name: self._find(backend)
            for name, backend in self._backends.items()
            if is_foreign(backend)
        }

    def _find(self, backend: Backend) -> str | None:
        if backend.session.handshake is not None:
            return backend.session.instructions
        kept = None if self._kept is None else self._kept.read(backend, MEMBER)
        if kept is not None:
            value = loads(kept[0]) if kept else {}
            text = value.get(MEMBER) if isinstance(value, dict) else None
            return text if isinstance(text, str) else ""
        return None if backend.refusal() is None else ""

    def _merge(self) -> str:
        return merge({name: text for name, text in self._texts().items() if text})


def is_foreign(backend: Backend) -> bool:
    """Return whether a backend is somebody else's server, and not a worker of the user's."""
    return backend.settings.kind != "worker"


def merge(texts: Mapping[str, str]) -> str:
    """Return the texts of several servers, each cut to its share, below a heading."""
    share = min(EACH_MAX, TOTAL_MAX // max(1, len(texts)))
    parts = []
    for name, text in texts.items():
        rest = len(text) - share
        shown = text if rest <= 0 else f"{text[:share]}… ({rest} more characters)"
        prefix = f"(The names of its tools and prompts begin with `{name}{SEPARATOR}` here.)"
        parts.append(f"# {name}\n\n{prefix}\n\n{shown}")
    return "\n\n".join(parts)
