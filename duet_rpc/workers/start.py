"""How the process of a worker is started: under the Python of its environment, if that exists.

Then only one Python has to start. Else it starts under ours, makes the environment, and becomes
the other (`order.prepare`): that may take minutes, which nobody but this worker should wait for.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from duet_rpc.environments.ensure import find_existing
from duet_rpc.environments.requirements import EnvironmentFailure
from duet_rpc.environments.script import BlockError
from duet_rpc.environments.start import command
from duet_rpc.environments.store import python_of
from duet_rpc.program import own_command
from duet_rpc.workers.order import read_order, requirements_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Start(NamedTuple):
    """A process that is to be started."""

    command: Sequence[str]
    environ: Mapping[str, str]
    descriptors: tuple[int, ...] = ()  # that it inherits: the lock of its environment

    def close(self) -> None:
        """Close the descriptors, once the process has them."""
        for each in self.descriptors:
            os.close(each)


def find_start(words: Sequence[str], environ: Mapping[str, str]) -> Start:
    """Return how to start a worker, which is this program; `environ` has its order."""
    order = read_order(environ)
    try:
        wanted, user = requirements_of(order)
        existing = None if order.python else find_existing(wanted, environ, user)
    except (BlockError, EnvironmentFailure):
        existing = None  # the worker says what is wrong
    if existing is None:
        return Start(words, environ)
    folder, lock = existing
    try:
        direct = command(python_of(folder), words[len(own_command()) :])
    except EnvironmentFailure:  # likewise
        os.close(lock)
        return Start(words, environ)
    prepared = order._replace(is_prepared=True)
    return Start(direct, {**environ, **prepared.as_environment()}, (lock,))
