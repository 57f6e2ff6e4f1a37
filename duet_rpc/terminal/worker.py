"""Which worker a call needs, so that `call` starts that one and neither a router nor others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duet_rpc.config.files import Config
from duet_rpc.methods.changes import read
from duet_rpc.workers.order import MAIN
from duet_rpc.workers.plan import Plan, declared_names

if TYPE_CHECKING:
    from duet_rpc.command_line import Options
    from duet_rpc.config.processes import WorkerSettings
    from duet_rpc.workers.order import Order

LISTS = {"listMethods", "describeMethods", "rpc.discover", "reloadMethods"}
"""What only the router can answer for all workers."""


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
    for settings in workers.values():
        for source in settings.methods:
            text = read(source) if source.endswith(".py") else None
            if text is None:
                return None  # a module, which tells when it is asked
            if method in declared_names(text.decode("utf-8", "replace")):
                return settings
    return plan.main()
