"""A server on the Python SDK 2.x, of both eras: `python server_mcp2.py NAME`."""

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
from same import KNOWN, Person, offer

NAME = sys.argv[1]
server = MCPServer(NAME, log_level="ERROR")
fail = offer(server, NAME, Context, ToolError)


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


@server.completion()
async def complete(ref: object, argument: object, context: object) -> Completion:
    return Completion(values=[each for each in KNOWN if each.startswith(argument.value)])


async def subscribe(ctx: object, params: SubscribeRequestParams) -> EmptyResult:
    return EmptyResult()


server._lowlevel_server.add_request_handler(
    "resources/subscribe", SubscribeRequestParams, subscribe
)
server.run()
