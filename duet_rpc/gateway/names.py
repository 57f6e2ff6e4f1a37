"""The names that an MCP client knows things by, and which server each of them belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.gateway.entries import KINDS, NAMED, PROMPTS, rename, rename_call
from duet_rpc.gateway.wire import raw, value_at
from duet_rpc.jsonrpc.jsontext import dumps, replace
from duet_rpc.jsonrpc.limits import RECEIVED_MAX
from duet_rpc.mcp.session import CACHE, finish, invalid
from duet_rpc.mcp.tools import NAME_MAX, allowed_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.catalog import Catalog
    from duet_rpc.gateway.entries import Entry, Kind
    from duet_rpc.gateway.lists import Merged
    from duet_rpc.gateway.workers import Workers
    from duet_rpc.jsonrpc.values import RawJson
    from duet_rpc.mcp.versions import Version


class Names:
    """The entries of the lists that the client got last, by the names that it got."""

    def __init__(self, catalog: Catalog, backends: Mapping[str, Backend], workers: Workers) -> None:
        self._catalog = catalog
        self._backends = backends
        self._workers = workers
        self._listed: dict[Kind, dict[str, Entry]] = {kind: {} for kind in KINDS.values()}
        self._merged: dict[Kind, Merged] = {}  # what they were made of

    def write_list(self, kind: Kind, merged: Merged, version: Version) -> str:
        """Return a list for the client, and remember the names in it."""
        if merged is not self._merged.get(kind):
            self._merged[kind] = merged
            self._listed[kind] = name_entries(kind, merged.entries)
        if version.name not in merged.texts:
            texts = (write_entry(*each) for each in self._listed[kind].items())
            members = f'"{kind.member}":[{",".join(texts)}]'
            if version.stateless:
                members += f",{dumps(CACHE)[1:-1]}"
            merged.texts[version.name] = finish(members, version)
        return merged.texts[version.name]

    def find(self, method: str, params: RawJson | None) -> tuple[Backend, RawJson] | None:
        """Return the server that a request is for, and its params there; raises RpcError.

        None is for a resource that nobody has listed.
        """
        if params is None:
            params = raw("{}")
        if method in NAMED:
            kind = NAMED[method]
            server, own_name = self._find_named(kind, value_at(params, "name"))
            return server, rename_call(params, own_name)
        if method == "completion/complete":
            return self._find_reference(params)
        uri = value_at(params, "uri")
        if not isinstance(uri, str):
            raise invalid("uri must be a string")
        backend = self._catalog.find_resource(uri)
        return None if backend is None else (backend, params)

    def _find_named(self, kind: Kind, name: object) -> tuple[Backend, str]:
        if not isinstance(name, str):
            raise invalid("name must be a string")
        listed = self._listed[kind].get(name)
        server: Backend | None
        if listed is not None:
            server, own_name = self._backends.get(listed.backend), listed.own_name
        else:
            worker = self._workers.find(name)
            server, own_name = self._catalog.find_named(name, kind) or (worker, name)
        if server is None and kind is PROMPTS:
            for entry in self._catalog[kind].merge().entries:  # the client has asked for no list
                if entry.name == name:
                    server, own_name = self._backends.get(entry.backend), entry.own_name
        if server is None:
            raise invalid(f"Unknown {kind.word}: {name[:RECEIVED_MAX]}")
        return server, own_name

    def _find_reference(self, params: RawJson) -> tuple[Backend, RawJson] | None:
        """Return who completes an argument of a prompt, or of a template."""
        uri = value_at(params, "ref", "uri")
        if isinstance(uri, str):
            backend = self._catalog.find_resource(uri)
            return None if backend is None else (backend, params)
        server, own_name = self._find_named(PROMPTS, value_at(params, "ref", "name"))
        return server, raw(replace(params.text, ("ref", "name"), dumps(own_name)))


def name_entries(kind: Kind, entries: list[Entry]) -> dict[str, Entry]:
    """Give each entry a name that MCP allows, none twice; a name that is allowed is kept.

    A URI is not changed. Of two servers with the same one the first has it.
    """
    named: dict[str, Entry] = {}
    if not kind.has_names:
        for entry in entries:
            named.setdefault(entry.name, entry)
        return named
    taken = {entry.name for entry in entries if entry.name == allowed_name(entry.name)}
    numbers: dict[str, int] = {}  # where to go on; to count from 1 again would take quadratic time
    for entry in entries:
        name = allowed = allowed_name(entry.name)
        if name != entry.name or name in named:
            number = numbers.get(allowed, 1)
            while name in taken:
                number += 1
                name = f"{allowed[: NAME_MAX - len(str(number)) - 1]}_{number}"
            numbers[allowed] = number
            taken.add(name)
        named[name] = entry
    return named


def write_entry(name: str, entry: Entry) -> str:
    """Return an entry's text with this name in it."""
    try:
        return entry.text if name == entry.name else rename(entry.text, name)
    except RecursionError:  # nested too deeply to be read again; it can be called all the same
        return f'{{"name":"{name}","inputSchema":{{"type":"object"}}}}'
