"""One small tool with the SDK's low-level server: schemas and results written by hand."""

import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server

PARAMS = {"text": {"type": "string"}, "word": {"type": "string"}, "limit": {"type": "integer"}}
COUNT = types.Tool(
    name="count",
    description="Count a word in a text, up to a limit.",
    input_schema={"type": "object", "properties": PARAMS, "required": [*PARAMS]},
    output_schema={"type": "object", "properties": {"result": {"type": "integer"}}},
)


async def list_tools(*_: object) -> types.ListToolsResult:
    """List it."""
    return types.ListToolsResult(tools=[COUNT])


async def call_tool(_: object, params: types.CallToolRequestParams) -> types.CallToolResult:
    """Call it."""
    given = params.arguments
    found = min(given["text"].count(given["word"]), given["limit"])
    text = types.TextContent(type="text", text=str(found))
    return types.CallToolResult(content=[text], structured_content={"result": found})


async def main() -> None:
    """Serve."""
    server = Server("bench", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


anyio.run(main)
