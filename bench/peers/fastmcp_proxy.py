"""FastMCP's proxy in front of several MCP servers: `python fastmcp_proxy.py NAME… -- COMMAND`.

With a client that stays connected: otherwise it starts all servers again for each request.
"""

import asyncio
import sys

from fastmcp import Client
from fastmcp.server import create_proxy


async def main() -> None:
    """Serve until the input ends."""
    words = sys.argv[1:]
    at = words.index("--")
    command, *arguments = words[at + 1 :]
    servers = {name: {"command": command, "args": arguments} for name in words[:at]}
    async with Client({"mcpServers": servers}) as client:
        await create_proxy(client).run_async(show_banner=False)


asyncio.run(main())
