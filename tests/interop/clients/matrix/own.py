"""The user's own methods in the matrix, beside the servers that others wrote."""

import time
from typing import Literal, TypedDict

from duet_rpc import Context, RpcError, method, prompt, resource

cancelled = []


class Loud(TypedDict):
    loud: str
    length: int


@method
def shout(text: str) -> Loud:
    """Shout."""
    return {"loud": text.upper(), "length": len(text)}


@method
def whisper(text: str, times: int = 1, *, tail: str) -> str:
    return text.lower() * times + tail


@method
def fail() -> str:
    """Fail."""
    raise RpcError(-32000, "no luck")


@method
def steps(ctx: Context) -> str:
    """Report progress."""
    for step in (1, 2, 3):
        ctx.progress(step, 3, f"step {step}")
        time.sleep(0.15)  # so that none of them is left out
    time.sleep(0.1)
    return "done"


@method
def wait(ctx: Context) -> str:
    """Wait to be cancelled."""
    ctx.progress(1, 2)
    try:
        time.sleep(60)
    finally:
        cancelled.append("wait")
    return "not cancelled"


@method
def count_cancelled() -> str:
    """Return how many calls were cancelled."""
    return str(len(cancelled))


@method
def log(ctx: Context) -> str:
    """Send a log message."""
    ctx.say("from own")
    time.sleep(0.02)
    return "logged"


@method
def ask(ctx: Context) -> str:
    """Ask the person at the client."""
    return f"Hello {ctx.ask('Who?')}"


@resource("notes://own/today")
def today() -> str:
    """Tell what is on today."""
    return "today at own"


@resource("notes://own/days/{day}")
def note(day: Literal["monday", "friday"]) -> str:
    """Tell what is on a day."""
    return f"{day} at own"


@prompt
def review(language: Literal["python", "ruby"]) -> str:
    """Review code."""
    return f"Review this {language} for own"
