"""A file with methods and their hints, as `duet-rpc rpc` and `duet-rpc mcp` see it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.mcp_client import meta
from tests.method_files import env_for, write
from tests.support import SOURCE, daemon, request

HEAD = """
from __future__ import annotations
import dataclasses
from typing import Annotated, Any, Dict, List, NamedTuple, Optional, Set
from duet_rpc import method

@method
def good() -> int:
    return 1
"""


def ask(tmp_path: Path, text: str, *calls: tuple[str, object]) -> tuple[list[Any], str]:
    """Return results or errors, and the log."""
    path = write(tmp_path, HEAD + text)
    data = b"".join(request(number, *each) for number, each in enumerate(calls))
    with daemon([*SOURCE, "rpc", "--methods", str(path)], env_for(tmp_path)) as client:
        client.send(data)
        # Importing pydantic may take longer than the time that is left after the end of input.
        replies = [client.receive() for _ in calls]
        code, _, log = client.finish()
    assert code == 0
    assert "Traceback" not in log
    return [reply.get("result", reply.get("error")) for reply in replies], log


def tools_of(tmp_path: Path, text: str) -> tuple[dict[str, Any], str]:
    """Return the tools by name, and the log."""
    path = write(tmp_path, HEAD + text)
    command = [*SOURCE, "mcp", "--methods", str(path)]
    with daemon(command, env_for(tmp_path), framing="lines") as client:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta()}}
        client.send(json.dumps(message).encode() + b"\n")
        tools = client.receive()["result"]["tools"]
        log = client.finish()[2]
    return {each["name"]: each for each in tools}, log
