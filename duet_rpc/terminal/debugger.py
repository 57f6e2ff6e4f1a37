"""`duet-rpc call --pdb`: run a method in this process and stop where it fails.

A daemon has no terminal: its stdin is the wire. So the method runs here, with the same checks
of its parameters and the same conversion of its result, and with nothing that watches it.
"""

from __future__ import annotations

import json
import os
import pdb  # noqa: T100 - this is what it is for
import sys
import traceback
from bdb import BdbQuit
from contextlib import nullcontext
from typing import TYPE_CHECKING

from duet_rpc.failures import OURS, USER, frames_of, place_of
from duet_rpc.jsonrpc.errors import METHOD_NOT_FOUND, RpcError
from duet_rpc.methods.context import Context
from duet_rpc.methods.describe import describe
from duet_rpc.methods.loading import Loader
from duet_rpc.methods.method import BadResult
from duet_rpc.methods.registry import Registry
from duet_rpc.terminal.explain import explain
from duet_rpc.terminal.output import print_error, print_stderr, wants_color
from duet_rpc.terminal.questions import AtTerminal
from duet_rpc.terminal.results import write_result

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from duet_rpc.command_line import Options
    from duet_rpc.config.files import Config
    from duet_rpc.config.processes import WorkerSettings
    from duet_rpc.methods.method import Method
    from duet_rpc.terminal.client import Params


class Here:
    """The methods of this process, listed as a daemon would list them."""

    def __init__(self, options: Options, config: Config) -> None:
        self.registry = Registry()
        self.said: list[str] = []
        sources = [*options.methods, *config.methods]
        Loader(self.registry, sources, config.methods_folder, self._report).load()

    def _report(self, problem: str, _traceback: str = "") -> None:
        self.said.append(problem)
        print_error(f"could not be loaded: {problem}")

    def call(self, method: str, *, seconds: float) -> object:  # noqa: ARG002
        """Return what `listMethods` or `describeMethods` would."""
        return [describe(each) for each in self.registry]


def use_worker(worker: WorkerSettings) -> None:
    """Become the Python of a worker, where the method is to be debugged with its packages."""
    from duet_rpc.program import WORKER
    from duet_rpc.workers.order import Order, become, find_python

    order = Order(**json.loads(worker.env[WORKER]))
    become(order, find_python(order, print_stderr), {**os.environ, **worker.env})


def debug(name: str, words: Sequence[str], params: Params, options: Options, config: Config) -> int:
    """Call a method in this process; return the exit code."""
    for warning in config.warnings:
        print_error(warning)
    if not os.environ.get("PYTHONBREAKPOINT"):  # which names a debugger of the user's own
        sys.breakpointhook = stop_here
    here = Here(options, config)
    method = here.registry.get(name)
    try:
        if method is None:
            raise RpcError(METHOD_NOT_FOUND, "Method not found: --pdb runs only methods of yours")
        text = method.call(params, context_for(method))
    except BdbQuit:
        print_error("stopped in the debugger")
        return 1
    except BadResult as error:
        print_error(f"{name}: {error}")
        return 1
    except KeyboardInterrupt:
        print_error("cancelled")
        return 130
    except BaseException as error:  # noqa: BLE001 - whatever the method raises, SystemExit too
        if isinstance(error, RpcError) and place_of(error, USER) is None:
            color = wants_color(sys.stderr, options.no_color)
            print_stderr("\n".join(explain(error, name, words, here, color)))
        else:
            stop_at(error)
        return 1
    write_result(json.loads(text), wants_color(sys.stdout, options.no_color))
    return 0


def context_for(method: Method) -> Context | None:
    """Return what a method gets for its Context: it logs to stderr and is never cancelled."""
    if method.context is None:
        return None

    def add_log_line(level: str, text: str) -> None:
        print_stderr(f"{level.upper():<5} {text}")

    return Context(None, add_log_line, lambda: False, nullcontext, AtTerminal())


def stop_here(*_: object, **__: object) -> None:
    """Start pdb for `breakpoint()`.

    Python 3.14 itself starts one that asks when it is left, and then raises SystemExit, as if the
    method had failed.
    """
    pdb.Pdb().set_trace(sys._getframe().f_back)


def stop_at(error: BaseException) -> None:
    """Print the traceback and start pdb, in the deepest frame of the user's own files."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(OURS):
        trace = trace.tb_next
    error = error.with_traceback(trace)
    print_stderr("".join(traceback.format_exception(type(error), error, trace)), end="")
    if trace is None:
        return
    frames, own = list(frames_of(error)), place_of(error, USER)
    debugger = pdb.Pdb()
    debugger.reset()
    deeper = 0 if own is None else frames[::-1].index(own)
    if deeper:
        # Not cut off: the library's frames are still there, further down.
        debugger.cmdqueue.append(f"up {deeper}")
    debugger.interaction(None, trace)
