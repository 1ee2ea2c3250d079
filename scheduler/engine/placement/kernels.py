"""Compiled loops of placement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, IntArray


@njit(cache=True)
def choose_workers(
    demands: IntArray, available: BoolArray, type_of: IntArray, node_start: IntArray
) -> IntArray:
    """Choose concrete workers: gangs on the fewest nodes, single workers on the fullest nodes.

    Larger requests choose first. A request for which there are not enough workers gets none; its
    workers are left over.

    Args:
        demands: (R, K) workers by type that each request asks for.
        available: (W,) workers that may be given; updated in place.
        type_of: (W,) type of each worker.
        node_start: (V + 1,) first worker of each node; a node's workers are consecutive.

    Returns:
        (sum of demands,) worker indices, request after request, each in ascending order; -1 for
        all workers of a request for which there were not enough.
    """
    free = np.zeros((len(node_start) - 1, demands.shape[1]), dtype=np.int64)
    for v in range(len(free)):
        for w in range(node_start[v], node_start[v + 1]):
            if available[w] and type_of[w] < free.shape[1]:
                free[v, type_of[w]] += 1
    total = demands.sum(axis=1)
    end = np.cumsum(total)
    result = np.full(total.sum(), -1, dtype=np.int64)
    for r in np.argsort(-total, kind="mergesort"):
        at = end[r] - total[r]
        for k in range(demands.shape[1]):
            missing = demands[r, k]
            while missing > 0:
                best = _tightest(free, k, missing)
                if best < 0:
                    at += missing
                    break
                for w in range(node_start[best], node_start[best + 1]):
                    if missing > 0 and available[w] and type_of[w] == k:
                        available[w] = False
                        free[best, k] -= 1
                        result[at] = w
                        at += 1
                        missing -= 1
    for r in range(len(total)):
        given = result[end[r] - total[r] : end[r]]
        given.sort()
        if total[r] and given[0] < 0:
            for w in given:
                if w >= 0:
                    available[w] = True
            given[:] = -1
    return result


@njit(cache=True)
def _tightest(free: IntArray, k: int, missing: int) -> int:
    """Return the node on which to place ``missing`` workers of type ``k``, -1 for none.

    It is the node with the fewest free workers that holds all of them, or else the one with most.
    """
    best = -1
    for v in range(len(free)):
        here = free[v, k]
        if here == 0:
            continue
        there = free[best, k]
        if best < 0:
            best = v
        elif here >= missing:
            if there < missing or here < there:
                best = v
        elif there < missing and here > there:
            best = v
    return best
