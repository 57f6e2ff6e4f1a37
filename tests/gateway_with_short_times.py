"""`duet-rpc gateway`, or another router, with the waiting times that its first arguments name.

python tests/gateway_with_short_times.py restart=0.1,0.2 stable=1 -- [mcp] [OPTION]...
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from duet_rpc import cli
from duet_rpc.gateway import serve as process
from duet_rpc.gateway.runtime import Setup, Times

if TYPE_CHECKING:
    from collections.abc import Callable

    from duet_rpc.gateway.router import Router

if __name__ == "__main__":
    if "--" not in sys.argv:  # a worker, which is started by the same command
        cli.main()
    at = sys.argv.index("--")
    times = Times()
    for word in sys.argv[1:at]:
        name, _, value = word.partition("=")
        if name == "restart":
            times.restart = tuple(float(each) for each in value.split(",") if each)
        else:
            setattr(times, name, float(value))
    serve = process.serve

    def serve_with_times(setup: Setup, kind: Callable[[Setup], Router]) -> None:
        serve(setup._replace(times=times), kind)

    process.serve = serve_with_times
    sys.argv[1 : at + 1] = [] if sys.argv[at + 1 : at + 2] == ["mcp"] else ["gateway"]
    cli.main()
