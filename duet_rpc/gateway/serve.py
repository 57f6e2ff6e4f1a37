"""The process of a gateway, from the start-up line in the log to its exit."""

from __future__ import annotations

import os
from contextlib import suppress
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit
from typing import TYPE_CHECKING

from duet_rpc import __version__
from duet_rpc.failures import describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.gateway.router import Router
    from duet_rpc.gateway.runtime import Setup

SPARE_DESCRIPTORS = 64


def serve(setup: Setup, kind: Callable[[Setup], Router]) -> None:
    """Serve one client until it or a signal ends it; does not return."""
    code, log = 1, setup.log
    gateway = None
    try:
        log.info(
            f"duet-rpc {__version__} router started: pid {os.getpid()}, "
            f"level {log.level_name}, log to {log.sink}"
        )
        raise_limit(len(setup.backends))
        gateway = kind(setup)
        code = gateway.run()
    except OSError as error:
        log.error(f"input or output failed: {error.strerror}")
    except BaseException as error:  # noqa: BLE001 - no traceback reaches a person
        log.error(f"internal error: {describe(error)}")
    log.close()
    if gateway is not None:
        gateway.release()
    # Not sys.exit: to finalize the interpreter takes longer than the rest of the shutdown.
    # What is still running of the backends is ended by the watchdog.
    os._exit(code)


def raise_limit(backends: int) -> None:
    """Raise a low limit of open files, so that each backend can have its three pipes."""
    needed = 3 * backends + SPARE_DESCRIPTORS
    soft, hard = getrlimit(RLIMIT_NOFILE)
    if soft != RLIM_INFINITY and soft < needed:
        most = needed if hard == RLIM_INFINITY else min(needed, hard)
        with suppress(OSError, ValueError):
            setrlimit(RLIMIT_NOFILE, (most, hard))
