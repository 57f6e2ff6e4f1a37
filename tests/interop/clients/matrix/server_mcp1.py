"""A server on the Python SDK 1.x, of the handshake era: `python server_mcp1.py NAME`."""

import sys

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import Completion, SamplingMessage, TextContent
from same import KNOWN, offer, offer_questions

NAME = sys.argv[1]
server = FastMCP(NAME, log_level="ERROR")
fail = offer(server, NAME, Context, ValueError)
said = SamplingMessage(role="user", content=TextContent(type="text", text="Well?"))
offer_questions(server, Context, said)


@server.tool()
async def grow(ctx: Context) -> str:
    """Add a tool."""
    server.add_tool(fail, name="grown")
    await ctx.session.send_tool_list_changed()
    return "grown"


@server.completion()
async def complete(ref: object, argument: object, context: object) -> Completion:
    return Completion(values=[each for each in KNOWN if each.startswith(argument.value)])


server.run()
