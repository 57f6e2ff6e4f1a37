"""What every Python client of the matrix does, one server after the other, in one session.

A client prints what it has seen as JSON. What failed is there as the text of its exception, so
that one run shows all that does not work.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

SERVERS = sys.argv[1].split(",")
COMMAND = sys.argv[2:]
ENVIRONMENT = dict(os.environ)
PATIENCE = 15.0


class Adapter:
    """One library's client; a subclass has each call in the words of its library."""

    is_stateless = False

    def __init__(self) -> None:
        self.logs: list[str] = []
        self.notes: list[str] = []  # the methods of notifications, and the URIs in them

    async def tools(self) -> list[str]:
        raise NotImplementedError

    async def call(
        self, name: str, arguments: "dict[str, Any] | None" = None, progress: Any = None
    ) -> tuple[bool, str, Any]:
        raise NotImplementedError

    async def plain(self, name: str, arguments: dict[str, Any]) -> Any:
        """Return a result that is no object as the library's user gets it."""
        return (await self.call(name, arguments))[2]["result"]

    def keep_log(self, data: Any) -> None:
        """Keep a log message; FastMCP's servers have its text inside an object."""
        self.logs.append(data["msg"] if isinstance(data, dict) else data)

    async def cancel(self, call: "asyncio.Task[Any]") -> None:
        """Cancel a call; most libraries do it with the task."""
        call.cancel()


def named(server: str, what: str) -> str:
    """Return the name that a tool or a prompt has; the user's own have no server in theirs."""
    return what if server == "own" else f"{server}__{what}"


def belongs_to(server: str, name: str) -> bool:
    return "__" not in name if server == "own" else name.startswith(f"{server}__")


async def wait_until(is_done: Callable[[], Awaitable[Any]], patience: float = PATIENCE) -> Any:
    """Ask again and again; return what is true, or the last that was not."""
    deadline = time.monotonic() + patience
    while True:
        found = await is_done()
        if found or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.05)


class Replies:
    """What a client replies to a server's questions, in the types of its library."""

    def __init__(self, types: Any) -> None:
        self._types = types

    async def fill_in(self, _context: Any, _params: Any) -> Any:
        return self._types.ElicitResult(action="accept", content={"name": "Ada"})

    async def answer(self, _context: Any, _params: Any) -> Any:
        content = self._types.TextContent(type="text", text="Well enough")
        return self._types.CreateMessageResult(role="assistant", model="none", content=content)

    async def give_roots(self, _context: Any) -> Any:
        return self._types.ListRootsResult(roots=[self._types.Root(uri="file:///project")])


async def drive(client: Any) -> None:
    """Use everything that each server has; print what was seen."""
    start = time.monotonic()
    first = await client.tools()
    seconds = time.monotonic() - start

    async def all_are_there() -> bool:
        tools = await client.tools()
        return all(named(name, "shout") in tools for name in SERVERS)

    await wait_until(all_are_there)
    was_told = "notifications/tools/list_changed" in client.notes
    seen: dict[str, Any] = {"first list": [first, seconds, was_told], "version": client.version()}
    for name in SERVERS:
        seen[name] = await look_at(client, name)
    print(json.dumps(seen))


async def look_at(client: Any, name: str) -> dict[str, Any]:
    """Use everything that one server has."""
    seen = {}
    for title, look in LOOKS.items():
        try:
            seen[title] = await asyncio.wait_for(look(client, name), PATIENCE)
        except Exception as error:
            seen[title] = f"{type(error).__name__}: {error}"
    return seen


async def tools(client: Any, name: str) -> list[str]:
    return sorted(each for each in await client.tools() if belongs_to(name, each))


async def structured(client: Any, name: str) -> Any:
    return (await client.call(named(name, "shout"), {"text": "hi"}))[2]


async def plain(client: Any, name: str) -> Any:
    return await client.plain(named(name, "whisper"), {"text": "HI", "tail": "!"})


async def described(client: Any, name: str) -> list[Any]:
    description, schema = await client.describe(named(name, "whisper"))
    return [description, schema["required"], list(schema["properties"])]


async def failing(client: Any, name: str) -> list[Any]:
    is_error, text, _ = await client.call(named(name, "fail"))
    return [is_error, "no luck" in text]


async def progress(client: Any, name: str) -> list[Any]:
    heard: list[Any] = []

    async def hear(done: float, total: "float | None", message: "str | None") -> None:
        heard.append([done, total, message])

    _, text, _ = await client.call(named(name, "steps"), progress=hear)
    return [*heard, text]


async def cancel(client: Any, name: str) -> str:
    has_begun = asyncio.Event()

    async def hear(*_: Any) -> None:
        has_begun.set()

    call = asyncio.ensure_future(client.call(named(name, "wait"), progress=hear))
    await has_begun.wait()
    await client.cancel(call)
    await asyncio.wait([call], timeout=1)

    async def is_counted() -> "str | None":
        text = (await client.call(named(name, "count_cancelled")))[1]
        return text if text != "0" else None

    return await wait_until(is_counted, 3) or "0"


async def resources(client: Any, name: str) -> list[str]:
    return [each for each in await client.resources() if each.startswith(f"notes://{name}/")]


async def read(client: Any, name: str) -> str:
    return await client.read(f"notes://{name}/today")


async def templates(client: Any, name: str) -> list[str]:
    return [each for each in await client.templates() if each.startswith(f"notes://{name}/")]


async def read_template(client: Any, name: str) -> str:
    return await client.read(f"notes://{name}/days/monday")


async def prompts(client: Any, name: str) -> list[str]:
    return [each for each in await client.prompts() if belongs_to(name, each)]


async def prompt(client: Any, name: str) -> str:
    return await client.prompt(named(name, "review"), {"language": "python"})


async def complete_prompt(client: Any, name: str) -> list[str]:
    return await client.complete("prompt", named(name, "review"), "language", "py")


async def complete_template(client: Any, name: str) -> list[str]:
    return await client.complete("resource", f"notes://{name}/days/{{day}}", "day", "mo")


async def log(client: Any, name: str) -> list[str]:
    await client.set_level("info")
    client.logs.clear()
    await client.call(named(name, "log"))
    return list(client.logs)


async def ask(client: Any, name: str) -> str:
    return (await client.call(named(name, "ask")))[1]


async def sample(client: Any, name: str) -> str:
    return (await client.call(named(name, "sample")))[1]


async def roots(client: Any, name: str) -> str:
    return (await client.call(named(name, "roots")))[1]


async def subscription(client: Any, name: str) -> bool:
    uri = f"notes://{name}/today"
    async with client.subscribed(uri):
        await client.call(named(name, "touch"))

        async def is_told() -> bool:
            return f"notifications/resources/updated {uri}" in client.notes

        return await wait_until(is_told, 3)


async def list_changed(client: Any, name: str) -> list[bool]:
    client.notes.clear()
    await client.call(named(name, "grow"))

    async def is_listed() -> bool:
        return named(name, "grown") in await client.tools()

    async def is_told() -> bool:
        return "notifications/tools/list_changed" in client.notes

    # Nobody tells a stateless client that has not subscribed: it asks again.
    return [client.is_stateless or await wait_until(is_told, 3), await wait_until(is_listed, 3)]


LOOKS: dict[str, Callable[[Any, str], Awaitable[Any]]] = {
    "tools": tools,
    "structured": structured,
    "plain": plain,
    "described": described,
    "failing": failing,
    "progress": progress,
    "cancel": cancel,
    "resources": resources,
    "read": read,
    "templates": templates,
    "read template": read_template,
    "prompts": prompts,
    "prompt": prompt,
    "complete prompt": complete_prompt,
    "complete template": complete_template,
    "log": log,
    "ask": ask,
    "sample": sample,
    "roots": roots,
    "subscription": subscription,
    "list changed": list_changed,
}
