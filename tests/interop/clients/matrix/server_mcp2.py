"""A server on the Python SDK 2.x, of both eras: `python server_mcp2.py NAME`."""

import asyncio
import sys
from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp_types import (
    Completion,
    CreateMessageResult,
    EmptyResult,
    ListRootsResult,
    SamplingMessage,
    SubscribeRequestParams,
    TextContent,
)
from pydantic import BaseModel

NAME = sys.argv[1]
server = MCPServer(NAME, log_level="ERROR")
cancelled = []


class Loud(BaseModel):
    loud: str
    length: int


class Person(BaseModel):
    name: str


@server.tool()
def shout(text: str) -> Loud:
    """Shout."""
    return Loud(loud=text.upper(), length=len(text))


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("no luck")


@server.tool()
async def steps(ctx: Context) -> str:
    """Report progress."""
    for step in (1, 2, 3):
        await ctx.report_progress(step, 3, f"step {step}")
    await asyncio.sleep(0.25)  # the TypeScript SDK forgets what comes together with the result
    return "done"


@server.tool()
async def wait(ctx: Context) -> str:
    """Wait to be cancelled."""
    await ctx.report_progress(1, 2)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        cancelled.append("wait")
        raise
    return "not cancelled"


@server.tool()
def count_cancelled() -> str:
    """Return how many calls were cancelled."""
    return str(len(cancelled))


@server.tool()
async def log(ctx: Context) -> str:
    """Send log messages."""
    await ctx.debug("hidden")
    await ctx.info(f"from {NAME}")
    await asyncio.sleep(0.02)
    return "logged"


def person() -> Elicit[Person]:
    return Elicit("Who?", Person)


def said() -> Sample:
    said = SamplingMessage(role="user", content=TextContent(type="text", text="Well?"))
    return Sample([said], max_tokens=9)


@server.tool()
async def ask(person: Annotated[Person, Resolve(person)]) -> str:
    """Ask the person at the client."""
    return f"Hello {person.name}"


@server.tool()
async def sample(answer: Annotated[CreateMessageResult, Resolve(said)]) -> str:
    """Ask the client's model."""
    return answer.content.text


@server.tool()
async def roots(found: Annotated[ListRootsResult, Resolve(ListRoots)]) -> str:
    """Ask where the client works."""
    return str(found.roots[0].uri)


@server.tool()
async def touch(ctx: Context) -> str:
    """Say that a resource has changed."""
    await ctx.session.send_resource_updated(f"notes://{NAME}/today")
    await ctx.notify_resource_updated(f"notes://{NAME}/today")
    return "touched"


@server.tool()
async def grow(ctx: Context) -> str:
    """Add a tool."""
    server.add_tool(fail, name="grown")
    await ctx.session.send_tool_list_changed()
    await ctx.notify_tools_changed()
    return "grown"


@server.resource(f"notes://{NAME}/today")
def today() -> str:
    return f"today at {NAME}"


@server.resource(f"notes://{NAME}/days/{{day}}")
def note(day: str) -> str:
    return f"{day} at {NAME}"


@server.prompt()
def review(language: str) -> str:
    """Review code."""
    return f"Review this {language} for {NAME}"


@server.completion()
async def complete(ref: object, argument: object, context: object) -> Completion:
    known = ("monday", "python", "ruby")
    return Completion(values=[each for each in known if each.startswith(argument.value)])


async def subscribe(ctx: object, params: SubscribeRequestParams) -> EmptyResult:
    return EmptyResult()


server._lowlevel_server.add_request_handler(
    "resources/subscribe", SubscribeRequestParams, subscribe
)
server.run()
