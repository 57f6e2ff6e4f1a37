"""A server on FastMCP, of both eras: `python server_fastmcp.py NAME`."""

import asyncio
import sys

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools import Tool
from mcp_types import SamplingMessage, TextContent, ToolListChangedNotification
from pydantic import BaseModel

NAME = sys.argv[1]
server = FastMCP(NAME)
cancelled = []


class Loud(BaseModel):
    loud: str
    length: int


class Person(BaseModel):
    name: str


@server.tool
def shout(text: str) -> Loud:
    """Shout."""
    return Loud(loud=text.upper(), length=len(text))


@server.tool
def fail() -> str:
    """Fail."""
    raise ToolError("no luck")


@server.tool
async def steps(ctx: Context) -> str:
    """Report progress."""
    for step in (1, 2, 3):
        await ctx.report_progress(step, 3, f"step {step}")
    await asyncio.sleep(0.25)  # the TypeScript SDK forgets what comes together with the result
    return "done"


@server.tool
async def wait(ctx: Context) -> str:
    """Wait to be cancelled."""
    await ctx.report_progress(1, 2)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        cancelled.append("wait")
        raise
    return "not cancelled"


@server.tool
def count_cancelled() -> str:
    """Return how many calls were cancelled."""
    return str(len(cancelled))


@server.tool
async def log(ctx: Context) -> str:
    """Send log messages."""
    await ctx.debug("hidden")
    await ctx.info(f"from {NAME}")
    await asyncio.sleep(0.02)
    return "logged"


@server.tool
async def ask(ctx: Context) -> str:
    """Ask the person at the client."""
    answer = await ctx.elicit("Who?", Person)
    return f"Hello {answer.data.name}"


@server.tool
async def sample(ctx: Context) -> str:
    """Ask the client's model."""
    said = SamplingMessage(role="user", content=TextContent(type="text", text="Well?"))
    answer = await ctx.session.create_message([said], max_tokens=9)
    return answer.content.text


@server.tool
async def roots(ctx: Context) -> str:
    """Ask where the client works."""
    return str((await ctx.session.list_roots()).roots[0].uri)


@server.tool
async def grow(ctx: Context) -> str:
    """Add a tool."""
    server.add_tool(Tool.from_function(fail, name="grown"))
    await ctx.send_notification(ToolListChangedNotification())
    return "grown"


@server.resource(f"notes://{NAME}/today")
def today() -> str:
    return f"today at {NAME}"


@server.resource(f"notes://{NAME}/days/{{day}}")
def note(day: str) -> str:
    return f"{day} at {NAME}"


@server.prompt
def review(language: str) -> str:
    """Review code."""
    return f"Review this {language} for {NAME}"


@server.completion
async def complete(ref: object, argument: object, context: object) -> list[str]:
    known = ("monday", "python", "ruby")
    return [each for each in known if each.startswith(argument.value)]


server.run(show_banner=False)
