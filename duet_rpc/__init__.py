"""duet-rpc: write an Emacs command in Python.

    from duet_rpc import method

    @method
    def word_count(text: str) -> int:
        '''Count the words of a text.'''
        return len(text.split())

The version is defined here and nowhere else; packaging, `duet-rpc version` and the
`version` method all read it.
"""

from __future__ import annotations

__version__ = "0.1.0"

from duet_rpc.jsonrpc.errors import RpcError
from duet_rpc.methods.context import Cancelled, Context
from duet_rpc.methods.declare import method

__all__ = ["Cancelled", "Context", "RpcError", "__version__", "method"]
