"""Settings of the C library's allocator that limit the memory of a process with many threads."""

from __future__ import annotations

import ctypes

#: glibc's settings: largest number of arenas, and size from which a block has its own mapping.
_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3
#: By default each thread of commits and queries has its own arena, up to eight per core, and the
#: others cannot use memory that is freed in it.
ARENAS = 2
#: A round's arrays and encoded entries are larger, so they go back to the system when they are
#: freed. Without this setting glibc raises the limit itself, and they leave holes.
MAPPED_BYTES = 1 << 18


def share_arenas() -> bool:
    """Let all threads share a few arenas; return whether this C library can."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    shared = mallopt(_M_ARENA_MAX, ARENAS)
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES) and shared)
