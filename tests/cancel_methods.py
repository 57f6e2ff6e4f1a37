"""Methods that never end by themselves, each in a place where a cancel finds it hard to reach.

duet-rpc rpc --methods tests/cancel_methods.py

Each makes the file `mark` when it is where it wants to be cancelled.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from duet_rpc import Context, method

Method = Callable[..., Any]
HARD: list[str] = []
"""The methods that one cancel must end."""


def hard(function: Method) -> Method:
    """Make a method of it that one cancel must end."""
    HARD.append(function.__name__)
    return method(function)


def spin() -> None:
    """Keep the interpreter busy."""
    while True:
        pass


# In plain code.


@hard
def in_a_loop(mark: str) -> None:
    """Spin."""
    Path(mark).touch()
    spin()


@hard
def in_sleep(mark: str) -> None:
    """Sleep in one call."""
    Path(mark).touch()
    time.sleep(60)


@hard
def in_a_lock(mark: str) -> None:
    """Wait for a lock that nobody releases."""
    lock = threading.Lock()
    lock.acquire()
    Path(mark).touch()
    lock.acquire()


@hard
def in_an_event(mark: str) -> None:
    """Wait for an event that nobody sets."""
    Path(mark).touch()
    threading.Event().wait()


@hard
def in_a_queue(mark: str) -> None:
    """Wait for what nobody puts into a queue."""
    Path(mark).touch()
    queue.Queue[int]().get()


@hard
def in_a_simple_queue(mark: str) -> None:
    """Wait for what nobody puts into a queue written in C."""
    Path(mark).touch()
    queue.SimpleQueue[int]().get()


@hard
def in_join(mark: str) -> None:
    """Wait for the end of a thread."""
    thread = threading.Thread(target=time.sleep, args=[60], daemon=True)
    thread.start()
    Path(mark).touch()
    thread.join()


@hard
def in_a_read(mark: str) -> None:
    """Read from a pipe that nobody writes to."""
    reading, _ = os.pipe()
    Path(mark).touch()
    os.read(reading, 1)


# Where exceptions are caught.


@hard
def where_exceptions_are_swallowed(mark: str) -> None:
    """Go on after every Exception."""
    Path(mark).touch()
    while True:
        try:
            time.sleep(0.001)
            int("x")
        except Exception:  # noqa: BLE001, S110 - that is the point
            pass


@hard
def in_an_except_clause(mark: str) -> None:
    """Spin while another exception is being handled."""
    try:
        int("x")
    except ValueError:
        Path(mark).touch()
        spin()


@hard
def in_a_context_manager(mark: str) -> None:
    """Spin in a generator's `with` that closes properly."""

    @contextmanager
    def manager() -> Iterator[None]:
        try:
            yield
        finally:
            Path(mark + ".closed").touch()

    with manager():
        Path(mark).touch()
        spin()


@hard
def in_a_generator(mark: str) -> None:
    """Let a generator never end."""

    def count() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    Path(mark).touch()
    for _ in count():
        pass


@hard
def in_a_c_function_that_calls_back(mark: str) -> None:
    """Spin in the key of a sort."""

    def key(_: int) -> int:
        Path(mark).touch()
        spin()
        return 0

    sorted(range(3), key=key)


@hard
def near_the_limit_of_recursion(mark: str) -> None:
    """Spin with hardly a call left of those that may be open at once."""
    Path(mark).touch()
    deepest()


def deepest() -> None:
    """Recurse until no call is left, and spin there; one call up where that is interrupted."""
    try:
        deepest()
    except RecursionError:
        while True:
            pass


# Under machinery.


@hard
def in_the_result_of_a_pool(mark: str) -> None:
    """Wait for a thread of a pool."""
    done = threading.Event()
    pool = ThreadPoolExecutor(1)
    try:
        future = pool.submit(done.wait)
        Path(mark).touch()
        future.result()
    finally:
        done.set()
        pool.shutdown()


@hard
def in_asyncio_asleep(mark: str) -> None:
    """Wait in an event loop."""
    Path(mark).touch()
    asyncio.run(asyncio.sleep(60))


@hard
def in_asyncio_at_work(mark: str) -> None:
    """Keep an event loop busy."""

    async def work() -> None:
        Path(mark).touch()
        while True:
            await asyncio.sleep(0)

    asyncio.run(work())


@hard
def in_a_subprocess(mark: str) -> None:
    """Wait for a process, which ends with the method."""
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            Path(mark + ".pid").write_text(str(process.pid))
            Path(mark).touch()
            process.wait()
        finally:
            process.kill()


@hard
def in_an_import(mark: str) -> None:
    """Import a module that does not come to its end."""
    folder = Path(mark).parent
    (folder / "endless.py").write_text(f"open({mark!r}, 'w').close()\nwhile True: pass\n")
    sys.path.insert(0, str(folder))
    try:
        importlib.import_module("endless")
    finally:
        sys.path.remove(str(folder))


@hard
def behind_a_child_that_sleeps(mark: str) -> None:
    """Wait for a fork."""
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        Path(mark).touch()
        os.waitpid(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@dataclass
class Slow:
    """A parameter whose check does not end."""

    mark: str

    def __post_init__(self) -> None:
        """Spin."""
        Path(self.mark).touch()
        spin()


@hard
def in_post_init(mark: Slow) -> None:
    """Never be called."""


# Where the signals are not what they were.


@hard
def without_an_alarm(mark: str) -> None:
    """Spin, with `alarm` switched off."""
    signal.alarm(0)
    Path(mark).touch()
    spin()


@hard
def without_a_timer(mark: str) -> None:
    """Spin, with the timer switched off."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    Path(mark).touch()
    spin()


@hard
def with_sigalrm_ignored(mark: str) -> None:
    """Spin, with SIGALRM ignored."""
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    Path(mark).touch()
    spin()


@hard
def with_signals_blocked(mark: str) -> None:
    """Spin, with every signal blocked but SIGURG."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {signal.SIGURG})
    Path(mark).touch()
    spin()


@hard
def with_a_high_limit_of_recursion(mark: str) -> None:
    """Spin, with the highest limit that Python accepts."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(2**31 - 1)
    try:
        Path(mark).touch()
        spin()
    finally:
        sys.setrecursionlimit(before)


# While it writes.


@hard
def in_its_log(mark: str, ctx: Context) -> None:
    """Log without a pause."""
    Path(mark).touch()
    while True:
        ctx.log.info("a line")


@hard
def in_loguru(mark: str) -> None:
    """Log without a pause, through the library."""
    logger = importlib.import_module("loguru").logger
    Path(mark).touch()
    while True:
        logger.info("a line")


@hard
def in_its_progress(mark: str, ctx: Context) -> None:
    """Report progress without a pause."""
    Path(mark).touch()
    while True:
        ctx.progress(1, 2, "a step")


# What a method does with its cancel.


@method
def cleans_up(mark: str, ctx: Context) -> None:
    """Take half a second to leave, and say so at every step."""
    try:
        Path(mark).touch()
        time.sleep(60)
    finally:
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            ctx.log.debug("cleaning up")
            ctx.progress(1)
        time.sleep(0.1)
        Path(mark + ".clean").touch()


@method
def catches_and_returns(mark: str) -> str:
    """Return something all the same."""
    try:
        Path(mark).touch()
        time.sleep(60)
    except BaseException:  # noqa: BLE001 - that is the point
        return "caught"
    return "slept"


@method
def catches_and_fails(mark: str) -> str:
    """Raise something else."""
    try:
        Path(mark).touch()
        time.sleep(60)
    except BaseException as error:
        raise ValueError("caught") from error
    return "slept"


@method
def catches_and_goes_on(mark: str) -> None:
    """Ignore the first cancel."""
    try:
        Path(mark).touch()
        time.sleep(60)
    except BaseException:  # noqa: BLE001 - that is the point
        Path(mark + ".caught").touch()
        spin()


class Clinging:
    """An object that does not want to leave."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __del__(self) -> None:
        """Spin."""
        Path(self.mark).touch()
        spin()


@method
def in_del(mark: str) -> str:
    """Spin where Python lets no exception out."""
    Clinging(mark)
    return "out of it"


@method
def in_del_and_on(mark: str) -> None:
    """Spin there, and once more outside."""
    Clinging(mark)
    Path(mark + ".out").touch()
    spin()


@method
def with_a_long_switch_interval(mark: str) -> None:
    """Spin, with other threads shut out for a minute at a time."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        Path(mark).touch()
        spin()
    finally:
        sys.setswitchinterval(usual)


@method
def in_system(mark: str) -> None:
    """Wait a second in C code that no signal ends, then spin."""
    Path(mark).touch()
    os.system("sleep 1")  # noqa: S605 - it waits in C
    spin()


# Short and forked ones.


@method
def short(number: int, seconds: float) -> int:
    """Spin for a moment."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
    return number


@method
def until(mark: str, gate: str) -> str:
    """Wait until somebody makes a file."""
    Path(mark).touch()
    while not os.path.exists(gate):
        time.sleep(0.002)
    return "open"


@method
def forks(way: str) -> str:
    """Leave a child behind that returns, exits or sleeps."""
    child = os.fork()
    if child == 0:
        if way == "exits":
            sys.exit(3)
        if way == "sleeps":
            time.sleep(3)
        return "the child's own answer"
    if way != "sleeps":
        os.waitpid(child, 0)
    return "parent"
