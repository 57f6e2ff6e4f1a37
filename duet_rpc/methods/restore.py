"""What methods change for the whole process, and what must not outlive their call.

A method shares the interpreter with the daemon and with everybody else's methods. Most of what
it changes there is its author's business: `sys.path`, a higher recursion limit, a `print` of
its own. A few things would break code that has nothing to do with it, sometimes much later:

- an alarm that was not turned off, because the method failed or was cancelled before that;
- signals that are blocked, those among them with which the next method is cancelled;
- a recursion limit too low for anybody else;
- other functions in the place of Python's built-in ones.

`restore` undoes those. It is called after any of the user's code, so it must cost next to
nothing, and it relies on no built-in function.
"""

from __future__ import annotations

import builtins
from signal import ITIMER_PROF, ITIMER_REAL, SIG_SETMASK, pthread_sigmask, setitimer
from sys import getrecursionlimit, modules, setrecursionlimit

PEOPLE_REPLACE = {"print", "open", "input", "help", "exit", "quit", "breakpoint"}
"""What programs replace for reasons of their own; the daemon does without these."""

LIMIT = getrecursionlimit()
BUILTINS = builtins.__dict__
ORIGINAL = {name: each for name, each in BUILTINS.items() if name not in PEOPLE_REPLACE}
found = [*BUILTINS.values()]  # by the last look; lists of the same objects are compared quickly


def restore() -> None:
    """Put back what others rely on; on the main thread.

    The handler of an alarm may raise in the middle of it: then it is to be called again.
    """
    setitimer(ITIMER_REAL, 0)
    setitimer(ITIMER_PROF, 0)
    pthread_sigmask(SIG_SETMASK, ())
    if getrecursionlimit() < LIMIT:
        setrecursionlimit(LIMIT)
    intact = False
    try:
        intact = [*BUILTINS.values()] == found
    finally:  # what is there instead may fail to be compared
        if not intact:
            BUILTINS.update(ORIGINAL)
            found[:] = BUILTINS.values()


def forget_half_imported() -> None:
    """Let a package be imported again whose import was cut short, all of it.

    Python itself forgets the package, but not the modules in it that were complete, and binds
    none of them to the package that is made the next time: `from .base_events import *` in
    asyncio would fail for as long as the process runs. Modules in C may refuse to be made twice.
    """
    for name in sorted(modules):
        parent = name.rpartition(".")[0]
        if parent and parent not in modules and not _is_extension(modules[name]):
            del modules[name]


def _is_extension(module: object) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and not file.endswith((".py", ".pyc"))
