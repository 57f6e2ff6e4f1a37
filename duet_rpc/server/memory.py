"""Memory for a large message, and what becomes of it.

New memory comes in pages of 4 kB, and each costs the system a moment when it is first
touched: half of the time of a large message, which is held as bytes, as text and as a value.
So room for all three is made when the first of it has come, in the heap of the C library, and
the system is asked for the pages all at once: an eighth off the first message of 9 MB, a
third off those that come right behind it. (Larger pages would do more, but where memory is
scarce or lent the system may take long to find them.)

An idle daemon has no use for any of it. It is given back.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes

PAGE = 4096

# Numbers of <malloc.h> and <sys/mman.h>.
TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3
POPULATE_WRITE = 23

# Blocks of this size and more are taken from the system and not from the heap. More than
# 32 MB is refused.
AT_EASE = 128 * 1024
AT_WORK = 32 * 1024 * 1024

_libc: ctypes.CDLL | None = None  # where room was made


def make_room(size: int) -> None:
    """Get ready for a message of so many bytes, where the C library can."""
    global _libc
    if _libc is not None:
        return
    _libc = _load_libc()
    if _libc is None:
        return
    _libc.mallopt(MMAP_THRESHOLD, AT_WORK)
    _libc.mallopt(TRIM_THRESHOLD, 2 * AT_WORK)
    room = min(3 * size, AT_WORK - PAGE)
    block = _libc.malloc(room)
    if block:
        start = -(-block // PAGE) * PAGE
        _libc.madvise(start, (block + room - start) // PAGE * PAGE, POPULATE_WRITE)
        _libc.free(block)


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
