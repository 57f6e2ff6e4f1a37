"""The client of the Python SDK of MCP, calling a user's methods as tools.

python mcp_client.py MODE PYTHON DUET-RPC.PYZ TOOLS

Run it with the Python of build/mcp, which has the SDK.
"""

import sys
import time

import anyio
from mcp import Client, MCPError, StdioServerParameters

MODE, PYTHON, PYZ, TOOLS = sys.argv[1:]
VERSION = {"legacy": "2025-11-25"}.get(MODE, "2026-07-28")


async def check() -> None:
    """Make all calls."""
    command = StdioServerParameters(command=PYTHON, args=[PYZ, "mcp", "--methods", TOOLS])
    async with Client(command, mode=MODE, read_timeout_seconds=20) as client:
        assert client.protocol_version == VERSION, client.protocol_version
        await check_list(client)
        await check_calls(client)
        await check_failures(client)
        await check_progress_and_cancel(client)
        before = time.monotonic()
    assert time.monotonic() - before < 2.0, "it did not leave by itself"


async def check_list(client: Client) -> None:
    """List the tools."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(tools)[:2] == ["text.stats", "add"], list(tools)
    stats = tools["text.stats"]
    assert stats.title == "Statistics of a text"
    assert stats.description == "Count the words of a text.\n\nAnd find the longest one."
    assert stats.input_schema["required"] == ["text"]
    assert stats.output_schema is not None
    assert stats.annotations is not None
    assert stats.annotations.read_only_hint is True
    assert stats.annotations.open_world_hint is False


async def check_calls(client: Client) -> None:
    """Call some; the SDK holds each result against the tool's schema."""
    for name, arguments, result in (
        ("add", {"a": 2, "b": 3}, {"result": 5}),
        ("text.stats", {"text": "to be"}, {"words": 2, "longest": "to"}),
        ("nothing", {}, {"result": None}),
        ("nothing", None, {"result": None}),
        ("gr__e_of_it", {"box": [1, 2.5]}, {"result": [1, 2.5, None]}),
        ("greet", {"name": "😀"}, {"result": "Hello, 😀! \u2028 日本語\nsecond line"}),
        ("box", {"crate": True}, {"width": 1, "area": 0, "label": "x"}),
        ("noisy", {}, {"result": "quiet"}),
    ):
        said = await client.call_tool(name, arguments)
        assert said.structured_content == result, (name, said)
        assert said.is_error is False
    said = await client.call_tool("greet", {"name": "é" * 2_000_000})
    assert len(said.content[0].text) > 2_000_000


async def check_failures(client: Client) -> None:
    """Fail in every way."""
    for name, arguments, words in (
        ("add", {"a": "2"}, "Invalid params: a: expected integer, received string"),
        ("boom", {"secret": "s"}, "boom failed; the log of duet-rpc says where"),
        ("refuse", {}, 'Not on a Sunday\n{"day":"Sunday"}'),
        ("forgets", {}, "forgets returned something else than its signature promises: result"),
    ):
        said = await client.call_tool(name, arguments)
        assert said.is_error is True, name
        assert said.content[0].text == words, said
    code = 0
    try:
        await client.call_tool("no_such_tool", {})
    except MCPError as error:
        code = error.code
    assert code == -32602


async def check_progress_and_cancel(client: Client) -> None:
    """Hear how far a call is, and take one back."""
    heard = []

    async def hear(done: float, total: "float | None", message: "str | None") -> None:
        heard.append((done, total, message))

    await client.call_tool("steps", {"count": 3, "pause": 0.1}, progress_callback=hear)
    assert heard == [(0, 3, "step 0"), (1, 3, "step 1"), (2, 3, "step 2")], heard
    with anyio.move_on_after(0.5) as scope:
        await client.call_tool("forever", {})
    assert scope.cancelled_caught
    assert (await client.call_tool("add", {"a": 1})).structured_content == {"result": 2}


anyio.run(check)
print("all calls answered")
