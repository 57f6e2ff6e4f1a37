"""The core: bytes and values in, bytes and values out.

Nothing below this package reads a clock, a file or a socket, writes a log or knows a
method, so all of it can be tested and fuzzed by calling it.
"""
