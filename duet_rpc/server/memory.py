"""Memory that a large message has left behind.

Once a large block has been freed glibc keeps later ones of that size for the next time.
An idle daemon has no use for them: 30 MB become 12.
"""

from __future__ import annotations


def give_back() -> None:
    """Give what is free back to the system, where the C library can."""
    try:
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)
    except (ImportError, OSError, AttributeError):
        pass  # another C library, or a Python without ctypes
