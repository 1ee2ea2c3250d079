"""Number equal rows in the order in which they first occur."""

from __future__ import annotations

import numpy as np
from numba import njit

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


@njit(cache=True)
def group_rows(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Group rows that are equal bit by bit.

    Args:
        columns: (C, N) uint64, a column of N values each.

    Returns:
        (N,) the number of each row's group, (M,) the first row of each group, and (M,) how many
        rows each has, in floats.
    """
    C, N = columns.shape
    size = 8
    while size < 2 * N:
        size *= 2
    mask = np.uint64(size - 1)
    slots = np.full(size, -1, dtype=np.int64)
    group_of = np.empty(N, dtype=np.int64)
    first = np.empty(N, dtype=np.int64)
    count = np.zeros(N)
    groups = 0
    for n in range(N):
        mixed = np.uint64(0)
        for c in range(C):
            mixed = (mixed ^ columns[c, n]) * _FACTOR
            mixed ^= mixed >> _HALF
        at = np.int64(mixed & mask)
        while True:
            g = slots[at]
            if g < 0:
                slots[at] = groups
                first[groups] = n
                group_of[n] = g = groups
                groups += 1
                break
            other = first[g]
            equal = True
            for c in range(C):
                if columns[c, n] != columns[c, other]:
                    equal = False
                    break
            if equal:
                group_of[n] = g
                break
            at = (at + 1) & (size - 1)
        count[g] += 1.0
    return group_of, first[:groups].copy(), count[:groups].copy()
