"""pygls 2, without the part that knows the Language Server Protocol."""

from typing import Any

from pygls.protocol import JsonRPCProtocol, default_converter
from pygls.server import JsonRPCServer

server = JsonRPCServer(JsonRPCProtocol, default_converter)


@server.feature("version")
def version(*_: object) -> object:
    """Answer."""
    return {"version": "0.1.0"}


@server.feature("count")
def count(params: Any) -> object:
    """Count a word in a text, up to a limit."""
    return min(params.text.count(params.word), params.limit)


@server.feature("tally")
def tally(params: Any) -> object:
    """Count records."""
    return len(params.records)


server.start_io()
