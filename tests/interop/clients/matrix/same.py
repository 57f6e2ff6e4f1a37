"""What the Python servers of the matrix have in common: the libraries differ in the rest."""

import asyncio
from typing import Any, Callable

from pydantic import BaseModel


class Loud(BaseModel):
    loud: str
    length: int


class Person(BaseModel):
    name: str


KNOWN = ("monday", "python", "ruby")
"""What an argument of a prompt or a template can be completed to."""


def offer(server: Any, name: str, context: type, failure: type) -> Callable[[], str]:
    """Add tools, resources and a prompt to a server; return the tool that fails."""
    offer_texts(server, name)
    offer_long_tools(server, name, context)

    @server.tool()
    def shout(text: str) -> Loud:
        """Shout."""
        return Loud(loud=text.upper(), length=len(text))

    def fail() -> str:
        """Fail."""
        raise failure("no luck")

    server.tool()(fail)

    return fail


def offer_long_tools(server: Any, name: str, Context: type) -> None:  # noqa: N803
    """Add the tools that report, wait and log."""
    cancelled = []

    @server.tool()
    async def steps(ctx: Context) -> str:
        """Report progress."""
        for step in (1, 2, 3):
            await ctx.report_progress(step, 3, f"step {step}")
        await asyncio.sleep(0.25)  # the TypeScript SDK forgets what comes together with the result
        return "done"

    @server.tool()
    async def wait(ctx: Context) -> str:
        """Wait to be cancelled."""
        await ctx.report_progress(1, 2)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append("wait")
            raise
        return "not cancelled"

    @server.tool()
    def count_cancelled() -> str:
        """Return how many calls were cancelled."""
        return str(len(cancelled))

    @server.tool()
    async def log(ctx: Context) -> str:
        """Send log messages."""
        await ctx.debug("hidden")
        await ctx.info(f"from {name}")
        await asyncio.sleep(0.02)
        return "logged"


def offer_texts(server: Any, name: str) -> None:
    """Add the resources and the prompt."""

    @server.resource(f"notes://{name}/today")
    def today() -> str:
        return f"today at {name}"

    @server.resource(f"notes://{name}/days/{{day}}")
    def note(day: str) -> str:
        return f"{day} at {name}"

    @server.prompt()
    def review(language: str) -> str:
        """Review code."""
        return f"Review this {language} for {name}"


def offer_questions(server: Any, Context: type, said: object) -> None:  # noqa: N803
    """Add the tools that ask the client, for a library that asks while a tool runs."""

    @server.tool()
    async def ask(ctx: Context) -> str:
        """Ask the person at the client."""
        answer = await ctx.elicit("Who?", Person)
        return f"Hello {answer.data.name}"

    @server.tool()
    async def sample(ctx: Context) -> str:
        """Ask the client's model."""
        answer = await ctx.session.create_message([said], max_tokens=9)
        return answer.content.text

    @server.tool()
    async def roots(ctx: Context) -> str:
        """Ask where the client works."""
        return str((await ctx.session.list_roots()).roots[0].uri)
