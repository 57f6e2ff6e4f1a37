"""Which worker a call needs, so that `call` starts that one and neither a router nor others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.config.files import Config
from duet_rpc.workers.order import MAIN
from duet_rpc.workers.plan import Plan

if TYPE_CHECKING:
    from duet_rpc.command_line import Options
    from duet_rpc.config.processes import WorkerSettings
    from duet_rpc.workers.order import Order

LISTS = {"listMethods", "describeMethods", "rpc.discover", "reloadMethods"}
"""What only the router can answer for all workers."""

BUILT_IN = {"initialize", "version", "setLogLevel", "shutdown"}
"""What every worker answers."""


def config_of(order: Order) -> Config:
    """Return a configuration with nothing but the methods of one worker."""
    config = Config()
    config.methods = order.methods
    return config


def find_worker(method: str, options: Options, config: Config) -> WorkerSettings | None:
    """Return the worker to start for a method; None where `rpc` itself is to find it."""
    plan = Plan([], [*options.methods, *config.methods], config.methods_folder, config.workers)
    workers = {name: settings for name, (settings, _) in plan.find().items() if name != MAIN}
    if method in LISTS or not (workers or config.backends):
        return None
    from duet_rpc.workers.declared import declared_in  # most people have no workers

    for settings in workers.values():
        if any(method in declared_in(each).names for each in settings.methods):
            return settings
    files = plan.plain_files()
    is_mains = method in BUILT_IN or any(method in declared_in(each).names for each in files)
    return plan.main() if is_mains or not workers else None
