"""Methods that ask, act on Emacs, stream and push; for asking-tests.el."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

from duet_rpc import Context, Declined, Region, Unsupported, command, method, notify


@method
def ask(ctx: Context, prompt: str = "Name?", default: str | None = None) -> str:
    return ctx.ask(prompt, default=default)


@command(name="py-ask", result="message")
def py_ask(ctx: Context) -> str:
    return f"<{ctx.ask('Name?')}>"


@command(name="py-secret", result="none")
def py_secret(ctx: Context) -> None:
    ctx.log.info(f"{len(ctx.ask('Password', secret=True))} characters")


@method
def secret(ctx: Context) -> int:
    return len(ctx.ask("Password", secret=True))


@method
def choose(ctx: Context, several: bool = False) -> Any:
    fruit = {"fig": "sweet", "pear": "green", "apple": "red"}
    if several:
        return ctx.choose("Fruit?", fruit, multiple=True)
    return ctx.choose("Fruit?", fruit)


@method
def confirm(ctx: Context) -> bool:
    return ctx.confirm("Sure?")


@method
def declined(ctx: Context) -> str:
    try:
        return ctx.ask("Name?")
    except Declined:
        return "declined"


@method
def give_up(ctx: Context) -> str:
    """Ask from a thread, and end while the question is open."""
    threading.Thread(target=lambda: ctx.ask("Too late?"), daemon=True).start()
    time.sleep(0.5)
    return "gave up"


@method
def call(ctx: Context, function: str, args: list[Any]) -> Any:
    return ctx.emacs.call(function, *args)


@method
def evaluate(ctx: Context, text: str) -> Any:
    return ctx.emacs.eval(text)


@method
def error(ctx: Context, text: str) -> list[Any]:
    from duet_rpc import EmacsError

    try:
        ctx.emacs.eval(text)
    except EmacsError as err:
        return [err.symbol, list(err.data)]
    except Unsupported as err:
        return ["Unsupported", [str(err)]]
    return []


@method
def handles(ctx: Context) -> list[Any]:
    from duet_rpc import EmacsError

    buffer = ctx.emacs.call("generate-new-buffer", "x")
    name = ctx.emacs.call("buffer-name", buffer)
    ctx.emacs.call("kill-buffer", buffer)
    try:
        ctx.emacs.call("buffer-name", buffer)
    except EmacsError as err:
        return [name, err.symbol]
    return [name]


@method
def here(ctx: Context) -> list[Any]:
    buffer = ctx.emacs.buffer()
    return [buffer.name, buffer.mode, buffer.point, buffer.text]


@command(name="py-stream", result="stream")
def py_stream(text: Region, count: int = 5) -> Iterator[str]:  # noqa: ARG001 - it is a source
    for number in range(count):
        yield f"{number} "
        time.sleep(0.03)


@command(name="py-forever", result="stream")
def py_forever() -> Iterator[str]:
    while True:
        yield "x"
        time.sleep(0.01)


@method
def lines(count: int = 3) -> Iterator[int]:
    yield from range(count)


@method
def large(pieces: int, size: int) -> Iterator[str]:
    for _ in range(pieces):
        yield "x" * size


@method
def push(topic: str, value: Any) -> None:
    notify(topic, value)


@method
def double(number: int) -> int:
    return 2 * number
