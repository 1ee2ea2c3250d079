"""Reduced costs of class pairs: which pairs would improve on the ones in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from scheduler.domain.arrays import FloatArray, IntArray


@njit(cache=True)
def price_pairs(  # noqa: PLR0917  compiled functions take positions
    pair_classes: IntArray,
    pair_index: IntArray,
    throughput: FloatArray,
    rent: FloatArray,
    worth: FloatArray,
    time: FloatArray,
    bonus: FloatArray,
) -> tuple[FloatArray, IntArray]:
    """Find, for every class and either place in a pair, the pair of the largest profit.

    Args:
        pair_classes: (P, 2) members.
        pair_index: (P,) rows of the table.
        throughput: (R, 2) of the table's pairs.
        rent: (R,) price of the workers that each of the table's pairs holds.
        worth: (M,) value of one step/s of one job of a class.
        time: (M,) price of one job's time.
        bonus: (P,) what a pair is worth by itself, or empty.

    Returns:
        (M, 2) the largest profit and (M, 2) the pair, -1 where a class has none.
    """
    size = len(worth)
    best = np.full((size, 2), -np.inf)
    which = np.full((size, 2), -1)
    has_bonus = len(bonus) > 0
    for i in range(len(pair_index)):
        a = pair_classes[i, 0]
        b = pair_classes[i, 1]
        row = pair_index[i]
        profit = worth[a] * throughput[row, 0] + worth[b] * throughput[row, 1]
        profit -= rent[row] + time[a] + time[b]
        if has_bonus:
            profit += bonus[i]
        if profit > best[a, 0]:
            best[a, 0] = profit
            which[a, 0] = i
        if profit > best[b, 1]:
            best[b, 1] = profit
            which[b, 1] = i
    return best, which
