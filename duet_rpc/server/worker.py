"""What a daemon does that is a worker: it describes its methods to the router, and reports."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from duet_rpc.jsonrpc.jsontext import dumps
from duet_rpc.methods.builtin import STRING
from duet_rpc.methods.describe import describe, discover_method
from duet_rpc.methods.method import Method, Param
from duet_rpc.server.rpc import LISTS, RpcHandler
from duet_rpc.server.user_methods import check_path
from duet_rpc.workers.order import CANCELLED, FINISHED, LOADED, METHODS, READY

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.methods.method import Schema
    from duet_rpc.server.loop import Server


class WorkerRole:
    """The part of a worker in a server: which files are its own, and what it reports."""

    def __init__(self, is_elsewhere: Callable[[str], bool]) -> None:
        self.is_elsewhere = is_elsewhere

    def begin(self, server: Server) -> None:
        """Tell the router that requests can come, and of every cancel that is heeded."""
        server.guard.cancellation.on_raised = lambda: server.reports.send_notification(CANCELLED)
        server.on_silent_end = lambda: server.reports.send_notification(FINISHED)
        server.reports.send_notification(READY, dumps({"message": sys.executable}))


class WorkerHandler(RpcHandler):
    """The handler of `duet-rpc rpc`, with methods that only the router calls."""

    lists = LISTS | {METHODS}

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        reload = Param("boolean", {"type": "boolean"}, bool, required=False)
        load = Param("path", STRING, check_path, required=False)
        options = {"reload": reload, "load": load}
        for name, params in ((METHODS, options), (LOADED, {})):
            method = Method(
                name,
                "Describe the user's methods.",
                self._describe,
                params=params,
                returns={"type": "object"},
            )
            self.registry.add(method, hidden=True)

    def _describe(self, reload: bool = False, load: str | None = None) -> object:
        user_methods = self._server.user_methods
        if reload:
            user_methods.reload()
        if load is not None:
            user_methods.load_file(load)
        own = [self.registry.get(name) for name in self.registry.user_names()]
        entries = [
            {**discover_method(each, Complete()), "signature": describe(each)}
            for each in own
            if each is not None
        ]
        self._known_version = self.registry.version
        return {"methods": entries, "problems": user_methods.problems}


class Complete:
    """Keeps schemas complete, each with its own definitions, so that the router can merge them."""

    def take_from(self, schema: Schema) -> Schema:
        """Return a schema as it is."""
        return schema
