"""A server on FastMCP, of both eras: `python server_fastmcp.py NAME`."""

import sys

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools import Tool
from mcp_types import SamplingMessage, TextContent, ToolListChangedNotification
from same import KNOWN, offer, offer_questions

NAME = sys.argv[1]
server = FastMCP(NAME)
fail = offer(server, NAME, Context, ToolError)
said = SamplingMessage(role="user", content=TextContent(type="text", text="Well?"))
offer_questions(server, Context, said)


@server.tool
async def grow(ctx: Context) -> str:
    """Add a tool."""
    server.add_tool(Tool.from_function(fail, name="grown"))
    await ctx.send_notification(ToolListChangedNotification())
    return "grown"


@server.completion
async def complete(ref: object, argument: object, context: object) -> list[str]:
    return [each for each in KNOWN if each.startswith(argument.value)]


server.run(show_banner=False)
