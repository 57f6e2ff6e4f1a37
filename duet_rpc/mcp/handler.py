"""The handler of `duet-rpc mcp`: methods as tools, in the protocol that AI clients speak."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.failures import describe
from duet_rpc.jsonrpc.errors import INVALID_PARAMS, Error, RpcError
from duet_rpc.jsonrpc.jsontext import dumps, loads, write_id
from duet_rpc.jsonrpc.limits import RECEIVED_MAX
from duet_rpc.jsonrpc.messages import Notification
from duet_rpc.mcp.session import CACHE, Session, finish, invalid
from duet_rpc.mcp.tools import (
    WRAPPER,
    describe_tool,
    find_departure,
    name_tools,
    returns_object,
    write_error,
    write_result,
)
from duet_rpc.methods.builtin import add_builtin
from duet_rpc.methods.registry import Registry
from duet_rpc.methods.sources import RELOAD
from duet_rpc.server.dispatch import CANCELLED, Refused, not_found
from duet_rpc.server.intake import CancelForm
from duet_rpc.server.rpc import find_token

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.jsonrpc.messages import Request
    from duet_rpc.mcp.session import Params
    from duet_rpc.mcp.versions import Version
    from duet_rpc.methods.context import Context
    from duet_rpc.methods.registry import Method
    from duet_rpc.server.intake import Arrival
    from duet_rpc.server.loop import Call, Server


class McpHandler:
    """Offers the user's methods as tools; the daemon's own methods are none."""

    cancel = CancelForm("notifications/cancelled", "requestId")
    answers_cancelled = False

    def __init__(self, server: Server) -> None:
        self._server = server
        self._batch = server.batch  # asked for on the command line
        self._session = Session()
        self._named: dict[str, Method] | None = None
        self._lists: dict[str, str] = {}  # by version
        # They are here so that a method of theirs has the same name on every wire.
        self.registry = Registry()
        stop = server.lifecycle.stop
        add_builtin(self.registry, server.log.set_level, lambda: stop("shutdown requested"))
        self._own = {method.name for method in self.registry} | {RELOAD}

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
        if request.method == "tools/list":
            return self._list(version)
        params = request.params or {}
        assert isinstance(params, dict)  # noqa: S101 - for the type checker
        return self._call(arrival, request, params, version)

    # Tools.

    def _tools(self) -> dict[str, Method]:
        if self._named is None:
            self._named = name_tools(each for each in self.registry if each.name not in self._own)
        return self._named

    def _list(self, version: Version) -> str:
        if version.name not in self._lists:
            tools = [describe_tool(*each, version) for each in self._tools().items()]
            body = {"tools": tools, **(CACHE if version.stateless else {})}
            self._lists[version.name] = finish(dumps(body)[1:-1], version)
        return self._lists[version.name]

    def _call(
        self, arrival: Arrival, request: Request, params: Params, version: Version
    ) -> str | Refused:
        name, given = params.get("name"), params.get("arguments")
        if not isinstance(name, str):
            raise invalid("name must be a string")
        method = self._tools().get(name)
        if method is None:
            raise invalid(f"Unknown tool: {name[:RECEIVED_MAX]}")
        if given is not None and not isinstance(given, dict):
            raise invalid("arguments must be an object")
        context = None
        if method.context is not None:
            context = self._server.context(request, self._progress(arrival, request, version))
        arguments_fit = False

        def run(given: Params | None, context: Context | None) -> str:
            nonlocal arguments_fit
            arguments = method.bind(given)
            arguments_fit = True
            return method.run(arguments, context)

        result = self._server.run_method(run, given, context)
        if self._server.cancellation.requested:  # whatever the method made of it
            return Refused(CANCELLED)
        if isinstance(result, str):
            return finish(self._write(result, method, request, name, version), version)
        if not arguments_fit and result.error.code == INVALID_PARAMS and result.cause is None:
            if not version.arguments_are_shown:
                return result
            return finish(write_error(result.error.message), version)
        return finish(self._fail(result, request, name), version)

    def _write(
        self, result: str, method: Method, request: Request, name: str, version: Version
    ) -> str:
        """Write a result, unless it is not what the method's signature promises."""
        place = find_departure(loads(result), method.returns) if method.returns else None
        if place is None:
            return write_result(result, method, version)
        if not returns_object(method):
            place = WRAPPER + place
        wrong = f"{name} returned something else than its signature promises"
        # The place may be made of the result's own words, which are not for the log.
        self._server.log.error(wrong, request.method, write_id(request.id))
        return write_error(f"{wrong}: {place.lstrip('.')}" if place else wrong)

    def _fail(self, refused: Refused, request: Request, name: str) -> str:
        """Tell the model what the method said; of a crash, that it was one."""
        log, id = self._server.log, write_id(request.id)
        error = refused.error
        if refused.cause is not None:
            log.error(f"{name}: {describe(refused.cause)}", request.method, id)
            return write_error(f"{name} failed; the log of duet-rpc says where")
        log.warn(f"{name}: refused with error {error.code}", request.method, id)
        return write_error(error.message, error.data)

    def _progress(
        self, arrival: Arrival, request: Request, version: Version
    ) -> Callable[[dict[str, object]], None] | None:
        token = find_token(arrival, request)
        if not isinstance(token, (str, int)):
            return None
        last = float("-inf")

        def send(value: dict[str, object]) -> None:
            nonlocal last
            done = value["done"]
            if not isinstance(done, (int, float)) or not done > last:
                return  # MCP wants each to be more than the one before
            if self._server.cancellation.requested:
                return  # and nothing more of a request that was cancelled
            last = done
            fields: dict[str, object] = {"progress": done}
            if value["total"] is not None:
                fields["total"] = value["total"]
            if value["message"] is not None and version.progress_message:
                fields["message"] = value["message"]
            params = f'{{"progressToken":{write_id(token)},{dumps(fields)[1:]}'
            self._server.notify(request, "notifications/progress", params)

        return send
