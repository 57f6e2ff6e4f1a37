"""One small tool with MCPServer, which was FastMCP before version 2 of the SDK."""

from mcp.server import MCPServer

server = MCPServer("bench", log_level="ERROR")


@server.tool()
def count(text: str, word: str, limit: int) -> int:
    """Count a word in a text, up to a limit."""
    return min(text.count(word), limit)


server.run()
