"""Compiled trades of time between units on different worker types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import njit

if TYPE_CHECKING:
    from scheduler.domain.arrays import FloatArray, IntArray


@njit(cache=True)
def trade(split: FloatArray, gang: FloatArray, worth: FloatArray, tries: IntArray) -> None:
    """Let pairs of units swap time on two worker types whenever the swap pays.

    Each try names two units u, v and two types k, h: u moves from k to l, v the other way, by as
    many worker-seconds as both have there. No unit's time and no type's load changes.

    Args:
        split: (U, K) time of each unit on each type; changed in place.
        gang: (U,) workers that a unit holds.
        worth: (U, K) normalised throughput of a unit on a type; 0 where it cannot run.
        tries: (Q, 4) u, v, k, h.
    """
    for t in range(tries.shape[0]):
        u, v, k, h = tries[t, 0], tries[t, 1], tries[t, 2], tries[t, 3]
        if u == v or k == h or worth[u, h] <= 0.0 or worth[v, k] <= 0.0:
            continue
        gain = (worth[u, h] - worth[u, k]) / gang[u] + (worth[v, k] - worth[v, h]) / gang[v]
        moved = min(split[u, k] * gang[u], split[v, h] * gang[v])
        if gain <= 1e-9 or moved <= 1e-9:
            continue
        split[u, k] -= moved / gang[u]
        split[u, h] += moved / gang[u]
        split[v, h] -= moved / gang[v]
        split[v, k] += moved / gang[v]
