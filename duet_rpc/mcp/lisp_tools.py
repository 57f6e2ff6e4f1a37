"""Tools that are written in Lisp: what the user has defined with `duet-rpc-define-tool`.

Each becomes a method whose function asks Emacs. Its arguments are checked here, against the types
that it was defined with; they go to Emacs as values of JSON, and never as anything that names a
function, a symbol or an object there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from duet_rpc.jsonrpc.errors import EMACS_ERROR, RpcError
from duet_rpc.jsonrpc.jsontext import dumps
from duet_rpc.mcp.emacs import LIST_TIMEOUT, About
from duet_rpc.methods.asking import Unsupported
from duet_rpc.methods.emacs import Handle, from_lisp
from duet_rpc.methods.method import Method, Mismatch, Param, json_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.mcp.emacs import EmacsServer

CHECKS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


class LispTools:
    """The tools that Emacs had when it was last asked."""

    def __init__(self, server: EmacsServer) -> None:
        self._server = server
        self.client = ""  # the name of the AI client, for whoever looks at Emacs
        self._listed: object = []
        self.methods: list[Method] = []
        self.version = 0  # another one whenever the tools are others

    def refresh(self) -> str:
        """Ask for the tools; those of an Emacs that is busy stay, those of one that is gone go."""
        try:
            listed = self._server.ask("tools", {}, About(self.client, "tools"), LIST_TIMEOUT)
        except Unsupported:
            listed = []
        except RpcError:
            return ""
        if listed != self._listed:
            self._listed = listed
            self.methods = [self._make(each) for each in listed or ()]
            self.version += 1
        return ""

    def _make(self, tool: dict[str, Any]) -> Method:
        name = tool["name"]

        def call(**arguments: object) -> object:
            params = {"name": name, "arguments": arguments}
            try:
                value = self._server.ask("tool", params, About(self.client, name))
            except RpcError as error:
                if error.code != EMACS_ERROR:
                    raise
                raise RpcError(error.code, error.message) from None  # what Lisp signalled
            return plain(from_lisp(value))

        params = {each["name"]: make_param(each) for each in tool.get("params") or ()}
        return Method(name, tool.get("description") or "", call, params=params, returns={})


def make_param(given: dict[str, Any]) -> Param:
    """Return a parameter of a tool as a method has it."""
    choices, kind = given.get("enum"), given.get("type") or "string"
    schema: dict[str, object] = {"type": kind}
    if choices:
        schema["enum"] = choices
    if given.get("description"):
        schema["description"] = given["description"]
    label = "|".join(choices) if choices else kind

    def check(value: object) -> object:
        if not CHECKS[kind](value):
            raise Mismatch(label, json_type(value), choices)
        if choices and value not in choices:
            raise Mismatch(label, dumps(value)[:80], choices)
        return value

    return Param(label, schema, check, required=not given.get("optional"))


def plain(value: Any) -> Any:
    """Return a value of Lisp for a model: a symbol by its name, a buffer as Lisp prints it."""
    if isinstance(value, Handle):
        return value.text
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return str(value) if isinstance(value, str) else value
