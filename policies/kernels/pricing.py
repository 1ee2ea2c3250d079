"""Reduced costs of class pairs: which pairs would improve on the ones in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from scheduler.domain.arrays import FloatArray, IntArray

#: The least weight that a pair's draw gives to its profit.
SPREAD = 0.5


@njit(cache=True)
def price_pairs(  # noqa: PLR0917  compiled functions take positions
    pair_classes: IntArray,
    pair_index: IntArray,
    throughput: FloatArray,
    rent: FloatArray,
    worth: FloatArray,
    time: FloatArray,
    bonus: FloatArray,
    turn: int,
) -> tuple[FloatArray, IntArray]:
    """Find, for every class and either place in a pair, the pair of the largest profit.

    Args:
        pair_classes: (P, 2) members.
        pair_index: (P,) rows of the table.
        throughput: (R, 2) of the table's pairs.
        rent: (R,) price of the workers that each of the table's pairs holds.
        worth: (M,) value of one step/s of one job of a class.
        time: (M,) price of one job's time.
        bonus: (P,) worth of a pair itself, or empty.
        turn: the round. Profitable pairs are drawn with a fixed pseudo-random preference that
            changes with the round. Without it, many equal jobs would all choose the same best
            partner.

    Returns:
        (M, 2) the largest profit, and (M, 2) a profitable pair, -1 without one.
    """
    size = len(worth)
    best = np.full((size, 2), -np.inf)
    which = np.full((size, 2), -1)
    score = np.zeros((size, 2))
    has_bonus = len(bonus) > 0
    for i in range(len(pair_index)):
        a = pair_classes[i, 0]
        b = pair_classes[i, 1]
        row = pair_index[i]
        profit = worth[a] * throughput[row, 0] + worth[b] * throughput[row, 1]
        profit -= rent[row] + time[a] + time[b]
        if has_bonus:
            profit += bonus[i]
        best[a, 0] = max(best[a, 0], profit)
        best[b, 1] = max(best[b, 1], profit)
        if profit > 0.0:
            draw = ((i + 1) * 2654435761 + turn * 40503) & 0xFFFFFF
            draw = (draw * 1103515245 + 12345) & 0xFFFFFF
            liking = profit * (SPREAD + (1.0 - SPREAD) * draw / 0xFFFFFF)
            if liking > score[a, 0]:
                score[a, 0] = liking
                which[a, 0] = i
            if liking > score[b, 1]:
                score[b, 1] = liking
                which[b, 1] = i
    return best, which
