"""Between the two eras of MCP: requests and results of one, as the other has them.

In the handshake era a session remembers the version and what the client can do. In the stateless
era every request has that in its client metadata: the members of `_meta` whose names begin with
`io.modelcontextprotocol/`. They describe the sender of a message, whoever it is made for, so
they are removed from a request to a server of the handshake era, and added to each request to one
of the stateless era.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc import __version__
from duet_rpc.gateway.pending import Outcome
from duet_rpc.gateway.wire import raw
from duet_rpc.jsonrpc.errors import INVALID_PARAMS, Error
from duet_rpc.jsonrpc.jsontext import dumps, member, split_object, write_id
from duet_rpc.jsonrpc.messages import Failure, Success
from duet_rpc.jsonrpc.values import RawJson
from duet_rpc.mcp.session import CACHE, COMPLETE
from duet_rpc.mcp.versions import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    RESOURCE_NOT_FOUND,
    STATELESS,
    VERSION_KEY,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX = "io.modelcontextprotocol/"
CLIENT_INFO = {"name": "duet-rpc", "version": __version__}
OWN_META = frozenset(("client", "during"))
"""Members of `_meta` that mean something to duet-rpc's own workers and to nobody else."""

RETRY = ("inputResponses", "requestState")
"""Members by which a call of the stateless era is made again, with answers."""

CACHED = ("ttlMs", "cacheScope")


def client_meta(capabilities: dict[str, object]) -> dict[str, object]:
    """Return the metadata of a client that has these capabilities."""
    return {
        VERSION_KEY: STATELESS[0],
        CLIENT_INFO_KEY: CLIENT_INFO,
        CAPABILITIES_KEY: capabilities,
    }


# Requests.


def keep_members(text: str, is_kept: Callable[[str], bool]) -> str:
    """Return an object with some of its members."""
    kept = [
        f"{write_id(key)}:{text[start:end]}"
        for key, (_, start, end) in split_object(text)[0].items()
        if is_kept(key)
    ]
    return "{" + ",".join(kept) + "}"


def edit_meta(params: RawJson | None, edit: Callable[[str], str]) -> RawJson | None:
    """Return params whose `_meta` has been edited; without it, where nothing is left of it."""
    text = "{}" if params is None else params.text
    if not text.startswith("{"):
        return params  # an array has no `_meta`
    meta = member(text, "_meta") or "{}"
    edited = edit(meta) if meta.startswith("{") else meta
    if edited == meta:
        return params
    rest = keep_members(text, lambda key: key != "_meta")
    if edited == "{}":
        return raw(rest)
    return raw(f'{{"_meta":{edited}{"," if rest != "{}" else ""}{rest[1:]}')


def without_own_meta(params: RawJson | None) -> RawJson | None:
    """Return params without the metadata that duet-rpc's own client has for its own workers."""
    if params is None or '"_meta"' not in params.text:
        return params
    return edit_meta(params, lambda meta: keep_members(meta, lambda key: key not in OWN_META))


def without_client_meta(params: RawJson | None) -> RawJson | None:
    """Return params without client metadata and answers, which the handshake era does not have."""
    if params is None or not params.text.startswith("{"):
        return params
    if any(f'"{name}"' in params.text for name in RETRY):
        params = raw(keep_members(params.text, lambda key: key not in RETRY))
    if PREFIX not in params.text and "\\" not in params.text:
        return params
    return edit_meta(
        params, lambda meta: keep_members(meta, lambda key: not key.startswith(PREFIX))
    )


def with_client_meta(params: RawJson | None, added: dict[str, object]) -> RawJson | None:
    """Return params with client metadata; members that are there already are kept."""

    def edit(meta: str) -> str:
        found = split_object(meta)[0]
        texts = [f"{dumps(key)}:{dumps(each)}" for key, each in added.items() if key not in found]
        if not texts:
            return meta
        return "{" + ",".join(texts) + ("," if found else "") + meta[1:].lstrip()

    return edit_meta(params, edit)


# Results.


def make_stateless(outcome: Outcome, cached: bool = False) -> Outcome:
    """Return the outcome of a request as the stateless era has it."""
    if isinstance(outcome, Failure):
        if outcome.error.code == RESOURCE_NOT_FOUND:
            error = outcome.error
            return Failure(None, Error.of(INVALID_PARAMS, error.message, error.data))
        return outcome
    if isinstance(outcome.result, RawJson) and outcome.result.text.startswith("{"):
        return Success(outcome.id, raw(as_stateless(outcome.result.text, cached)))
    return outcome


def as_stateless(result: str, cached: bool = False) -> str:
    """Return a result with the members that the stateless era requires."""
    members = split_object(result)[0]
    if "resultType" in members:
        return result
    added = '"resultType":"complete"' if "_meta" in members else COMPLETE
    if cached:
        added += f",{dumps(CACHE)[1:-1]}"
    return f"{{{added},{result[1:]}" if members else f"{{{added}}}"


def make_handshake(outcome: Outcome) -> Outcome:
    """Return the outcome of a request as the handshake era has it."""
    if isinstance(outcome, Success) and isinstance(outcome.result, RawJson):
        text = outcome.result.text
        if text.startswith("{") and '"resultType"' in text:
            return Success(outcome.id, raw(as_handshake(text)))
    return outcome


def as_handshake(result: str) -> str:
    """Return a result without the members that only the stateless era has."""
    dropped = ("resultType", *CACHED)
    found = edit_meta(
        raw(keep_members(result, lambda key: key not in dropped)),
        lambda meta: keep_members(meta, lambda key: not key.startswith(PREFIX)),
    )
    return "{}" if found is None else found.text


def result_type(outcome: Outcome) -> object:
    """Return the `resultType` of an outcome, or None."""
    result = outcome.result if isinstance(outcome, Success) else None
    value = result.value if isinstance(result, RawJson) else None
    return value.get("resultType") if isinstance(value, dict) else None
