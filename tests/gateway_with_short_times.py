"""`duet-rpc gateway`, or another router, with the waiting times that its first arguments name.

python tests/gateway_with_short_times.py restart=0.1,0.2 stable=1 -- [mcp] [OPTION]...
"""

from __future__ import annotations

import sys
from typing import Any

from duet_rpc import cli
from duet_rpc.gateway import serve as process
from duet_rpc.gateway.runtime import Times

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

    def serve_with_times(*arguments: Any, **options: Any) -> None:
        serve(*arguments, **{**options, "times": times})

    process.serve = serve_with_times
    sys.argv[1 : at + 1] = [] if sys.argv[at + 1 : at + 2] == ["mcp"] else ["gateway"]
    cli.main()
