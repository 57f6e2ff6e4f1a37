"""All that MCP servers offer, of all kinds, and which server has what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.gateway.backend import SEPARATOR
from duet_rpc.gateway.dialects import MCP
from duet_rpc.gateway.entries import KINDS, RESOURCES, TEMPLATES, TOOLS
from duet_rpc.gateway.lists import ServerLists

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.entries import Kind
    from duet_rpc.gateway.kept import KeptLists
    from duet_rpc.gateway.runtime import Runtime


class Catalog:
    """The lists of all kinds."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        runtime: Runtime,
        fresh_id: Callable[[], int],
        kept: KeptLists | None,
    ) -> None:
        self._backends = backends
        self.kept = kept  # lists of the last time; None: not used
        self._lists = {
            kind: ServerLists(kind, backends, runtime, fresh_id, kept) for kind in KINDS.values()
        }

    def __getitem__(self, kind: Kind) -> ServerLists:
        return self._lists[kind]

    def on_change(self, announce: Callable[[Kind], object]) -> None:
        """Call a function when a list is another than the one that was sent last."""
        for kind, lists in self._lists.items():
            lists.on_change = lambda kind=kind: announce(kind)  # type: ignore[misc]

    def handle_gone(self, backend: Backend) -> None:
        """Request the lists of a server that has exited again next time."""
        for lists in self._lists.values():
            lists.handle_gone(backend)

    def handle_ready(self, name: str) -> None:
        """Request the lists of a server that were missing."""
        for lists in self._lists.values():
            lists.handle_ready(name)

    def deliver(self) -> None:
        """Call those that wait for lists, as long as the client has room for them."""
        for lists in self._lists.values():
            lists.deliver()

    def find_named(self, name: str, kind: Kind) -> tuple[Backend, str] | None:
        """Return the server that `NAME__x` names, and the name of the entry there."""
        server, _, own = name.partition(SEPARATOR)
        backend = self._backends.get(server)
        if backend is None or backend.dialect is not MCP or not own:
            return None
        return (backend, own) if kind is not TOOLS or backend.settings.offers(own) else None

    def find_resource(self, uri: str) -> Backend | None:
        """Return the server that has listed a URI, or whose template fits it best."""
        for entry in self._lists[RESOURCES].merge().entries:
            if entry.own_name == uri:
                return self._backends.get(entry.backend)
        found = None
        most = -1
        for entry in self._lists[TEMPLATES].merge().entries:
            literal = match_template(entry.own_name, uri)
            if literal > most:
                found, most = self._backends.get(entry.backend), literal
        return found


def match_template(template: str, uri: str) -> int:
    """Return how many characters of a URI a template fixes, -1 where it does not match.

    The parts in braces are taken to stand for anything, in whatever way they are expanded.
    """
    parts = []
    rest = template
    while "{" in rest and "}" in rest.partition("{")[2]:
        before, _, rest = rest.partition("{")
        parts.append(before)
        rest = rest.partition("}")[2]
    if not parts:
        return len(uri) if template == uri else -1
    at = len(parts[0])
    if not uri.startswith(parts[0]) or not uri[at:].endswith(rest):
        return -1
    end = len(uri) - len(rest)
    for part in parts[1:]:
        found = uri.find(part, at, end)
        if found < 0:
            return -1
        at = found + len(part)
    return sum(map(len, parts)) + len(rest)
