"""The C library's allocator, set for a process with many threads that should not grow."""

from __future__ import annotations

import ctypes

#: glibc's names for its settings: arenas at most, and from what size a block is mapped by itself.
_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3
#: Threads of commits and queries would each have an arena of their own, up to eight per core, and
#: what is freed in one of them is of no use to the others.
ARENAS = 2
#: A round's arrays and encoded entries are larger; they are given back when they are freed. Without
#: it glibc raises the limit as it sees fit, and they leave holes.
MAPPED_BYTES = 1 << 18


def share_arenas() -> bool:
    """Let all threads share a few arenas; returns whether this C library can."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    shared = mallopt(_M_ARENA_MAX, ARENAS)
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES) and shared)
