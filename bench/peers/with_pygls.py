"""pygls 2, without the part that knows the Language Server Protocol."""

from typing import Any

from pygls.protocol import JsonRPCProtocol, default_converter
from pygls.server import JsonRPCServer

server = JsonRPCServer(JsonRPCProtocol, default_converter)


@server.feature("version")
def version(*_: object) -> object:
    """Answer."""
    return {"version": "0.1.0"}


@server.feature("add")
def add(params: Any) -> object:
    """Add two numbers."""
    return params.a + params.b


server.start_io()
