"""duet-rpc: write an Emacs command in Python.

The version stands here and nowhere else; packaging, `duet-rpc version` and the
`version` method all read it.
"""

__version__ = "0.1.0"
