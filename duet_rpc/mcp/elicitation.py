"""Questions of a method as MCP's elicitation: a form with one field, for the person at the client.

There are two ways to ask, one for each era. In the handshake era the server sends a request,
`elicitation/create`, and the method waits for its answer. In the stateless era a server sends no
requests: the call ends with a result that says which input is required, and the client makes the
call again with that input. A Python function can't be left in the middle and taken up in another
request, so it is **run again from its beginning**, and the questions that were answered before get
these answers at once. What a method does before it asks is therefore done once for each question.

The answers so far travel with the client, in `requestState`. It is signed with a key of this
process, says which call it belongs to, and expires: a client can't hand in an answer to another
question, or to another call. An answer also counts only if the question is the same again; where
a method asks something else the second time, it is asked.
"""

from __future__ import annotations

from binascii import Error as NotBase64
from os import urandom
from time import time
from typing import TYPE_CHECKING, Any

from duet_rpc.jsonrpc.errors import REQUEST_FAILED, TITLES, RpcError
from duet_rpc.jsonrpc.jsontext import NOT_JSON, dumps, loads
from duet_rpc.jsonrpc.messages import Failure, InvalidMessage
from duet_rpc.mcp.session import invalid
from duet_rpc.methods.asking import Declined, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.mcp.emacs import EmacsCaller
    from duet_rpc.mcp.session import Params
    from duet_rpc.mcp.versions import Version
    from duet_rpc.methods.asking import Question

METHOD = "elicitation/create"
FIELD = "answer"

EXPIRES = 3600
"""Seconds that a person has for an answer in the stateless era."""


class InputRequired(BaseException):
    """Ends a run of a method that needs an answer first; not an Exception, as Cancelled is not."""


class McpCaller:
    """Asks the person at an MCP client."""

    def __init__(
        self,
        version: Version,
        capabilities: object,
        ask: Callable[[str, Params], object],
        say: Callable[[str], None],
        emacs: EmacsCaller | None = None,
    ) -> None:
        self._version = version
        self._can_elicit = version.elicitation and can_elicit(capabilities)
        self._ask = ask  # for the result of a request to the client
        self._emacs = emacs  # where the user has given it to AI clients
        self.say = say

    def answer(self, question: Question) -> object:
        """Ask; return what was filled in."""
        if question.needs == "emacs" and self._emacs is not None:
            return self._emacs.answer(question)
        if question.needs == "emacs":
            raise Unsupported(
                "ctx.emacs needs a call from Emacs, and this one is from an MCP client; "
                "`duet-rpc mcp --emacs` lets your own methods use the running Emacs"
            )
        if question.params.get("secret"):
            raise Unsupported("MCP has no way to ask for a secret")
        if not self._can_elicit:
            raise Unsupported(
                f"this MCP client can't ask its user (it has no elicitation): {question.label}"
            )
        result = self._ask(METHOD, form_for(question, self._version))
        action = result.get("action") if isinstance(result, dict) else None
        if action in ("decline", "cancel"):
            raise Declined(f"{question.label}: the user did not answer")
        content = result.get("content") if isinstance(result, dict) else None
        if action != "accept" or not isinstance(content, dict):
            raise question.wrong_answer("an action and its content", result)
        if question.params.get("multiple") and not self._version.multiple_choice:
            return [name for name, is_chosen in content.items() if is_chosen is True]
        # There is one field, whatever a client calls it.
        return content.get(FIELD, next(iter(content.values()), None))


def can_elicit(capabilities: object) -> bool:
    """Return whether a client shows forms; one that says nothing of modes does."""
    found = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
    return isinstance(found, dict) and ("form" in found or not found)


def read_reply(reply: object) -> object:
    """Return the result that a client has sent, or raise why there is none."""
    if isinstance(reply, InvalidMessage):
        detail = f"the answer to {METHOD} is not valid JSON-RPC"
        raise RpcError(REQUEST_FAILED, f"{TITLES[REQUEST_FAILED]}: {detail}")
    if isinstance(reply, Failure):
        raise Declined(f"the client answered {METHOD} with error {reply.error.code}")
    return getattr(reply, "result", None)


# Forms.


def form_for(question: Question, version: Version) -> Params:
    """Return the params of the request that asks a question."""
    params = question.params
    schema: dict[str, Any]
    if question.kind == "confirm":
        schema = {"type": "boolean"}
    elif question.kind == "ask":
        schema = {"type": "string"}
    elif not params.get("multiple"):
        schema = _choice(params["choices"], version)
    elif version.multiple_choice:
        schema = {"type": "array", "items": _items(params["choices"])}
    else:  # before it had lists, a form had boxes to be ticked
        default = params.get("default", [])
        boxes = {
            each["text"]: {"type": "boolean", "default": each["text"] in default}
            for each in params["choices"]
        }
        return _form(params["prompt"], boxes, [], version)
    if "default" in params:
        schema["default"] = params["default"]
    return _form(params["prompt"], {FIELD: schema}, [FIELD], version)


def _form(prompt: str, fields: dict[str, Any], required: list[str], version: Version) -> Params:
    requested: Params = {"type": "object", "properties": fields}
    if required:
        requested["required"] = required
    mode = {"mode": "form"} if version.multiple_choice else {}
    return {**mode, "message": prompt, "requestedSchema": requested}


def _choice(choices: list[dict[str, str]], version: Version) -> dict[str, Any]:
    texts = [each["text"] for each in choices]
    if not any("note" in each for each in choices):
        return {"type": "string", "enum": texts}
    if version.multiple_choice:
        return {"type": "string", "oneOf": [_titled(each) for each in choices]}
    return {"type": "string", "enum": texts, "enumNames": [_titled(c)["title"] for c in choices]}


def _items(choices: list[dict[str, str]]) -> dict[str, Any]:
    if any("note" in each for each in choices):
        return {"anyOf": [_titled(each) for each in choices]}
    return {"type": "string", "enum": [each["text"] for each in choices]}


def _titled(choice: dict[str, str]) -> dict[str, str]:
    text, note = choice["text"], choice.get("note")
    return {"const": text, "title": text if note is None else f"{text} ({note})"}


# The stateless era.


class Rounds:
    """One call that is made again for each answer: what was answered, and what is asked next."""

    def __init__(self, signer: Signer, call: list[object], params: Params) -> None:
        self._signer = signer
        self._call = digest(call)  # an answer belongs to one call
        self._answers: list[list[Any]] = []  # the digest of each question, and its answer
        self._given = 0
        self.asked: Params | None = None  # what this run ends with
        state, responses = params.get("requestState"), params.get("inputResponses")
        if state is None:
            return
        content = signer.read(state)
        if content is None or content["call"] != self._call or time() > content["until"]:
            raise invalid("requestState is not one of this call, or it has expired")
        self._answers = content["answers"]
        response = responses.get(self._key()) if isinstance(responses, dict) else None
        if isinstance(response, dict):
            self._answers.append([content["asked"], response])

    def _key(self) -> str:
        return f"question-{len(self._answers) + 1}"

    def ask(self, method: str, params: Params) -> object:
        """Return the answer that was given in an earlier round; else end this one."""
        question = digest([method, params])
        if self.asked is None and self._given < len(self._answers):
            known, answer = self._answers[self._given]
            self._given += 1
            if known == question:
                return answer
            del self._answers[self._given - 1 :]  # it asks something else than before
        if self.asked is None:
            state = {
                "call": self._call,
                "until": int(time()) + EXPIRES,
                "answers": self._answers,
                "asked": question,
            }
            self.asked = {
                "inputRequests": {self._key(): {"method": method, "params": params}},
                "requestState": self._signer.write(state),
            }
        raise InputRequired


class Signer:
    """Signs what a client keeps for us, and knows it again."""

    def __init__(self) -> None:
        self._key = urandom(32)

    def write(self, content: object) -> str:
        """Return a text that only this process can have made."""
        from base64 import urlsafe_b64encode

        body = urlsafe_b64encode(dumps(content).encode("utf-8", "surrogatepass")).decode()
        return f"{body}.{self._sign(body)}"

    def read(self, text: object) -> Any:
        """Return what is in such a text; None for any other."""
        from base64 import urlsafe_b64decode
        from hmac import compare_digest

        if not isinstance(text, str) or not text.isascii():
            return None
        body, _, signature = text.partition(".")
        if not compare_digest(signature, self._sign(body)):
            return None
        try:
            return loads(urlsafe_b64decode(body).decode("utf-8", "surrogatepass"))
        except (NotBase64, *NOT_JSON):
            return None

    def _sign(self, body: str) -> str:
        import hmac

        return hmac.new(self._key, body.encode(), "sha256").hexdigest()


def digest(value: object) -> str:
    """Return a short text that is another one for every other value."""
    from hashlib import sha256

    return sha256(dumps(value).encode("utf-8", "surrogatepass")).hexdigest()
