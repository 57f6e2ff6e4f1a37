"""`duet-rpc config`: the settings in force, and where each comes from."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from duet_rpc.config.files import load_config
from duet_rpc.log import MESSAGE_MAX, escape

if TYPE_CHECKING:
    from duet_rpc.command_line import Arguments


def show_config(arguments: Arguments) -> int:
    """Print each setting with its value and its origin; return the exit code."""
    options = arguments.options
    config = load_config()
    file = os.environ.get("DUET_RPC_LOG")
    level = options.log_level or config.log_level or "info for servers, warn for other commands"
    no_color = (
        "--no-color" if options.no_color else "NO_COLOR" if os.environ.get("NO_COLOR") else ""
    )
    rows = [
        ("debug", str(config.debug).lower(), ""),
        ("log.level", level, "--log-level" if options.log_level else ""),
        ("log.color", "false" if no_color else str(config.color).lower(), no_color),
        ("log.file", file or "stderr", "DUET_RPC_LOG" if file else ""),
        ("methods.load", ", ".join(config.methods) or "nothing", ""),
        ("methods.python", config.python or sys.executable, ""),
        ("methods folder", config.methods_folder or "none", ""),
    ]
    rows += [(f"workers.{name}", str(each), "") for name, each in config.workers.items()]
    rows += [(f"backends.{name}", str(each), "") for name, each in config.backends.items()]
    for key, value, origin in rows:
        origin = origin or config.origins.get(key, "default")
        print(escape(f"{key:<15} {value}  ({origin})", MESSAGE_MAX))
    for warning in config.warnings:
        print(f"! {warning}")
    return 0
