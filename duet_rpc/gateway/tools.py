"""The tools of all MCP servers as one list.

A tool is kept as the JSON text that its server sent, with another name in it. Each list
is asked for once, and again when its server says that it has changed. Whoever asks for
the merged list waits for the slow ones no longer than `LIST_TIMEOUT`, and is told who is
missing.
"""

from __future__ import annotations

from duet_rpc.gateway.backend import READY, Call
from duet_rpc.gateway.dialects import MCP
from duet_rpc.jsonrpc.envelope import (
    error_of,
    member,
    replace,
    split_array,
    split_object,
    without,
)
from duet_rpc.jsonrpc.messages import Failure, to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from duet_rpc.gateway.backend import Backend, Outcome
    from duet_rpc.gateway.loop import Loop, Timer

PAGES_MAX = 100
TRIES_MAX = 3  # of a list that changes while it is asked for
MARK = "__"

OWN = "your methods"
"""The name of the backend that has the user's methods; no name in a configuration can be this."""


class Tool:
    """One tool: its text, and the parts that are listed."""

    __slots__ = ("backend", "description", "name", "own_name", "schema", "text")

    def __init__(self, backend: str, text: str) -> None:
        members = {name: each[0] for name, each in split_object(text)[0].items()}
        name = members["name"]
        if not name or not isinstance(name, str):
            raise ValueError
        self.backend = backend
        self.own_name = name
        self.name = name if backend == OWN else f"{backend}{MARK}{name}"
        self.text = replace(text, ("name",), to_json(self.name).decode())
        self.description = str(members.get("description") or members.get("title") or "")
        schema = members.get("inputSchema")
        self.schema: dict[str, object] = schema if isinstance(schema, dict) else {}


class Tools:
    """What the servers have said, and who waits for what they have not said."""

    def __init__(
        self, backends: Iterable[Backend], loop: Loop, fresh_id: Callable[[], int]
    ) -> None:
        self._servers = {each.name: each for each in backends if each.dialect is MCP}
        self._loop = loop
        self._fresh_id = fresh_id
        self._known: dict[str, list[Tool]] = {}
        self._asking: dict[str, Listing] = {}
        self._waiting: list[Waiting] = []
        self._missed: set[str] = set()  # whose tools were missing in the last list
        self.on_news: Callable[[], object] = lambda: None

    def find(self, name: str) -> tuple[Backend, str] | None:
        """Return the server that `NAME__tool` names, and the tool's name there."""
        server, _, tool = name.partition(MARK)
        backend = self._servers.get(server)
        return (backend, tool) if backend is not None and tool else None

    def forget(self, name: str) -> None:
        """Ask again next time."""
        self._known.pop(name, None)

    def renew(self, name: str) -> None:
        """Ask again next time, and now if it is being asked for."""
        self.forget(name)
        if name in self._asking:
            self._asking[name].changed = True

    def retry(self, name: str) -> None:
        """Ask a server that is ready at last, if a list went out without its tools."""
        if name in self._missed:
            self._ask(self._servers[name])

    def collect(self, seconds: float, done: Callable[[list[Tool], dict[str, str]], None]) -> None:
        """Hand over all tools, and why some servers' are missing."""
        missing = [name for name in self._servers if name not in self._known]
        waiting = Waiting(set(missing), done)
        self._waiting.append(waiting)
        waiting.timer = self._loop.after(seconds, lambda: self._finish(waiting))
        for name in missing:
            self._ask(self._servers[name])
        self._look(waiting)

    def _ask(self, backend: Backend) -> None:
        if backend.name in self._asking:
            return
        if backend.refuse() is not None:
            self._answered(backend.name)
            return
        self._asking[backend.name] = Listing()
        self._ask_page(backend, None, 1)

    def _ask_page(self, backend: Backend, cursor: str | None, page: int) -> None:
        params = None if cursor is None else f'{{"cursor":{cursor}}}'
        call = Call("tools/list", lambda outcome: self._take(backend, outcome, cursor, page))
        backend.request(self._fresh_id(), "tools/list", params, call)

    def _take(self, backend: Backend, outcome: Outcome, cursor: str | None, page: int) -> None:
        name = backend.name
        result = None if isinstance(outcome, Failure) else outcome.raw("result")
        if isinstance(outcome, Failure) or not isinstance(outcome.value("result"), dict):
            if not isinstance(outcome, Failure) and error_of(outcome) is not None:
                self._known[name] = []  # it has none
            self._answered(name)
            return
        assert result is not None  # noqa: S101 - for the type checker
        listing = self._asking[name]
        if listing.changed and listing.tries < TRIES_MAX:
            listing.begin_again()
            self._ask_page(backend, None, 1)
            return
        tools = member(result, "tools") or "[]"
        for text in split_array(tools) if tools.startswith("[") else ():
            try:
                listing.tools.append(Tool(name, text))
            except (KeyError, ValueError, IndexError):
                backend.report("a tool without a name was left out")
            except RecursionError:
                backend.report("a tool that is nested too deeply was left out")
        following = member(result, "nextCursor")
        if following and following.startswith('"') and following != cursor and page < PAGES_MAX:
            self._ask_page(backend, following, page + 1)
            return
        self._known[name] = listing.tools
        self._answered(name)
        if listing.changed:
            self.forget(name)

    def _answered(self, name: str) -> None:
        self._asking.pop(name, None)
        if name in self._missed and name in self._known:
            self._missed.discard(name)
            self.on_news()
        for waiting in list(self._waiting):
            waiting.missing.discard(name)
            self._look(waiting)

    def _look(self, waiting: Waiting) -> None:
        if not waiting.missing and waiting in self._waiting:
            self._finish(waiting)

    def _finish(self, waiting: Waiting) -> None:
        self._waiting.remove(waiting)
        if waiting.timer is not None:
            waiting.timer.cancel()
        tools = [tool for name in self._servers for tool in self._known.get(name, ())]
        absent = {
            name: backend.reason or ("slow" if backend.state == READY else backend.state)
            for name, backend in self._servers.items()
            if name not in self._known
        }
        self._missed = set(absent)
        waiting.done(tools, absent)


class Listing:
    """What a server has said so far."""

    __slots__ = ("changed", "tools", "tries")

    def __init__(self) -> None:
        self.tries = 0
        self.begin_again()

    def begin_again(self) -> None:
        """Forget what it has said."""
        self.tools: list[Tool] = []
        self.changed = False
        self.tries += 1


class Waiting:
    """Somebody who has asked for the merged list."""

    __slots__ = ("done", "missing", "timer")

    def __init__(
        self, missing: set[str], done: Callable[[list[Tool], dict[str, str]], None]
    ) -> None:
        self.missing = missing
        self.done = done
        self.timer: Timer | None = None


def rename_call(params: str, tool: str) -> str:
    """Put a tool's own name into the params of `tools/call`."""
    return replace(params, ("name",), to_json(tool).decode())


def call_by_name(tool: str, arguments: str) -> str | None:
    """Write the params of `tools/call` for a tool called as a method; None where it can't be."""
    if arguments[0] != "{":
        return None
    name = to_json(tool).decode()
    meta = member(arguments, "_meta")
    if meta is None:
        return f'{{"name":{name},"arguments":{arguments}}}'
    # It says something about the call and is no argument.
    return f'{{"_meta":{meta},"name":{name},"arguments":{without(arguments, "_meta")}}}'
