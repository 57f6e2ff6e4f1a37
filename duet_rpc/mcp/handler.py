"""The handler of `duet-rpc mcp`: methods as tools, in the protocol that AI clients speak."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.errors import INVALID_PARAMS, Error, RpcError
from duet_rpc.jsonrpc.jsontext import dumps, write_id
from duet_rpc.jsonrpc.limits import RECEIVED_MAX
from duet_rpc.jsonrpc.messages import Notification
from duet_rpc.mcp.elicitation import McpCaller, Rounds, Signer, read_reply
from duet_rpc.mcp.logging import ClientLog
from duet_rpc.mcp.session import CACHE, INPUT_REQUIRED, SET_LEVEL, Session, finish, invalid
from duet_rpc.mcp.tools import (
    describe_tool,
    name_tools,
    write_departure,
    write_error,
    write_result,
)
from duet_rpc.mcp.versions import CAPABILITIES_KEY
from duet_rpc.methods.builtin import add_builtin
from duet_rpc.methods.method import BadResult
from duet_rpc.methods.registry import Registry
from duet_rpc.methods.sources import RELOAD
from duet_rpc.server.caller import meta_of
from duet_rpc.server.dispatch import CANCELLED, Refused, not_found
from duet_rpc.server.intake import CancelForm
from duet_rpc.server.rpc import find_token

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from duet_rpc.jsonrpc.messages import Request
    from duet_rpc.mcp.session import Params
    from duet_rpc.mcp.versions import Version
    from duet_rpc.methods.context import Context
    from duet_rpc.methods.method import Method
    from duet_rpc.server.intake import Arrival
    from duet_rpc.server.loop import Call, Server


class McpHandler:
    """Offers the user's methods as tools; the daemon's own methods are none."""

    cancel = CancelForm("notifications/cancelled", "requestId")
    immediate: Collection[str] = (
        "initialize", "ping", "server/discover", "tools/list", SET_LEVEL,
    )  # fmt: skip
    answers_cancelled = False
    is_for_authors = False  # but a model's

    def __init__(self, server: Server) -> None:
        self._server = server
        self._batch = server.batch  # asked for on the command line
        self._session = Session(has_log=True)
        self._client_log = ClientLog(self._session)
        self._signer = Signer()
        self._tools: dict[str, Method] = {}
        self._lists: dict[str, str] = {}  # by version
        self._seen = -1  # which version of the registry these are made from
        # They are here so that a method of theirs has the same name on every wire.
        self.registry = Registry()
        stop = server.lifecycle.stop
        add_builtin(self.registry, server.log.set_level, lambda: stop("shutdown requested"))
        self._own = {method.name for method in self.registry} | {RELOAD}

    @property
    def passed_on(self) -> tuple[bool, str | None]:
        """What a router has to know of this connection."""
        handshake = self._session.handshake
        return handshake is not None, None if handshake is None else handshake.name

    def answer(self, arrival: Arrival, request: Call) -> str | Refused:
        """Answer one request, or accept a notification."""
        if isinstance(request, Notification):
            # No notification but a cancel means anything here.
            known = request.method.startswith("notifications/")
            return "" if known else not_found(request.method)
        try:
            return self._answer(arrival, request)
        except RpcError as error:
            return Refused(Error(error.code, error.message, error.data))

    def _answer(self, arrival: Arrival, request: Request) -> str | Refused:
        version = self._session.begin(request.id, request.method, request.params)
        if version is None:
            return not_found(request.method)
        if isinstance(version, str):
            if self._session.handshake is not None:
                self._server.batch = self._batch or self._session.handshake.batch
            return version
        refused = self._refresh(request)
        if refused is not None:
            return refused
        if request.method == "tools/list":
            return self._list(version)
        params = request.params or {}
        assert isinstance(params, dict)  # noqa: S101 - for the type checker
        if request.method == SET_LEVEL:
            self._client_log.set_level(params.get("level"))
            return "{}"
        return self._call(arrival, request, params, version)

    # Tools.

    def _refresh(self, request: Request) -> Refused | None:
        """Bring the tools up to date, and tell a client that has seen others."""
        name = request.params.get("name") if isinstance(request.params, dict) else None
        method = self._tools.get(name) if isinstance(name, str) else None
        user_methods, registry = self._server.user_methods, self.registry
        if method is None or not user_methods.is_current(method.name):
            refused = self._server.refresh_methods(None if method is None else method.name)
            if refused is not None:
                return refused
        if self._seen == registry.version:
            return None
        self._tools = name_tools(each for each in registry if each.name not in self._own)
        if self._lists and request.method != "tools/list":
            self._server.notify(request, "notifications/tools/list_changed", "{}")
        self._lists.clear()
        self._seen = registry.version
        return None

    def _list(self, version: Version) -> str:
        if version.name not in self._lists:
            tools = [describe_tool(*each, version) for each in self._tools.items()]
            body = {"tools": tools, **(CACHE if version.stateless else {})}
            self._lists[version.name] = finish(dumps(body)[1:-1], version)
        return self._lists[version.name]

    def _find(self, params: Params) -> tuple[str, Method, Params | None]:
        """Return the tool that is called, by its name, and its arguments."""
        name, given = params.get("name"), params.get("arguments")
        if not isinstance(name, str):
            raise invalid("name must be a string")
        method = self._tools.get(name)
        if method is None:
            raise invalid(f"Unknown tool: {name[:RECEIVED_MAX]}")
        if given is not None and not isinstance(given, dict):
            raise invalid("arguments must be an object")
        return name, method, given

    def _call(
        self, arrival: Arrival, request: Request, params: Params, version: Version
    ) -> str | Refused:
        name, method, given = self._find(params)
        self._client_log.begin(version, meta_of(params))
        rounds = Rounds(self._signer, [name, given], params) if version.stateless else None
        context = None
        if method.context is not None:
            caller = self._caller(version, params, rounds)
            progress = self._progress(arrival, request, version)
            context = self._server.context(request, progress, caller)
        arguments_fit = False

        def run(given: Params | None, context: Context | None) -> str:
            nonlocal arguments_fit
            arguments = method.bind(given)
            arguments_fit = True
            return method.run(arguments, context)

        result = self._server.run_method(run, given, context)
        self._client_log.end()
        # Whatever the method made of these two.
        if self._server.guard.cancellation.requested:
            return Refused(CANCELLED)
        if rounds is not None and rounds.asked is not None:
            return f"{{{INPUT_REQUIRED},{dumps(rounds.asked)[1:]}"
        if isinstance(result, str):
            return finish(write_result(result, method, version), version)
        if arguments_fit or result.error.code != INVALID_PARAMS or result.cause is not None:
            return finish(self._fail(result, request, name, method), version)
        if version.arguments_are_shown:
            return finish(write_error(result.error.message), version)
        return result

    # Asking and telling.

    def _caller(self, version: Version, params: Params, rounds: Rounds | None) -> McpCaller:
        server, turn = self._server, self._server.guard.cancellation.turn

        def ask(method: str, params: Params) -> object:
            return read_reply(server.questions.ask(turn, method, params))

        def say(text: str) -> None:
            server.notify_client("duet-rpc", dumps(text))

        if rounds is None:
            return McpCaller(version, self._session.capabilities, ask, say)
        return McpCaller(version, meta_of(params).get(CAPABILITIES_KEY), rounds.ask, say)

    def notification(self, topic: str, params: str) -> Notification | None:
        """Return a log message, where the client wants to hear it."""
        return self._client_log.message(topic, params)

    def reply_now(self, request: Request) -> str | None:
        """Return the answer to a ping, which does not wait for the tool that runs."""
        if request.method != "ping" or self._session.handshake is None:
            return None
        try:
            result = self._session.begin(request.id, request.method, request.params)
        except RpcError:
            return None  # in its turn
        return result if isinstance(result, str) else None

    def _fail(self, refused: Refused, request: Request, name: str, method: Method) -> str:
        """Tell the model what the method said; of a crash, that it was one."""
        error = refused.error
        if refused.cause is not None:
            self._server.author.log_failure(name, refused, request)
            # Not by isinstance, which asks the exception itself.
            if type(refused.cause) is BadResult and refused.cause.path is not None:
                return write_departure(name, method, refused.cause.path)
            return write_error(f"{name} failed; the log of duet-rpc says where")
        what = f"{name}: refused with error {error.code}"
        self._server.log.warn(what, request.method, write_id(request.id))
        return write_error(error.message, error.data)

    def _progress(
        self, arrival: Arrival, request: Request, version: Version
    ) -> Callable[[dict[str, object]], None] | None:
        token = find_token(arrival, request)
        if not isinstance(token, (str, int)):
            return None
        last = float("-inf")
        turn = self._server.guard.cancellation.turn

        def send(reports: list[str]) -> None:
            if not turn.requested:  # nothing more of a request that was cancelled
                self._server.notify(request, "notifications/progress", reports[-1])

        paced = self._server.pace(send, only_newest=True)

        def report(value: dict[str, object]) -> None:
            nonlocal last
            done = value["done"]
            if not isinstance(done, (int, float)) or not done > last:
                return  # MCP wants each to be more than the one before
            last = done
            fields: dict[str, object] = {"progress": done}
            if value["total"] is not None:
                fields["total"] = value["total"]
            if value["message"] is not None and version.progress_message:
                fields["message"] = value["message"]
            paced.add(f'{{"progressToken":{write_id(token)},{dumps(fields)[1:]}')

        return report
