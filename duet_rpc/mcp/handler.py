"""The handler of `duet-rpc mcp`: methods as tools, resources and prompts for AI clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from duet_rpc.jsonrpc.errors import INTERNAL_ERROR, INVALID_PARAMS, TITLES, Error, RpcError
from duet_rpc.jsonrpc.jsontext import dumps, write_id
from duet_rpc.jsonrpc.messages import Notification
from duet_rpc.mcp.catalog import Catalog
from duet_rpc.mcp.elicitation import McpCaller, Rounds, Signer, read_reply
from duet_rpc.mcp.logging import ClientLog
from duet_rpc.mcp.prompts import complete, write_messages
from duet_rpc.mcp.resources import read
from duet_rpc.mcp.session import (
    CACHE,
    INPUT_REQUIRED,
    LISTS,
    SET_LEVEL,
    Session,
    finish,
)
from duet_rpc.mcp.tools import departure, write_error, write_result
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
    from collections.abc import Callable, Collection, Iterator

    from duet_rpc.jsonrpc.messages import Request
    from duet_rpc.mcp.emacs import EmacsServer
    from duet_rpc.mcp.lisp_tools import LispTools
    from duet_rpc.mcp.session import Params
    from duet_rpc.mcp.versions import Version
    from duet_rpc.methods.context import Context
    from duet_rpc.methods.method import Method
    from duet_rpc.server.frames import Arrival
    from duet_rpc.server.intake import Call
    from duet_rpc.server.loop import Server


class Run(NamedTuple):
    """A request that runs a method of the user's."""

    arrival: Arrival
    request: Request
    params: Params
    version: Version


class Job(NamedTuple):
    """What such a request runs, and how the reply is written."""

    method: Method
    key: list[Any]  # what is the same where a client makes a call again, with answers
    call: Callable[[Context | None], str]
    write: Callable[[str], str]
    fail: Callable[[Refused], str | Refused]


class McpHandler:
    """Offers the user's methods; the daemon's own are not offered."""

    cancel = CancelForm("notifications/cancelled", "requestId")
    immediate: Collection[str] = ("initialize", "ping", "server/discover", SET_LEVEL, *LISTS)
    answers_cancelled = False
    is_for_authors = False  # but a model's

    def __init__(
        self, server: Server, emacs: EmacsServer | None, lisp_tools: LispTools | None
    ) -> None:
        """Begin; `emacs` is the one that `--emacs` names, `lisp_tools` those to be offered."""
        self._server = server
        self._emacs = emacs
        self._batch = server.batch  # asked for on the command line
        self._session = Session()
        self._client_log = ClientLog(self._session)
        self._signer = Signer()
        self._lisp_tools = lisp_tools
        self._catalog = Catalog(())
        self._seen = (-1, 0)  # which versions of the registry and of Lisp's tools it is made from
        # They are here so that a method of theirs has the same name on every wire.
        self.registry = Registry()
        stop = server.lifecycle.stop
        add_builtin(self.registry, server.log.set_level, lambda: stop("shutdown requested"))
        self._own = {method.name for method in self.registry} | {RELOAD}

    @property
    def passed_on(self) -> tuple[bool, str | None, object]:
        """What a router has to know of this connection."""
        handshake = self._session.handshake
        name = None if handshake is None else handshake.name
        return handshake is not None, name, self._session.capabilities

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
        params = request.params or {}
        assert isinstance(params, dict)  # noqa: S101 - for the type checker
        if request.method == SET_LEVEL:
            self._client_log.set_level(params.get("level"))
            return "{}"
        refused = self._refresh(request, params)
        if refused is not None:
            return refused
        if request.method in LISTS:
            return self._catalog.write(request.method, version)
        if request.method == "completion/complete":
            return finish(complete(self._catalog, params), version)
        run = Run(arrival, request, params, version)
        if request.method == "tools/call":
            return self._call_tool(run)
        is_resource = request.method == "resources/read"
        return self._read_resource(run) if is_resource else self._get_prompt(run)

    def _refresh(self, request: Request, params: Params) -> Refused | None:
        """Bring the catalog up to date, and tell a client that has seen another one."""
        method = self._catalog.find(params, request.method)
        user_methods, registry = self._server.user_methods, self.registry
        if method is None or not user_methods.is_current(method.name):
            refused = self._server.refresh_methods(None if method is None else method.name)
            if refused is not None:
                return refused
        lisp = self._lisp_tools
        if lisp is not None and method is None and request.method in ("tools/list", "tools/call"):
            lisp.client = self._session.client_name
            self._server.run_method(lisp.refresh)
        versions = registry.version, lisp.version if lisp is not None else 0
        if self._seen == versions:
            return None
        earlier = self._catalog
        self._catalog = Catalog(self._offered())
        self._seen = versions
        for kind in self._catalog.changed_since(earlier):
            if not (request.method in LISTS and request.method.startswith(kind)):
                self._server.reports.notify(request, f"notifications/{kind}/list_changed", "{}")
        return None

    def _offered(self) -> Iterator[Method]:
        """Yield the user's methods, then the tools of Lisp whose names are not taken."""
        yield from (each for each in self.registry if each.name not in self._own)
        for tool in self._lisp_tools.methods if self._lisp_tools is not None else ():
            if self.registry.get(tool.name) is None:
                yield tool
            else:
                self._server.log.warn(f"{tool.name} in Emacs has the name of a method; left out")

    # What runs the user's code.

    def _call_tool(self, run: Run) -> str | Refused:
        name, method, given = self._catalog.tool(run.params)
        version, arguments_fit = run.version, False

        def call(context: Context | None) -> str:
            nonlocal arguments_fit
            arguments = method.bind(given, context)
            arguments_fit = True
            return method.write(method.function(**arguments))

        def write(result: str) -> str:
            return finish(write_result(result, method, version), version)

        def fail(refused: Refused) -> str | Refused:
            error = refused.error
            if arguments_fit or error.code != INVALID_PARAMS or refused.cause is not None:
                return finish(self._fail_tool(refused, run.request, name, method), version)
            if version.arguments_are_shown:
                return finish(write_error(error.message), version)
            return refused

        return self._run(run, Job(method, [name, given], call, write, fail))

    def _read_resource(self, run: Run) -> str | Refused:
        uri, version = run.params.get("uri"), run.version
        method, values = self._catalog.resource(uri, version)

        def call(context: Context | None) -> str:
            return read(method, str(uri), values, context)

        def write(result: str) -> str:
            cache = f",{dumps(CACHE)[1:-1]}" if version.stateless else ""
            return finish(result + cache, version)

        return self._run(run, Job(method, [uri], call, write, lambda each: _fail(each, method)))

    def _get_prompt(self, run: Run) -> str | Refused:
        method, given = self._catalog.prompt(run.params)

        def call(context: Context | None) -> str:
            return write_messages(method, given, context)

        def write(result: str) -> str:
            return finish(result, run.version)

        key = [method.name, given]
        return self._run(run, Job(method, key, call, write, lambda each: _fail(each, method)))

    def _run(self, run: Run, job: Job) -> str | Refused:
        """Run a method; return the reply."""
        version = run.version
        self._client_log.begin(version, meta_of(run.params))
        rounds = Rounds(self._signer, job.key, run.params) if version.stateless else None
        context = None
        if job.method.context is not None:
            caller = self._caller(version, run.params, rounds, job.method.name)
            progress = self._progress(run.arrival, run.request, version)
            context = self._server.reports.context(run.request, progress, caller)
        result = self._server.run_method(job.call, context)
        self._client_log.end()
        # Whatever the method made of these two.
        if self._server.guard.cancellation.requested:
            return Refused(CANCELLED)
        if rounds is not None and rounds.asked is not None:
            return f"{{{INPUT_REQUIRED},{dumps(rounds.asked)[1:]}"
        return job.write(result) if isinstance(result, str) else job.fail(result)

    # Asking and telling.

    def _caller(
        self, version: Version, params: Params, rounds: Rounds | None, name: str
    ) -> McpCaller:
        server, turn = self._server, self._server.guard.cancellation.turn

        def ask(method: str, params: Params) -> object:
            return read_reply(server.questions.ask(turn, method, params))

        def say(text: str) -> None:
            server.notify_client("duet-rpc", dumps(text))

        emacs = None
        if self._emacs is not None and not self._server.user_methods.is_of_package(name):
            emacs = self._emacs.caller(self._session.client_name, name)
        if rounds is None:
            return McpCaller(version, self._session.capabilities, ask, say, emacs)
        return McpCaller(version, meta_of(params).get(CAPABILITIES_KEY), rounds.ask, say, emacs)

    def notification(self, topic: str, params: str) -> Notification | None:
        """Return a log message, where the client wants it."""
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

    def _fail_tool(self, refused: Refused, request: Request, name: str, method: Method) -> str:
        """Tell the model what the method said; of a crash, that it was one."""
        error = refused.error
        if refused.cause is not None:
            self._server.author.log_failure(name, refused, request)
            return write_error(_describe_crash(name, method, refused.cause))
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
                self._server.reports.notify(request, "notifications/progress", reports[-1])

        paced = self._server.reports.pace(send, only_newest=True)

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


def _fail(refused: Refused, method: Method) -> Refused:
    """Tell the client what a resource or a prompt said; of a crash, that it was one."""
    cause = refused.cause
    if cause is None:
        return refused
    what = _describe_crash(method.name, method, cause)
    failed = Refused(Error(INTERNAL_ERROR, f"{TITLES[INTERNAL_ERROR]}: {what}"), cause)
    failed.details = refused.details
    return failed


def _describe_crash(name: str, method: Method, cause: BaseException) -> str:
    """Return what a client is told of an exception: not its text, which is in the log alone."""
    # Not by isinstance, which asks the exception itself.
    if type(cause) is BadResult and cause.path is not None:
        return departure(name, method, cause.path)
    return f"{name} failed; the log of duet-rpc says where"
