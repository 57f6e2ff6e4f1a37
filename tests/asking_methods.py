"""Methods that ask, tell, stream and push; loaded by the tests of asking."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

from duet_rpc import (
    Cancelled,
    Context,
    Declined,
    EmacsError,
    Keyword,
    RpcError,
    Symbol,
    Unsupported,
    method,
    notify,
    on_stop,
)

kept: list[Context] = []
handles: list[Any] = []


@method
def name(ctx: Context) -> str:
    """Ask for a text."""
    return f"hello {ctx.ask('Name?', default='nobody')}"


@method
def secret(ctx: Context) -> int:
    """Ask for a password."""
    return len(ctx.ask("Password?", secret=True))


@method
def pick(ctx: Context, multiple: bool = False, default: Optional[str] = None) -> Any:  # noqa: UP045 - on Python 3.9
    """Ask for one of three, or several."""
    choices = {"red": "like fire", "green": "like grass", "blue": None}
    if multiple:
        return ctx.choose("Which colour?", choices, multiple=True)
    return ctx.choose("Which colour?", choices, default=default)


@method
def pick_path(ctx: Context) -> str:
    """Choose among values that are no texts."""
    chosen = ctx.choose("Which file?", [Path("/a/b.txt"), Path("/c.py")])
    return chosen.suffix


@method
def sure(ctx: Context) -> bool:
    """Ask for yes or no."""
    return ctx.confirm("Really?")


@method
def tell(ctx: Context, text: str) -> None:
    """Say something."""
    ctx.say(text)


@method
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@method
def survive(ctx: Context) -> str:
    """Say what asking has led to."""
    try:
        return ctx.ask("Name?")
    except Declined as error:
        return f"declined: {error.message}"
    except Unsupported as error:
        return f"unsupported: {error.message}"
    except RpcError as error:
        return f"{error.code}: {error.message}"


@method
def lisp(ctx: Context, function: str, arguments: list[Any]) -> Any:
    """Call a function of Lisp."""
    return ctx.emacs.call(function, *arguments)


@method
def lisp_values(ctx: Context) -> list[str]:
    """Send one of each, and show what comes back."""
    arguments = (
        None,
        True,
        False,
        1,
        2.5,
        "x",
        [1],
        (1, "a"),
        {"k": 1},
        Symbol("car"),
        Keyword("k"),
    )
    result = ctx.emacs.call("f", *arguments, {"lisp": 1})
    return [repr(each) for each in result]


@method
def lisp_error(ctx: Context) -> dict[str, Any]:
    """Catch an error of Lisp."""
    try:
        ctx.emacs.eval("(boo)")
    except EmacsError as error:
        return {"text": str(error), "symbol": error.symbol, "data": error.data}
    return {}


@method
def lisp_buffer(ctx: Context, text: bool) -> list[Any]:
    """Look at the buffer."""
    buffer = ctx.emacs.buffer()
    found = [buffer.name, buffer.file, buffer.mode, buffer.point, buffer.mark]
    return [*found, buffer.text, buffer.text] if text else found


@method
def keep_handle(ctx: Context) -> str:
    """Keep what Emacs has returned."""
    handles.append(ctx.emacs.call("current-buffer"))
    return repr(handles[-1])


@method
def use_handle(ctx: Context) -> Any:
    """Use it in another call, for the last time."""
    return ctx.emacs.call("buffer-name", handles.pop())


@method
def ask_in_a_loop(ctx: Context) -> int:
    """Never take no for an answer."""
    for number in range(1_000_000):
        try:
            ctx.ask(f"Number {number}?")
        except Declined:
            continue
        return number
    return -1


@method
def ask_in_threads(ctx: Context, count: int) -> list[str]:
    """Ask from several threads at once."""
    answers: list[str] = []

    def ask(number: int) -> None:
        answers.append(ctx.ask(f"Thread {number}?"))

    threads = [threading.Thread(target=ask, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(answers)


@method
def leave_a_thread_asking(ctx: Context, file: str) -> str:
    """Return while a thread still asks, which writes down what became of it."""

    def ask() -> None:
        try:
            ctx.ask("From a thread?")
        except Declined as error:
            Path(file).write_text(error.message)

    threading.Thread(target=ask).start()
    return ctx.ask("From the method?")


@method
def ask_in_finally(ctx: Context, file: str) -> str:
    """Ask once more when it is cancelled."""
    try:
        return ctx.ask("First?")
    finally:
        try:
            ctx.ask("Second?")
        except Declined as error:
            Path(file).write_text(error.message)


@method
def ask_uninterrupted(ctx: Context) -> str:
    """Ask where a cancel is not raised."""
    with ctx.uninterrupted():
        try:
            ctx.ask("Name?")
        except Declined as error:
            ctx.log.info(f"in the block: {error.message}")
    return "never"


@method
def ask_with_alarm(ctx: Context) -> str:
    """Give up by an alarm, the usual way."""

    def ring(_number: int, _frame: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        return ctx.ask("Quick?")
    except TimeoutError:
        return "too late"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@method
def keep_context(ctx: Context) -> None:
    """Keep what belongs to this call."""
    kept.append(ctx)


@method
def use_context() -> str:
    """Ask through a call that is over."""
    try:
        return kept[0].ask("Still there?")
    except Declined as error:
        return error.message


@method
def fork_and_notify() -> int:
    """Notify from a fork, whose business the client is not."""
    pid = os.fork()
    if pid == 0:
        notify("child", 1)
        os._exit(7)
    return os.WEXITSTATUS(os.waitpid(pid, 0)[1])


@on_stop
def ask_at_the_end() -> None:
    """Ask and notify when it is too late."""
    if kept:
        notify("leaving", {"at": "the end"})
        try:
            kept[0].ask("Any last words?")
        except Declined as error:
            notify("declined", error.message)


@method
def push(topic: str, count: int) -> None:
    """Notify from a thread, during and after the call."""

    def run() -> None:
        for number in range(count):
            notify(topic, {"number": number})

    threading.Thread(target=run).start()


@method
def count(n: int, pause: float = 0.0) -> Iterator[str]:
    """Count, piece by piece."""
    for number in range(n):
        yield f"{number} "
        if pause:
            time.sleep(pause)


@method
def rows(n: int) -> Iterator[dict[str, int]]:
    """Return rows, one by one."""
    for number in range(n):
        yield {"row": number}


@method
def endless(file: str) -> Iterator[str]:
    """Stream until it is closed."""
    try:
        while True:
            yield "x"
            time.sleep(0.001)
    finally:
        Path(file).write_text("closed")


@method
def two_then_wait(file: str) -> Iterator[str]:
    """Yield twice at once, then wait for a file."""
    yield "a"
    yield "b"
    while not Path(file).exists():
        time.sleep(0.01)
    yield "c"


@method
def wrong_piece() -> Iterator[int]:
    """Yield what the hint does not say."""
    yield 1
    yield "two"  # type: ignore[misc]


@method
def report(ctx: Context, n: int) -> int:
    """Report progress as fast as it goes."""
    for number in range(n):
        ctx.progress(number + 1, n)
    return n


@method
def stream_and_ask(ctx: Context) -> Iterator[str]:
    """Ask in the middle of a stream."""
    yield "before, "
    yield ctx.ask("Name?")
    yield ", after"


@method
def swallow(ctx: Context) -> str:
    """Catch everything."""
    try:
        return ctx.ask("Name?")
    except BaseException as error:  # noqa: BLE001
        return f"caught {type(error).__name__}"


@method
def two_questions(ctx: Context, file: str) -> str:
    """Ask twice, and write down each run."""
    with Path(file).open("a") as runs:
        runs.write("run\n")
    first = ctx.ask("First?", default="1")
    if not ctx.confirm(f"Is it {first}?"):
        return "no"
    return first


@method
def busy(file: str) -> str:
    """Keep the main thread busy until a file exists."""
    while not Path(file).exists():
        pass
    return "done"


@method
def cancelled_in_a_question(ctx: Context, file: str) -> str:
    """Write down what a question raises."""
    try:
        return ctx.ask("Name?")
    except Cancelled:
        Path(file).write_text("Cancelled")
        raise


@method
def stop_with_news() -> None:
    """Notify during the call."""
    notify("files", {"changed": ["a.txt"]})
