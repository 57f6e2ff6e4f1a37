"""The checks of the doctor that are about workers: their files, Pythons and environments.

Nothing is made or started here, so that the doctor reports what is there and does not change it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from duet_rpc.config import files as config
from duet_rpc.environments.ensure import find_named, folder_of, without_packages
from duet_rpc.environments.requirements import EnvironmentFailure
from duet_rpc.environments.script import BlockError
from duet_rpc.environments.store import contents, python_of, recent_failure
from duet_rpc.terminal.doctor_checks import FAIL, OK, Check
from duet_rpc.workers.order import MAIN, read_order, requirements_of
from duet_rpc.workers.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from duet_rpc.environments.requirements import Requirements
    from duet_rpc.workers.order import Order


def check_workers(sources: Sequence[str]) -> Iterator[Check]:
    """Check every worker: that what it asks for can be read, and whether it is there."""
    try:
        settings = config.load_config()
    except config.ConfigError:
        return  # reported by another check
    plan = Plan([], [*sources, *settings.methods], settings.methods_folder, settings.workers)
    for name, (worker, _) in plan.find().items():
        if name != MAIN:
            yield check_worker(read_order(worker.env))


def check_worker(order: Order) -> Check:
    """Report where a worker's methods are and which Python runs them, or what is wrong."""
    files = ", ".join(order.methods)
    missing = [each for each in order.methods if os.path.isabs(each) and not os.path.exists(each)]
    if missing:
        fix = f"correct `methods` in {order.origin}, or write the file"
        return Check("worker", FAIL, f"{order.name}: {missing[0]} does not exist", fix)
    try:
        wanted, _ = requirements_of(order)
        return Check("worker", OK, f"{order.name}: {files}; {describe(wanted, order.python)}")
    except BlockError as error:
        return Check("worker", FAIL, str(error), f"correct that line of {files}")
    except EnvironmentFailure as error:
        fix = f"{error.fix[:1].lower()}{error.fix[1:]} ({order.origin})"
        return Check("worker", FAIL, f"{order.name}: {error.what}", fix)


def describe(wanted: Requirements, python: str | None) -> str:
    """Return which Python a worker has, and the state of its environment."""
    named = python and find_named(python)
    packages = ", ".join(wanted.dependencies)
    enough = None if packages else without_packages(wanted, named)
    if enough is not None:
        which = "the Python of duet-rpc" if enough == sys.executable else enough
        return f"{which}, no packages of its own"
    folder = folder_of(wanted, named)
    held = contents(folder)
    if held is None:
        what = packages or f"Python {wanted.requires_python}"
        if recent_failure(folder) is not None:
            return f"its environment with {what} could not be made, as `methods` tells"
        return f"its environment with {what} is made at the first call"
    return f"Python {held['python']} with {packages or 'no packages'}, {python_of(folder)}"
