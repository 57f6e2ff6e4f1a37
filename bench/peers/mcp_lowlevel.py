"""One small tool with the SDK's low-level server: schemas and results written by hand."""

import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server

NUMBERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}
ADD = types.Tool(
    name="add",
    description="Add two numbers.",
    input_schema={"type": "object", "properties": NUMBERS, "required": ["a", "b"]},
    output_schema={"type": "object", "properties": {"result": {"type": "integer"}}},
)


async def list_tools(*_: object) -> types.ListToolsResult:
    """List it."""
    return types.ListToolsResult(tools=[ADD])


async def call_tool(_: object, params: types.CallToolRequestParams) -> types.CallToolResult:
    """Call it."""
    found = params.arguments["a"] + params.arguments["b"]
    text = types.TextContent(type="text", text=str(found))
    return types.CallToolResult(content=[text], structured_content={"result": found})


async def main() -> None:
    """Serve."""
    server = Server("bench", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


anyio.run(main)
