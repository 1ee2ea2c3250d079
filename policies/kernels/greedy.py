"""Compiled: place jobs in a given order, then let the waiting ones share workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray


@njit(cache=True)
def place(  # noqa: PLR0917  compiled functions take positions
    order: IntArray,
    profile: IntArray,
    throughput: FloatArray,
    demand: IntArray,
    capacity: FloatArray,
    remaining: FloatArray,
    restart_s: FloatArray,
    held: IntArray,
    preferred: IntArray,
    blocks: BoolArray,
) -> IntArray:
    """Give each job in turn the configuration with room in which it would finish first.

    Args:
        order: (N,) positions of the jobs, the first to be served first.
        profile: (N,) row of the tables.
        throughput: (U, J) steps/s.
        demand: (U, J, K) workers held.
        capacity: (K,) workers.
        remaining: (N,) steps to go.
        restart_s: (N,) seconds that leaving the held configuration costs.
        held: (N,) configuration that the job runs in now, or -1.
        preferred: (N,) the one configuration that a job accepts in the first pass, or -1 where it
            accepts any; a second pass offers all of them what is left.
        blocks: (N,) whether the jobs behind one that finds no room wait with it.

    Returns:
        (N,) chosen configuration, -1 where the job waits.
    """
    choice = np.full(order.size, -1, np.int64)
    left = capacity.copy()
    for first_pass in (True, False):
        for i in order:
            if choice[i] >= 0 or (preferred[i] < 0 and not first_pass):
                continue
            u = profile[i]
            only = preferred[i] if first_pass else -1
            best, best_finish = -1, np.inf
            for j in range(throughput.shape[1]):
                if throughput[u, j] <= 0 or (only >= 0 and j != only):
                    continue
                finish = remaining[i] / throughput[u, j]
                if held[i] >= 0 and held[i] != j:
                    finish += restart_s[i]
                if finish < best_finish and (demand[u, j] <= left).all():
                    best, best_finish = j, finish
            if best >= 0:
                choice[i] = best
                left -= demand[u, best]
            elif blocks[i]:
                return choice
    return choice


@njit(cache=True)
def share(  # noqa: PLR0917  compiled functions take positions
    order: IntArray,
    profile: IntArray,
    choice: IntArray,
    start: IntArray,
    partner: IntArray,
    configuration: IntArray,
    groups: int,
    width: int,
    blocks: BoolArray,
) -> tuple[IntArray, IntArray]:
    """Let waiting jobs, in order, join running jobs where the sharing pays most.

    Args:
        order: (N,) positions of the jobs, the first to be served first.
        profile: (N,) row of the tables.
        choice: (N,) configuration that each job runs in, -1 where it waits.
        start: (U + 1,) where the offers to each profile begin, best first.
        partner: (E,) profile of the host that an offer needs.
        configuration: (E,) configuration that the host must run in.
        groups: U, the number of profiles.
        width: J, the configurations of a profile.
        blocks: (N,) whether the jobs behind one that finds no host wait with it.

    Returns:
        (N,) the host that each waiting job joins, -1 for none, and (N,) the offer that it uses.
        Among equal hosts the one that was served last is joined, since sharing slows the host down.
    """
    n = order.size
    host = np.full(n, -1, np.int64)
    offer = np.full(n, -1, np.int64)
    top = np.full(groups * width, -1, np.int64)
    below = np.full(n, -1, np.int64)
    for i in order:
        if choice[i] >= 0:
            group = profile[i] * width + choice[i]
            below[i] = top[group]
            top[group] = i
    # Hosts only grow fewer, so that an offer that is used up stays so: one pass over all offers.
    next_offer = start[:-1].copy()
    for i in order:
        if choice[i] >= 0:
            continue
        u = profile[i]
        while next_offer[u] < start[u + 1]:
            e = next_offer[u]
            group = partner[e] * width + configuration[e]
            if top[group] >= 0:
                host[i] = top[group]
                offer[i] = e
                top[group] = below[top[group]]
                break
            next_offer[u] += 1
        if blocks[i] and host[i] < 0:
            break
    return host, offer
