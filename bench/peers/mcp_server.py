"""One small tool with MCPServer, which was FastMCP before version 2 of the SDK."""

from mcp.server import MCPServer

server = MCPServer("bench", log_level="ERROR")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


server.run()
