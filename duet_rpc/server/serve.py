"""How a server begins and how it ends: by leaving, or by becoming the router.

What it does in between is in `loop`.
"""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING

from duet_rpc import __version__
from duet_rpc.failures import describe
from duet_rpc.jsonrpc.framing import CONTENT_LENGTH
from duet_rpc.jsonrpc.limits import FAREWELL, READ_TIMEOUT
from duet_rpc.jsonrpc.reader import MessageReader
from duet_rpc.server.author import Author
from duet_rpc.server.children import Children
from duet_rpc.server.dispatch import call
from duet_rpc.server.guard import Guard
from duet_rpc.server.lifecycle import Lifecycle, State
from duet_rpc.server.loop import Server
from duet_rpc.server.stdio import Stdio
from duet_rpc.server.user_methods import UserMethods

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from duet_rpc.jsonrpc.framing import Framing
    from duet_rpc.log import Log
    from duet_rpc.methods.method import Method
    from duet_rpc.server.loop import Handler
    from duet_rpc.server.user_methods import Handover
    from duet_rpc.server.worker import WorkerRole


def serve(
    descriptors: tuple[int, int],
    log: Log,
    make_handler: Callable[[Server], Handler],
    sources: list[str] | None = None,
    folder: str | None = None,
    methods: Iterable[Method] = (),
    read_timeout: float = READ_TIMEOUT,
    framing: Framing | None = CONTENT_LENGTH,
    batch: bool = False,
    debug: bool = False,
    handover: Handover | None = None,
    worker: WorkerRole | None = None,
) -> None:
    """Serve one client until it or a signal ends it; does not return."""
    lifecycle = Lifecycle(log)
    try:
        stdio = Stdio(descriptors)
        children = Children()

        def clean_up() -> None:
            stdio.release()
            children.end()

        lifecycle.before_exit = clean_up
        reader = MessageReader(framing)
        guard = Guard(log, explains=debug)
        author = Author(log, debug, guard.cancellation.hold)
        server = Server(
            stdio, lifecycle, log, reader, read_timeout, make_handler, batch, author, guard
        )
        log.lifecycle(
            f"duet-rpc {__version__} started: pid {os.getpid()}, level {log.level_name}, "
            f"log to {log.sink}"
        )
        for method in methods:
            server.handler.registry.add(method)
        others = worker or handover  # who knows which files are not for this process
        if handover is not None:
            server.on_look = lambda: hand_over(server, handover, descriptors, children)
        server.user_methods = UserMethods(
            server.handler.registry,
            sources or [],
            folder,
            author.report_load_problem,
            debug,
            (lambda _source: False) if others is None else others.is_elsewhere,
        )
        if worker is not None:
            worker.begin(server)
        server.run()
        leave(server, children)
    except BrokenPipeError:
        lifecycle.lose_output()
    except OSError as error:
        lifecycle.lose_output(f"input or output failed: {error.strerror}")
    except BaseException as error:  # noqa: BLE001 - no traceback reaches a person
        lifecycle.lose_output(f"internal error: {describe(error)}")
    lifecycle.exit()


def leave(server: Server, children: Children) -> None:
    """Run what the user's files want to be done, and see to it that replies arrive."""
    end_methods(server, children)
    if not server.intake.frames.ended:
        # jsonrpc.el 1.0.25 hands a reply on later than the news of our exit; where both
        # come at once its caller is told that the server died.
        server.stdio.is_input_closed(FAREWELL)


def end_methods(server: Server, children: Children) -> None:
    """Let the user's files do what they want to do at the end."""
    if not server.lifecycle.overdue:
        server.guard.cancellation.begin()  # the cancel of the last request does not concern it
    server.run_method(server.user_methods.stop)
    with server.supervisor:
        children.end_pools()
        call(run_exit_handlers)


def run_exit_handlers() -> str:
    """Run the handlers of `atexit`, which os._exit leaves out; in Python 3.9 they may raise."""
    atexit._run_exitfuncs()
    return ""


def hand_over(
    server: Server, handover: Handover, descriptors: tuple[int, int], children: Children
) -> None:
    """Become the router, with all that has no answer, where a file needs a worker."""
    if not handover.is_due or server.outbox.in_batch or server.guard.cancellation.is_nested:
        return  # not in the middle of a batch, or of a question
    from duet_rpc.server.handover import Passed, replace_process

    handover.is_due = False
    while server.intake.frames.partial and server.lifecycle.answering and server.receive():
        server.intake.decode_ahead()
    for fault in server.intake.take_faults():  # to read them once more might end otherwise
        server.serve(fault)
    server.log.info("a file of methods is a worker of its own: becoming the router")
    server.outbox.flush()
    server.lifecycle.limit_work()
    end_methods(server, children)
    children.end()
    server.stdio.release()
    replace_process(
        descriptors,
        Passed(
            server.log.level_name,
            server.user_methods.loaded,
            *server.handler.passed_on,
            input=server.intake.unanswered(),
        ),
        lambda: not must_leave(server),
    )
    server.lifecycle.exit()


def must_leave(server: Server) -> bool:
    """Return whether a signal has come that ends the daemon."""
    name = server.stdio.wake_up.read()
    if name is not None:
        server.lifecycle.stop(f"{name} received")
    return server.lifecycle.state is State.STOPPING
