"""The official conformance suite of MCP, and what carries it to `duet-rpc mcp`."""
