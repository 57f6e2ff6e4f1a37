"""EPC, the RPC of jedi.el and others: Python calls a function of Emacs, and waits."""

import statistics
from time import perf_counter

from epc.server import ThreadingEPCServer

server = ThreadingEPCServer(("localhost", 0))


@server.register_function
def measure(calls: int) -> float:
    """Return the median of many round trips in microseconds."""
    took = []
    for number in range(calls):
        before = perf_counter()
        result = server.clients[0].call_sync("add_one", [number])
        took.append(perf_counter() - before)
        assert result == number + 1
    return statistics.median(took) * 1e6


server.print_port()
server.serve_forever()
