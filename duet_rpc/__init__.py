"""duet-rpc: write an Emacs command in Python.

    from duet_rpc import Region, command

    @command(key="C-c w")
    def word_count(text: Region) -> int:
        '''Count the words of the region.'''
        return len(text.split())

The version is defined here and nowhere else; packaging, `duet-rpc version` and the
`version` method all read it.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 9):  # noqa: UP036 - a clone runs without pip, which would refuse it
    sys.exit("duet-rpc needs Python 3.9 or later; this is Python " + sys.version.split()[0])
if sys.platform == "win32":
    sys.exit("duet-rpc: Windows is not supported. Run it in WSL, with an Emacs in WSL.")

__version__ = "0.1.0"

from duet_rpc.jsonrpc.errors import RpcError
from duet_rpc.methods.asking import Declined, Unsupported
from duet_rpc.methods.commands import (
    Buffer,
    FileName,
    Line,
    Lisp,
    MajorMode,
    Point,
    PrefixArg,
    Region,
    SymbolAtPoint,
)
from duet_rpc.methods.context import Cancelled, Context
from duet_rpc.methods.declare import command, method, prompt, resource
from duet_rpc.methods.emacs import EmacsError, Keyword, Symbol
from duet_rpc.methods.hooks import on_start, on_stop
from duet_rpc.methods.notify import notify
from duet_rpc.methods.results import Edit, Goto, Image, Message, Text

__all__ = [
    "Buffer", "Cancelled", "Context", "Declined", "Edit", "EmacsError", "FileName", "Goto", "Image",
    "Keyword", "Line", "Lisp", "MajorMode", "Message", "Point", "PrefixArg", "Region", "RpcError",
    "Symbol", "SymbolAtPoint", "Text", "Unsupported", "__version__", "command", "method", "notify",
    "on_start", "on_stop", "prompt", "resource",
]  # fmt: skip
