"""The tools that the suite's scenarios call, written as a user would write methods."""

from __future__ import annotations

import time

from duet_rpc import Context, Image, RpcError, method, prompt, resource

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)


@method
def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@method
def test_error_handling() -> str:
    """Fail."""
    raise RpcError(-32000, "This tool intentionally returns an error for testing")


@method
def test_tool_with_progress(ctx: Context) -> str:
    """Report progress."""
    for done in (0, 50, 100):
        ctx.progress(done, 100)
        time.sleep(0.05)
    return "done"


@method
def test_logging_tool(ctx: Context) -> str:
    """Write to the log, which is not the client's."""
    ctx.log.info("a line in the log")
    return "logged"


@method
def test_streaming_elicitation() -> str:
    """Ask the client for nothing."""
    return "nothing was asked"


@method
def test_tool_with_logging(ctx: Context) -> str:
    """Say three things."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.say(text)
        time.sleep(0.05)
    return "said"


@method
def test_elicitation(message: str, ctx: Context) -> str:
    """Ask a question."""
    return f"User response: {ctx.ask(message)}"


@method
def test_input_required_result_elicitation(ctx: Context) -> str:
    """Ask a question."""
    return f"Hello, {ctx.ask('What is your name?')}!"


@method
def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask two questions."""
    name = ctx.ask("Step 1: What is your name?")
    return f"{name} likes {ctx.ask('Step 2: What is your favorite color?')}"


@method
def test_input_required_result_request_state(ctx: Context) -> str:
    """Ask for a confirmation."""
    return "state-ok" if ctx.confirm("Please confirm") else "no"


@method
def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask for a confirmation."""
    return "ok" if ctx.confirm("Please confirm") else "no"


@method
def test_image_content() -> Image:
    """Return a picture."""
    return Image(PIXEL)


@resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """Return a text."""
    return "This is the content of the static text resource."


@resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """Return bytes."""
    return PIXEL


@resource("test://template/{id}/data")
def template(id: str) -> dict[str, object]:
    """Return what the URI says."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@prompt
def test_simple_prompt() -> str:
    """Take nothing."""
    return "This is a simple prompt for testing."


@prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """Take two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"
