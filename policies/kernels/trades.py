"""Compiled trades of time between units on different worker types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import njit

if TYPE_CHECKING:
    from scheduler.domain.arrays import FloatArray, IntArray


@njit(cache=True)
def trade(split: FloatArray, gang: FloatArray, worth: FloatArray, tries: IntArray) -> None:
    """Let pairs of units swap time on two worker types whenever the swap pays.

    Each try names two units u, v and two types k, h. u moves from k to h and v from h to k, by as
    many worker-seconds as both have there. No unit's time and no type's load changes, since only
    units move that hold the same number of workers on both types.

    Args:
        split: (U, K) time of each unit on each type; changed in place.
        gang: (U, K) workers that a unit holds of a type; 0 if it cannot run.
        worth: (U, K) normalised throughput of a unit on a type; 0 if it cannot run.
        tries: (Q, 4) u, v, k, h.
    """
    for t in range(tries.shape[0]):
        u, v, k, h = tries[t, 0], tries[t, 1], tries[t, 2], tries[t, 3]
        if u == v or k == h or worth[u, h] <= 0.0 or worth[v, k] <= 0.0:
            continue
        held, other = gang[u, k], gang[v, h]
        if held != gang[u, h] or other != gang[v, k]:
            continue
        gain = (worth[u, h] - worth[u, k]) / held + (worth[v, k] - worth[v, h]) / other
        moved = min(split[u, k] * held, split[v, h] * other)
        if gain <= 1e-9 or moved <= 1e-9:
            continue
        split[u, k] = max(split[u, k] - moved / held, 0.0)  # (s * h) / h may be more than s
        split[u, h] += moved / held
        split[v, h] = max(split[v, h] - moved / other, 0.0)
        split[v, k] += moved / other
