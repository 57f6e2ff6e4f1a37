"""What the first message goes without, and what may be needed at any moment after it.

A gateway that has all of this is not harmed by whoever deletes the files it was loaded from.
"""

from __future__ import annotations

import duet_rpc.jsonrpc.broken
import duet_rpc.jsonrpc.content_type
import duet_rpc.jsonrpc.large
import duet_rpc.jsonrpc.length_prefixed
import duet_rpc.jsonrpc.lines  # noqa: F401
