"""What servers ask of an MCP client (elicitation, sampling, roots), in both eras.

A server of the handshake era sends a request while it works on a call; one of the stateless era
ends the call with `input_required`, and is called again with the answers. So there are four cases:

- Both sides have shaken hands: the request goes to the client, the reply to the server.
- Both sides are stateless: the result goes to the client, and its next call to the server.
- A stateless server, a client that has shaken hands: the client is asked here, and the server
  called again with what it answers.
- A server that has shaken hands, a stateless client: the call is suspended. The client gets
  `input_required`, and its next call, which has to be the same, goes on with the suspended one.
  `requestState` is a random name for that. It is good for one use and kept nowhere but here, so it
  can be neither forged nor replayed.

A request of a server does not name the call that it is for. It is put to the client in the oldest
call of that server that can carry it; the answer reaches the server in any case.
"""

from __future__ import annotations

from secrets import token_urlsafe
from typing import TYPE_CHECKING

from duet_rpc.gateway.eras import RETRY, keep_members, make_handshake, make_stateless, result_type
from duet_rpc.gateway.wire import params_of, raw, value_at
from duet_rpc.jsonrpc.errors import METHOD_NOT_FOUND, REQUEST_FAILED, Error
from duet_rpc.jsonrpc.jsontext import dumps, member, split_object
from duet_rpc.jsonrpc.messages import Failure, Request, Success
from duet_rpc.jsonrpc.values import RawJson
from duet_rpc.mcp.elicitation import digest
from duet_rpc.mcp.session import INPUT_REQUIRED, invalid
from duet_rpc.mcp.tools import write_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.gateway.backend import Backend
    from duet_rpc.gateway.backend_requests import BackendRequests
    from duet_rpc.gateway.client_requests import ClientRequests
    from duet_rpc.gateway.loop import Loop, Timer
    from duet_rpc.gateway.pending import Outcome
    from duet_rpc.mcp.versions import Version

ASKED = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
"""What a server may ask, and the capability that a client has to have for it."""

ROUNDS_MAX = 10
"""How often one call may be made again with answers, as the SDKs have it."""

SUSPENDED_MAX = 1000
PAUSE = 0.1  # seconds before a server is called again that asks for nothing but to be

NOBODY = Error.of(REQUEST_FAILED, "the client can be asked only while it waits for a call")
NOT_ANSWERED = Error.of(REQUEST_FAILED, "the client did not answer in time")


class McpCall:
    """A call of the client to a server, which may ask something before it replies."""

    def __init__(
        self,
        server: Backend,
        request: Request,
        params: RawJson,
        version: Version,
        capabilities: object,
        log_level: str | None,
    ) -> None:
        self.server = server
        self.method = request.method
        self.params = params  # for the server
        self.version = version
        self.capabilities: dict[str, object] = (
            capabilities if isinstance(capabilities, dict) else {}
        )  # of the client
        self.log_level = log_level  # of messages that the client wants meanwhile
        self.digest = digest(keep_members(params.text, lambda key: key not in (*RETRY, "_meta")))
        self.id: int | None = None  # of the client's request; None: it waits for none
        self.rounds = 0
        self.suspension: Suspension | None = None  # where there were questions, in the meantime

    def fail(self, text: str) -> Outcome:
        """Return the outcome that tells the client, or its model, why the call has failed."""
        if self.method == "tools/call":
            return Success(None, raw(f"{{{write_error(text)}}}"))
        return Failure(None, Error.of(REQUEST_FAILED, text))


class Suspension:
    """The state of a call whose client was sent `input_required` and has not called again yet."""

    def __init__(self, backend_id: int) -> None:
        self.backend_id = backend_id  # the id that the call has at its server
        self.count = 0
        self.questions: dict[str, tuple[Request, object]] = {}  # and the process that has asked
        self.outcome: Outcome | None = None  # that came while the client did not wait
        self.timer: Timer | None = None
        self.is_due = False  # `input_required` is going to be sent


class Questions:
    """Puts what servers ask to the client, and its answers to the servers."""

    def __init__(
        self,
        loop: Loop,
        requests: ClientRequests,
        backend_requests: BackendRequests,
        answer_timeout: float,
    ) -> None:
        self._loop = loop
        self._answer_timeout = answer_timeout  # seconds
        self._requests = requests
        self._backend_requests = backend_requests
        self._suspended: dict[str, McpCall] = {}  # by requestState

    # Calls.

    def forward(self, call: McpCall, request: Request) -> None:
        """Send a call to its server, or go on with one that was suspended."""
        state = value_at(params_of(request), "requestState")
        server = call.server
        # One that has not started yet gets the call as a new one, or knows its own state.
        is_unknown = server.session.handshake is None and state not in self._suspended
        if state is None or is_unknown or server.speaks_stateless(call.version):
            call.id = self._requests.forward(
                server, request, call.method, call.params, self._receiver(call), call
            )
        else:
            self._resume(call, request, state)

    def _receiver(self, call: McpCall) -> Callable[[int, Outcome], None]:
        return lambda id, outcome: self._receive(call, id, outcome)

    def _receive(self, call: McpCall, id: int, outcome: Outcome) -> None:
        if call.suspension is not None and call.id is None:
            call.suspension.outcome = outcome
        elif result_type(outcome) == "input_required" and not call.version.stateless:
            self._ask_client(call, call.id or id, outcome)
        else:
            self._finish(call, call.id or id, outcome)

    def _finish(self, call: McpCall, id: int, outcome: Outcome) -> None:
        if call.version.stateless:
            translated = make_stateless(outcome, cached=call.method == "resources/read")
        else:
            translated = make_handshake(outcome)
        self._requests.finish(id, translated)

    # A server that has shaken hands asks.

    def handle_request(self, backend: Backend, request: Request, client: object) -> None:
        """Put a request of a server to the client; `client` has its capabilities since a handshake.

        None is for a client without a handshake.
        """
        capability = ASKED.get(request.method)
        if capability is None:
            backend.reply(Failure(request.id, Error.of(METHOD_NOT_FOUND, request.method)))
        elif client is None:
            self._suspend_for(backend, request, capability)
        elif not isinstance(client, dict) or capability not in client:
            backend.reply(Failure(request.id, _no_capability(capability)))
        else:
            self._backend_requests.forward(backend, request, request.method, self._answer_timeout)

    def _suspend_for(self, backend: Backend, request: Request, capability: str) -> None:
        found = [
            (id, pending.carrier)
            for id, pending in backend.pending.items()
            if isinstance(pending.carrier, McpCall) and capability in pending.carrier.capabilities
        ]
        if not found or len(self._suspended) >= SUSPENDED_MAX:
            backend.reply(Failure(request.id, NOBODY))
            return
        backend_id, call = found[0]
        suspension = call.suspension
        if suspension is None:
            suspension = call.suspension = Suspension(backend_id)
        suspension.count += 1
        suspension.questions[f"question-{suspension.count}"] = (request, backend.process.child)
        backend.pending.handle_question(request.id)
        self._require_input_soon(call, suspension)

    def _require_input_soon(self, call: McpCall, suspension: Suspension) -> None:
        """Send `input_required` in the next turn: a server may ask several things at once."""
        if not suspension.is_due:
            suspension.is_due = True
            self._loop.call_soon(lambda: self._require_input(call, suspension))

    def _require_input(self, call: McpCall, suspension: Suspension) -> None:
        suspension.is_due = False
        if call.id is None or not self._requests.is_in_flight(call.id):
            return  # it waits for the client already, or the client for it no more
        parts = ",".join(
            f'"{key}":{{"method":"{request.method}","params":{_params_text(request)}}}'
            for key, (request, _) in suspension.questions.items()
        )
        state = token_urlsafe(24)
        text = f'{{{INPUT_REQUIRED},"inputRequests":{{{parts}}},"requestState":"{state}"}}'
        id, call.id = call.id, None
        self._suspended[state] = call
        suspension.timer = self._loop.call_later(self._answer_timeout, lambda: self._expire(state))
        self._requests.finish(id, Success(None, raw(text)))

    def _resume(self, repeated: McpCall, request: Request, state: object) -> None:
        call = self._suspended.get(state) if isinstance(state, str) else None
        suspension = None if call is None else call.suspension
        if (
            call is None
            or suspension is None
            or (call.server, call.method, call.digest)
            != (repeated.server, repeated.method, repeated.digest)
        ):
            raise invalid("requestState is not one of this call, or it has expired")
        id = self._requests.attach(request, call.server, suspension.backend_id)
        if id is None:
            return
        del self._suspended[str(state)]
        if suspension.timer is not None:
            suspension.timer.cancel()
        call.id, call.capabilities = id, repeated.capabilities
        self._send_answers(call.server, suspension, params_of(request))
        if suspension.outcome is not None:
            outcome, suspension.outcome = suspension.outcome, None
            self._finish(call, id, outcome)
        elif suspension.questions:
            self._require_input_soon(call, suspension)

    def _send_answers(
        self, server: Backend, suspension: Suspension, params: RawJson | None
    ) -> None:
        """Send the server the answers that a call has brought."""
        answers = value_at(params, "inputResponses")
        text = member(params.text, "inputResponses") if params is not None else None
        if not isinstance(answers, dict) or text is None:
            return
        for key, answer in answers.items():
            if key in suspension.questions and isinstance(answer, dict):
                question, process = suspension.questions.pop(key)
                server.pending.handle_answer(question.id)
                if process is server.process.child:  # and not another, which has not asked
                    server.reply(Success(question.id, raw(member(text, key) or "{}")))

    def _expire(self, state: str) -> None:
        """Give up a call whose client did not come back."""
        call = self._suspended.pop(state)
        suspension = call.suspension
        if suspension is None:
            return
        for question, process in suspension.questions.values():
            call.server.pending.handle_answer(question.id)
            if process is call.server.process.child:
                call.server.reply(Failure(question.id, NOT_ANSWERED))
        if suspension.outcome is None:
            call.server.cancel(suspension.backend_id)

    # A stateless server asks a client that has shaken hands.

    def _ask_client(self, call: McpCall, id: int, outcome: Outcome) -> None:
        result = outcome.result if isinstance(outcome, Success) else None
        text = result.text if isinstance(result, RawJson) else "{}"
        asked = member(text, "inputRequests") or "{}"
        state = member(text, "requestState")
        requests = split_object(asked)[0] if asked.startswith("{") else {}
        call.rounds += 1
        if call.rounds > ROUNDS_MAX:
            problem = f"the server asked for input more than {ROUNDS_MAX} times"
            self._requests.finish(id, call.fail(problem))
            return
        answers: dict[str, str] = {}

        def receive(key: str, reply: Success | Failure) -> None:
            if not self._requests.is_in_flight(id) or key in answers:
                return
            if isinstance(reply, Failure):
                problem = f"the client answered what the server asked with: {reply.error.message}"
                self._requests.finish(id, call.fail(problem))
                return
            answers[key] = dumps(reply.result)
            if len(answers) == len(requests):
                self._call_again(call, id, answers, state)

        for question, _, _ in requests.values():
            method = question.get("method") if isinstance(question, dict) else None
            capability = ASKED.get(method) if isinstance(method, str) else None
            if (
                not isinstance(method, str)
                or capability is None
                or capability not in call.capabilities
            ):
                what = f"the server asks for {method}, which this client can't answer"
                self._requests.finish(id, call.fail(what))
                return
        for key, (question, start, end) in requests.items():
            params = member(asked[start:end], "params")
            self._backend_requests.ask(
                call.server,
                question["method"],  # type: ignore[index]
                None if params is None else raw(params),
                lambda reply, key=key: receive(key, reply),  # type: ignore[misc]
                id,
                self._answer_timeout,
            )
        if not requests:
            self._loop.call_later(PAUSE, lambda: self._call_again(call, id, answers, state))

    def _call_again(
        self, call: McpCall, id: int, answers: dict[str, str], state: str | None
    ) -> None:
        if not self._requests.is_in_flight(id):
            return
        parts = ",".join(f"{dumps(key)}:{text}" for key, text in answers.items())
        added = f'"inputResponses":{{{parts}}}' if answers else ""
        if state is not None:
            added += f'{"," if added else ""}"requestState":{state}'
        rest = keep_members(call.params.text, lambda key: key not in RETRY)
        separator = "," if rest != "{}" and added else ""
        params = raw(f"{{{added}{separator}{rest[1:]}")
        self._requests.send_again(id, call.server, call.method, params, self._receiver(call), call)


def _params_text(request: Request) -> str:
    params = params_of(request)
    return "{}" if params is None else params.text


def _no_capability(capability: str) -> Error:
    return Error.of(METHOD_NOT_FOUND, f"the client has no {capability}")


def askable(capabilities: object) -> dict[str, object]:
    """Return those capabilities of a client that a server behind us may use."""
    given = capabilities if isinstance(capabilities, dict) else {}
    return {name: given[name] for name in ASKED.values() if isinstance(given.get(name), dict)}
