"""JSON-RPC 2.0 as a library: typed messages, framing, id remapping, and no I/O.

The daemon, the gateway and the terminal client are built on it. docs/jsonrpc.md shows how
to use it.
"""

from __future__ import annotations

from duet_rpc.jsonrpc.errors import Error, ErrorCode, Fault
from duet_rpc.jsonrpc.framing import CONTENT_LENGTH, FRAMINGS, LENGTH_PREFIXED, LINES, Framing
from duet_rpc.jsonrpc.ids import IdRemapper
from duet_rpc.jsonrpc.messages import (
    Failure,
    InvalidMessage,
    Message,
    Notification,
    Request,
    Success,
    encode,
    parse,
)
from duet_rpc.jsonrpc.reader import MessageReader
from duet_rpc.jsonrpc.values import ExactNumber, RawJson

__all__ = [
    "CONTENT_LENGTH",
    "FRAMINGS",
    "LENGTH_PREFIXED",
    "LINES",
    "Error",
    "ErrorCode",
    "ExactNumber",
    "Failure",
    "Fault",
    "Framing",
    "IdRemapper",
    "InvalidMessage",
    "Message",
    "MessageReader",
    "Notification",
    "RawJson",
    "Request",
    "Success",
    "encode",
    "parse",
]
