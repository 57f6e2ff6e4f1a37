"""How cancel and progress look in the dialects that backends speak.

The client of the gateway speaks `plain`, whatever the backend speaks: `$/cancelRequest`
with an `id`, `$/progress` with a `token` and a `value`, a token in `_meta.progressToken`.
"""

from __future__ import annotations

from duet_rpc.gateway.wire import raw
from duet_rpc.jsonrpc.jsontext import member
from duet_rpc.jsonrpc.values import RawJson

META = ("_meta", "progressToken")


class Dialect:
    """The method and member names of one dialect."""

    __slots__ = (
        "cancel", "cancel_key", "name", "progress", "token_key", "token_members", "token_paths",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        cancel: str,
        cancel_key: str,
        progress: str,
        token_key: str,
        token_paths: tuple[tuple[str, ...], ...],
    ) -> None:
        self.name = name
        self.cancel = cancel
        self.cancel_key = cancel_key
        self.progress = progress
        self.token_key = token_key
        self.token_paths = token_paths  # where a request holds tokens,
        self.token_members = frozenset(path[0] for path in token_paths)  # and in which members

    def write_progress(self, token: str, value: str) -> RawJson:
        """Return the params for this dialect, from the texts of a plain token and value."""
        if self is not MCP:
            return raw(f'{{"token":{token},"value":{value}}}')
        if value[0] != "{":  # it says no more than that there is progress
            value = "{}"
        text = f'{{"progressToken":{token},"progress":{member(value, "done") or 0}'
        for name in ("total", "message"):
            part = member(value, name)
            if part is not None and part != "null":
                text += f',"{name}":{part}'
        return raw(text + "}")

    def read_progress(self, params: str) -> str:
        """Return the text of the plain value of a notification in this dialect."""
        if self is not MCP:
            return member(params, "value") or "null"
        done, total, message = (
            member(params, name) or "null" for name in ("progress", "total", "message")
        )
        return f'{{"done":{done},"total":{total},"message":{message}}}'


PLAIN = Dialect(
    "plain",
    "$/cancelRequest",
    "id",
    "$/progress",
    "token",
    (META, ("_meta", "partialResultToken")),
)
LSP = Dialect(
    "lsp",
    "$/cancelRequest",
    "id",
    "$/progress",
    "token",
    (META, ("workDoneToken",), ("partialResultToken",)),
)
MCP = Dialect(
    "mcp",
    "notifications/cancelled",
    "requestId",
    "notifications/progress",
    "progressToken",
    (META,),
)

DIALECTS = {each.name: each for each in (PLAIN, LSP, MCP)}
