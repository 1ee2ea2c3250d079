"""Compiled loops over workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, IntArray


@njit(cache=True)
def count_types(marked: BoolArray, type_of: IntArray, types: int) -> IntArray:
    """Return (K,) how many of the marked workers are of each type.

    Args:
        marked: (W,) workers to count.
        type_of: (W,) type of each worker. Quick if workers of a type are consecutive.
        types: K.
    """
    counts = np.zeros(types, dtype=np.int64)
    of, number = -1, 0
    for w in range(len(marked)):
        if type_of[w] != of:
            if number:
                counts[of] += number
            of, number = type_of[w], 0
        number += marked[w]
    if number:
        counts[of] += number
    return counts
