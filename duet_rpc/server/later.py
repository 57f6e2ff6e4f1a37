"""What the first reply goes without, and what may be needed at any moment after it.

It is imported when there is nothing to answer, or before the first method runs: a look at the
input comes in the middle of other code, which may be importing the same modules, and then
they would be found half done. And a daemon that has all of this is not harmed by whoever
deletes the files it was loaded from.
"""

from __future__ import annotations

import re  # noqa: F401

import duet_rpc.failures
import duet_rpc.jsonrpc.broken
import duet_rpc.jsonrpc.content_type
import duet_rpc.jsonrpc.large
import duet_rpc.methods.describe
import duet_rpc.server.memory  # noqa: F401
