"""The face of `duet-rpc mcp`: methods as tools, in the protocol that AI clients speak."""

from __future__ import annotations

from duet_rpc.failures import describe
from duet_rpc.jsonrpc.errors import REQUEST_CANCELLED, TITLES, RpcError
from duet_rpc.jsonrpc.limits import RECEIVED_MAX
from duet_rpc.jsonrpc.messages import Failure, from_json, to_json
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
from duet_rpc.server import dispatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.jsonrpc.messages import Request
    from duet_rpc.mcp.session import Params
    from duet_rpc.mcp.versions import Version
    from duet_rpc.methods.registry import Method
    from duet_rpc.server.daemon import Daemon


class McpFace:
    """The user's methods as tools; the daemon's own methods are none."""

    command = "mcp"
    cancel = "notifications/cancelled"
    cancel_id = "requestId"
    answers_cancelled = False

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._session = Session()
        self._named: dict[str, Method] | None = None
        self._lists: dict[str, bytes] = {}  # by version
        # They are here so that a method of theirs has the same name on every wire.
        self.registry = Registry()
        add_builtin(self.registry, daemon.log.set_level, daemon.shut_down)
        self._own = {method.name for method in self.registry} | {RELOAD}

    def answer(self, request: Request) -> bytes | Failure:
        """Answer one request, or take note of a notification."""
        if request.id is None:
            # No notification but a cancel means anything here.
            known = request.method.startswith("notifications/")
            return b"" if known else dispatch.not_found(request)
        try:
            return self._answer(request, request.id)
        except RpcError as error:
            return Failure(request.id, error.code, error.message, error.data)

    def _answer(self, request: Request, id: str) -> bytes | Failure:
        version = self._session.begin(id, request.method, request.params)
        if version is None:
            return dispatch.not_found(request)
        if isinstance(version, bytes):
            if self._session.handshake is not None:
                self._daemon.reader.batch = self._session.handshake.batch
            return version
        if request.method == "tools/list":
            return self._list(version)
        params = request.params or {}
        assert isinstance(params, dict)  # noqa: S101 - for the type checker
        return self._call(request, params, version)

    # Tools.

    def _tools(self) -> dict[str, Method]:
        if self._named is None:
            self._named = name_tools(each for each in self.registry if each.name not in self._own)
        return self._named

    def _list(self, version: Version) -> bytes:
        if version.name not in self._lists:
            tools = [describe_tool(*each, version) for each in self._tools().items()]
            body = {"tools": tools, **(CACHE if version.stateless else {})}
            self._lists[version.name] = finish(to_json(body)[1:-1], version)
        return self._lists[version.name]

    def _call(self, request: Request, params: Params, version: Version) -> bytes | Failure:
        name, given = params.get("name"), params.get("arguments")
        if not isinstance(name, str):
            raise invalid("name must be a string")
        method = self._tools().get(name)
        if method is None:
            raise invalid(f"Unknown tool: {name[:RECEIVED_MAX]}")
        if given is not None and not isinstance(given, dict):
            raise invalid("arguments must be an object")
        try:
            arguments = method.bind(given)
        except RpcError as error:
            if not version.arguments_are_shown:
                raise
            return finish(write_error(error.message), version)
        context = None
        if method.context is not None:
            context = self._daemon.context(request, self._progress(request, params, version))
        result = self._daemon.run_method(request, method.run, arguments, context)
        if self._daemon.cancelled:  # whatever the method made of it
            return Failure(None, REQUEST_CANCELLED, TITLES[REQUEST_CANCELLED])
        if isinstance(result, Failure):
            return finish(self._fail(result, request, name), version)
        return finish(self._write(result, method, request, name, version), version)

    def _write(
        self, result: bytes, method: Method, request: Request, name: str, version: Version
    ) -> bytes:
        """Write a result, unless it is not what the method's signature promises."""
        place = find_departure(from_json(result), method.returns) if method.returns else None
        if place is None:
            return write_result(result, method, version)
        if not returns_object(method):
            place = WRAPPER + place
        wrong = f"{name} returned something else than its signature promises"
        # The place may be made of the result's own words, which are not for the log.
        self._daemon.log.error(wrong, request.method, request.id)
        return write_error(f"{wrong}: {place.lstrip('.')}" if place else wrong)

    def _fail(self, failure: Failure, request: Request, name: str) -> bytes:
        """Tell the model what the method said; of a crash, that it was one."""
        log = self._daemon.log
        if failure.cause is not None:
            what = describe(failure.cause)
            log.error(f"{name}: {what}", request.method, request.id)
            return write_error(f"{name} failed; the log of duet-rpc says where")
        log.warn(f"{name}: refused with error {failure.code}", request.method, request.id)
        return write_error(failure.message, failure.data)

    def _progress(
        self, request: Request, params: Params, version: Version
    ) -> Callable[[dict[str, object]], None] | None:
        meta = params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        if type(token) not in (str, int):
            return None
        last = float("-inf")

        def send(value: dict[str, object]) -> None:
            nonlocal last
            done = value["done"]
            if not isinstance(done, (int, float)) or not done > last:
                return  # MCP wants each to be more than the one before
            if self._daemon.cancelled:
                return  # and nothing more of a request that was taken back
            last = done
            said: dict[str, object] = {"progressToken": token, "progress": done}
            if value["total"] is not None:
                said["total"] = value["total"]
            if value["message"] is not None and version.progress_message:
                said["message"] = value["message"]
            self._daemon.notify(request, "notifications/progress", said)

        return send
