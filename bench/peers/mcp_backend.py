"""An MCP server to put behind a gateway: it does as little as one can.

Run it as `python -I -S bench/peers/mcp_backend.py`. It has one tool, and speaks the versions with
a handshake.
"""

import json
import sys

VERSION = "2025-11-25"
TOOL = {
    "name": "count",
    "description": "Count a word in a text, up to a limit.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "word": {"type": "string"},
            "limit": {"type": "integer"},
        },
        "required": ["text", "word", "limit"],
    },
    "outputSchema": {
        "type": "object",
        "properties": {"result": {"type": "integer"}},
        "required": ["result"],
    },
}


def answer(method: str, params: dict) -> dict:
    """Return the result of one request."""
    if method == "initialize":
        about = {"name": "backend", "version": "1"}
        return {"protocolVersion": VERSION, "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        given = params["arguments"]
        found = min(given["text"].count(given["word"]), given["limit"])
        content = [{"type": "text", "text": str(found)}]
        return {"content": content, "structuredContent": {"result": found}, "isError": False}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "server/discover":
            reply["error"] = {"code": -32601, "message": "Method not found"}
        else:
            reply["result"] = answer(message["method"], message.get("params", {}))
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()
