"""What a worker is told when it is started, and what it says until it is ready.

A worker is a daemon in a process of its own, for some of the user's methods. Whoever starts it
(the router, or `duet-rpc call`) puts its `Order` into a variable of the environment. The process
makes the environment that its methods need, if they need one, and replaces itself by the Python
of that environment: its pid and its pipes stay the same, nobody else has to wait for an
installer, and whoever ends the worker ends the installer, too.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from duet_rpc.jsonrpc.messages import Notification, encode
from duet_rpc.program import WORKER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from duet_rpc.environments.requirements import Requirements
    from duet_rpc.jsonrpc.framing import Framing

# Notifications to whoever has started the worker.
PREPARING = "worker/preparing"  # {"message"}: what it does before it is ready
FAILED = "worker/failed"  # {"message"}: why it exits without ever being ready
READY = "worker/ready"
CANCELLED = "worker/cancelled"  # the method that runs was interrupted, and is cleaning up
FINISHED = "worker/finished"  # a cancelled request has ended, and gets no reply (MCP)

METHODS = "worker/methods"
"""The request for what a worker's methods are; it looks at its files first."""

LOADED = "worker/loadedMethods"
"""The same, for what they have loaded already."""

MAIN = "main"
"""The worker of all methods that have no other."""


class Order(NamedTuple):
    """What a worker is to be."""

    name: str
    methods: list[str]  # files and modules
    folder: str | None = None  # a folder of files
    others: Sequence[str] = ()  # files that other workers have
    python: str | None = None
    dependencies: list[str] | None = None
    origin: str = ""  # who says so, for messages: a file and a line of the configuration
    memory: int | None = None  # bytes
    is_prepared: bool = False  # this is the Python that it needs

    def as_environment(self) -> dict[str, str]:
        """Return the variable for the process."""
        return {WORKER: json.dumps(self._asdict())}


def read_order(environment: Mapping[str, str]) -> Order:
    """Return what the variable for a process says."""
    return Order(**json.loads(environment[WORKER]))


def take_order() -> Order:
    """Return what this process is to be, once: it is not for the processes that methods start."""
    order = read_order(os.environ)
    del os.environ[WORKER]
    return order


class Unprepared(Exception):
    """A worker can't have the Python that it needs; the text is for a person."""


def requirements_of(order: Order) -> tuple[Requirements, str]:
    """Return what a worker asks for, and who says so; raises `BlockError`."""
    from duet_rpc.environments.requirements import Requirements
    from duet_rpc.environments.script import read
    from duet_rpc.methods.changes import read as read_file

    wanted, user = Requirements(None, tuple(order.dependencies or ())), order.origin
    if order.dependencies is None and order.python is None and len(order.methods) == 1:
        user = order.methods[0]
        text = (read_file(user) or b"").decode("utf-8", "replace")
        wanted = read(text, os.path.basename(user)) or wanted
    return wanted, user


def why_not_prepared(order: Order) -> str | None:
    """Return why a worker's environment could not be made a moment ago; None if it may be now."""
    from duet_rpc.environments.ensure import why_not_made
    from duet_rpc.environments.script import BlockError

    try:
        failure = why_not_made(requirements_of(order)[0], order.python)
    except BlockError:
        return None
    return None if failure is None else f"{order.name}: {failure}"


def find_python(order: Order, report: Callable[[str], None]) -> str:
    """Return the Python of a worker, making its environment first; raises `Unprepared`."""
    from duet_rpc.environments.ensure import ensure
    from duet_rpc.environments.requirements import EnvironmentFailure
    from duet_rpc.environments.script import BlockError

    try:
        wanted, user = requirements_of(order)
        return ensure(wanted, order.python, report, user)
    except BlockError as error:
        raise Unprepared(str(error)) from None
    except EnvironmentFailure as error:
        raise Unprepared(f"{order.name}: {error}") from None


def become(order: Order, python: str, environ: Mapping[str, str]) -> None:
    """Replace this process by one of another Python, or return where this is the one."""
    from duet_rpc.environments.requirements import EnvironmentFailure
    from duet_rpc.environments.start import command

    if python == sys.executable:
        return
    try:
        words = command(python, sys.argv[1:])
        ready = order._replace(is_prepared=True)
        os.execve(words[0], words, {**environ, **ready.as_environment()})  # noqa: S606
    except EnvironmentFailure as error:
        raise Unprepared(f"{order.name}: {error}") from None
    except OSError as error:
        raise Unprepared(f"{order.name}: {python} can't be run: {error.strerror}") from None


def prepare(order: Order, framing: Framing, descriptors: tuple[int, int]) -> None:
    """Become the Python that a worker's methods need, or return where this is the one.

    Where it can't be had, the process says so to whoever has started it, and exits.
    """

    def send(method: str, text: str) -> None:
        frame = framing.encode(encode(Notification(method, {"message": text})))
        while frame:
            frame = frame[os.write(descriptors[1], frame) :]

    try:
        python = find_python(order, lambda text: send(PREPARING, text))
        if python != sys.executable:
            os.dup2(descriptors[0], 0)
            os.dup2(descriptors[1], 1)
            become(order, python, os.environ)
    except Unprepared as error:
        send(FAILED, str(error))
        os._exit(0)


def limit_memory(size: int) -> None:
    """Let an allocation beyond a limit be a MemoryError."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (size, size))
