"""Memory for a large message, and what becomes of it.

New memory comes in pages of 4 kB, and each costs the system a moment when it is first
touched: half of the time of a large message, which is held as bytes, as text and as a value.
So room for all three is made when the first of it has come, in the heap of the C library, and
the system is asked for the pages all at once: an eighth off the first message of 9 MB, a
third off those that come right behind it.

Pages of 2 MB do more: another quarter off the first. But where memory is scarce or lent the
system may take long to find one, longer than for 512 small ones. So they are asked for one by
one, and the first that is slow to come was the last.

An idle daemon has no use for any of it. It is given back.
"""

from __future__ import annotations

import os
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes

PAGE = os.sysconf("SC_PAGE_SIZE")
LARGE_PAGE = 2 * 1024 * 1024
SLOW = 0.001
"""Seconds for a large page that are too many; two tenths of that are usual."""

# Numbers of <malloc.h> and <sys/mman.h>.
TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3
POPULATE_WRITE = 23
LARGE_PAGES = 14
SMALL_PAGES = 15

# Blocks of this size and more are taken from the system and not from the heap. More than
# 32 MB is refused.
AT_EASE = 128 * 1024
AT_WORK = 32 * 1024 * 1024

_libc: ctypes.CDLL | None = None  # where room was made
_large_pages = True  # as far as is known, they come quickly


def make_room(size: int) -> None:
    """Get so many bytes ready for a message, where the C library can."""
    global _libc
    if _libc is not None:
        return
    _libc = _load_libc()
    if _libc is None:
        return
    _libc.mallopt(MMAP_THRESHOLD, AT_WORK)
    _libc.mallopt(TRIM_THRESHOLD, 2 * AT_WORK)
    size = min(size, AT_WORK - PAGE)
    block = _libc.malloc(size)
    if block:
        _get_pages(_libc, block, block + size)
        _libc.free(block)


def _get_pages(libc: ctypes.CDLL, start: int, end: int) -> None:
    global _large_pages
    at = _round_up(start, LARGE_PAGE)
    while _large_pages and at + LARGE_PAGE <= end:
        libc.madvise(at, LARGE_PAGE, LARGE_PAGES)
        before = monotonic()
        libc.madvise(at, LARGE_PAGE, POPULATE_WRITE)
        _large_pages = monotonic() - before < SLOW
        at += LARGE_PAGE
    # The rest; and what is touched later is small again, or it would stay large for ever.
    start = _round_up(start, PAGE)
    size = (end - start) // PAGE * PAGE
    libc.madvise(start, size, SMALL_PAGES)
    libc.madvise(start, size, POPULATE_WRITE)


def _round_up(address: int, unit: int) -> int:
    return -(-address // unit) * unit


def give_back() -> None:
    """Give what is free back to the system, where the C library can."""
    global _libc
    libc, _libc = _libc or _load_libc(), None
    if libc is not None:
        libc.mallopt(MMAP_THRESHOLD, AT_EASE)
        libc.mallopt(TRIM_THRESHOLD, AT_EASE)
        libc.malloc_trim(0)


def _load_libc() -> ctypes.CDLL | None:
    try:
        import ctypes

        libc = ctypes.CDLL(None)
        libc.malloc_trim, libc.mallopt  # noqa: B018 - not every C library has them
        libc.malloc.restype = ctypes.c_void_p
        libc.malloc.argtypes = [ctypes.c_size_t]
        libc.free.argtypes = [ctypes.c_void_p]
        libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    except (ImportError, OSError, AttributeError):
        return None
    return libc
