"""The client that has made a call, as somebody who can be asked.

What it can do it says in the request: `_meta.client`, of which `can` is a list of `ask`, `choose`,
`confirm`, `say` and `emacs`. It is asked for nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.errors import REQUEST_FAILED, TITLES, RpcError
from duet_rpc.jsonrpc.messages import Failure, InvalidMessage, Notification
from duet_rpc.methods.asking import Unsupported, raise_error

if TYPE_CHECKING:
    from duet_rpc.methods.asking import Question
    from duet_rpc.server.intake import Call
    from duet_rpc.server.loop import Server


class ClientCaller:
    """Asks a client of `duet-rpc rpc`."""

    def __init__(self, server: Server, request: Call, client: object) -> None:
        self._server = server
        self._turn = server.guard.cancellation.turn
        self._request = request
        client = client if isinstance(client, dict) else {}
        can, call = client.get("can"), client.get("call")
        self._can = can if isinstance(can, list) else []
        # Of its own, so that it knows which of its calls a question belongs to.
        self._meta: dict[str, object] = (
            {"_meta": {"call": call}} if type(call) in (str, int) else {}
        )

    def answer(self, question: Question) -> object:
        """Send the question and wait for the answer."""
        if question.needs not in self._can:
            raise Unsupported(why_not(question))
        params = {**question.params, **self._meta}
        reply = self._server.questions.ask(self._turn, question.method, params)
        if isinstance(reply, InvalidMessage):
            detail = f"the answer to {question.method} is not valid JSON-RPC"
            raise RpcError(REQUEST_FAILED, f"{TITLES[REQUEST_FAILED]}: {detail}")
        if isinstance(reply, Failure):
            raise_error(reply.error)
        return reply.result

    def say(self, text: str) -> None:
        """Tell the client, or the log where the client can't be told."""
        if "say" in self._can:
            params: dict[str, object] = {"text": text, "level": "info", **self._meta}
            self._server.reports.send_now(Notification("client/say", params))
        else:
            with self._server.guard.cancellation.hold():
                self._server.log.info(text, self._request.method)


def why_not(question: Question) -> str:
    """Say why a caller that does not offer something can't be asked for it."""
    if question.needs == "emacs":
        return f"ctx.emacs needs a call from Emacs; this caller does not offer {question.method}"
    return (
        f"the caller can't be asked by ctx.{question.kind}(); it does not offer {question.method}"
    )


def meta_of(params: object) -> dict[str, object]:
    """Return what a request says about itself."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) else {}
