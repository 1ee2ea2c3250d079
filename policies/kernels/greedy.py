"""Compiled: place jobs in a given order, then let the waiting ones share workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray


@njit(cache=True)
def place(  # noqa: PLR0917  compiled functions take positions, and loop by hand
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
    uses: BoolArray,
    least: float,
) -> IntArray:
    """Give each job in turn the configuration with room in which it would finish first.

    Efficient configurations come first. Then waiting jobs are offered all others, and then running
    jobs are offered more workers of the type that they hold. On ``benchmarks/large_models.py`` the
    last step lowers the mean JCT of ``large`` by 3 to 6 %. Serving the best gain per worker first,
    instead of the order, is no better.

    Args:
        order: (N,) positions of the jobs, the first to be served first.
        profile: (N,) row of the tables.
        throughput: (U, J) steps/s.
        demand: (U, J, K) workers held.
        capacity: (K,) workers, and limits of quotas.
        remaining: (N,) steps to go.
        restart_s: (N,) seconds that leaving the held configuration costs.
        held: (N,) configuration that the job runs in now, or -1.
        preferred: (N,) the one configuration that a job accepts in the first pass, or -1 if it
            accepts any; a second pass offers these jobs all other configurations.
        blocks: (N,) whether this job, if it finds no room, keeps later jobs off the worker types
            that it can use. If only a quota has no room, it blocks only the jobs under that quota.
        uses: (U, T) worker types, the first T of the K, that a job can use.
        least: efficiency of configurations that come first, over the best on their worker type.

    Returns:
        (N,) chosen configuration, -1 if the job waits.
    """
    types = uses.shape[1]
    choice = np.full(order.size, -1, np.int64)
    left = capacity.copy()
    finish = np.empty(throughput.shape[1])
    efficient = np.ones(finish.size, np.bool_)
    ratio, elastic = _ratios(profile, demand, capacity, types)
    full = np.zeros(elastic.size, np.bool_)
    for turn in range(4):
        for i in order:
            u = profile[i]
            if not full[u] and _asked(turn, choice[i], preferred[i], elastic[u]):
                _finish_s(finish, throughput[u], remaining[i], restart_s[i], held[i])
                _efficient(efficient, finish, ratio[u], least if elastic[u] else -1.0)
                if turn == 3:
                    best = _grown(choice[i], finish, ratio[u], demand[u], left)
                    left += demand[u, choice[i]]
                else:
                    only = preferred[i] if turn == 0 else -1
                    best = _soonest(finish, demand[u], left, efficient, turn < 2, only)
                    if best < 0 and blocks[i]:
                        best = _soonest(finish, demand[u], left, efficient, False, -1)
                if best >= 0:
                    choice[i] = best
                    left -= demand[u, best]
                    continue
                full[u] = not elastic[u] and (turn > 0 or preferred[i] < 0)  # room only shrinks
                if blocks[i]:
                    _hold_back(finish, demand[u], left, uses[u])
    return choice


@njit(cache=True)
def _asked(turn: int, choice: int, preferred: int, elastic: bool) -> bool:
    """Return whether a job is served in this turn.

    Turns are: preferred or else efficient configurations, efficient ones of jobs that prefer one,
    others, and more workers for jobs that run.
    """
    if turn == 3:
        return elastic and choice >= 0
    return choice < 0 and (turn == 0 or (turn == 1 and preferred >= 0) or (turn == 2 and elastic))


@njit(cache=True)
def _finish_s(
    finish: FloatArray, throughput: FloatArray, remaining: float, restart_s: float, held: int
) -> None:
    """Write the (J,) seconds until a job would finish, with its restart; inf if it cannot run."""
    for j in range(finish.size):
        finish[j] = np.inf
        if throughput[j] > 0:
            finish[j] = remaining / throughput[j]
            if held >= 0 and held != j:
                finish[j] += restart_s


@njit(cache=True)
def _ratios(
    profile: IntArray, demand: IntArray, capacity: FloatArray, types: int
) -> tuple[FloatArray, BoolArray]:
    """Return (U, J, J) the ratio of worker counts of two configurations, and (U,) elasticity.

    The ratio is 0 if the other one holds other worker types, in other proportions, or more than the
    capacity. Only rows that a job uses are set. A profile is elastic if it has several counts on
    some workers.
    """
    wide = demand.shape[1]
    ratio = np.full((demand.shape[0], wide, wide), -1.0)
    elastic = np.zeros(demand.shape[0], np.bool_)
    for u in profile:
        if ratio[u, 0, 0] >= 0.0:
            continue
        workers = demand[u, :, :types].sum(axis=1)
        for j in range(wide):
            for other in range(wide):
                alike = workers[j] > 0
                for k in range(types):
                    alike &= demand[u, other, k] * workers[j] == demand[u, j, k] * workers[other]
                for k in range(capacity.size):
                    alike &= demand[u, other, k] <= capacity[k]
                ratio[u, j, other] = workers[other] / workers[j] if alike else 0.0
                elastic[u] |= ratio[u, j, other] > 1.0
    return ratio, elastic


@njit(cache=True)
def _efficient(efficient: BoolArray, finish: FloatArray, ratio: FloatArray, least: float) -> None:
    """Write which (J,) configurations do enough per worker, compared on the same worker type.

    The measure is the worker-seconds until the job would finish, including its restart. So a job
    keeps a poor count if it would end soon. Of configurations with equal demands the fastest
    decides for all. If ``least`` is below 0, all are efficient.
    """
    for j in range(finish.size):
        efficient[j] = True
        if least < 0.0:
            continue
        mine = best = np.inf
        for other in range(finish.size):
            if ratio[j, other] > 0.0:
                best = min(best, ratio[j, other] * finish[other])
                if ratio[j, other] == 1.0:
                    mine = min(mine, finish[other])
        efficient[j] = least * mine <= best


@njit(cache=True)
def _soonest(  # noqa: PLR0917  compiled functions take positions
    finish: FloatArray,
    demand: IntArray,
    left: FloatArray,
    efficient: BoolArray,
    wanted: bool,
    only: int,
) -> int:
    """Return the configuration with room in which a job finishes first; -1 for none.

    If ``only`` is >= 0, only that one counts; if not, those with ``efficient == wanted``.
    """
    best, best_finish = -1, np.inf
    for j in range(finish.size):
        offered = efficient[j] == wanted if only < 0 else j == only
        if offered and finish[j] < best_finish and (demand[j] <= left).all():
            best, best_finish = j, finish[j]
    return best


@njit(cache=True)
def _grown(
    now: int, finish: FloatArray, ratio: FloatArray, demand: IntArray, left: FloatArray
) -> int:
    """Return the configuration with more of the same workers in which a job finishes first.

    Returns ``now`` if no configuration with room finishes sooner.
    """
    best = now
    for j in range(finish.size):
        sooner = ratio[now, j] > 1.0 and finish[j] < finish[best]
        if sooner and (demand[j] - demand[now] <= left).all():
            best = j
    return best


@njit(cache=True)
def _hold_back(finish: FloatArray, demand: IntArray, left: FloatArray, uses: BoolArray) -> None:
    """Reserve for a job without room the capacity that it waits for, by setting it to used up.

    It waits for quotas if there are enough workers, else for the worker types that it can use.

    Args:
        finish: (J,) seconds until it would finish; inf if it cannot run.
        demand: (J, K) workers held.
        left: (K,) workers, and of each quota; changed in place.
        uses: (T,) worker types, the first T of the K, that it can use.
    """
    types = uses.size
    for j in range(finish.size):
        if finish[j] < np.inf and (demand[j, :types] <= left[:types]).all():
            for k in range(types, left.size):
                if demand[j, k] > left[k]:
                    left[k] = 0
            return
    for k in range(types):
        if uses[k]:
            left[k] = 0


@njit(cache=True)
def _joins(guest: BoolArray, host: BoolArray, held: IntArray, left: FloatArray) -> bool:
    """Charge a guest to the quotas that its host is not under; False if a quota has no room.

    Args:
        guest: (Q,) quotas that it falls under.
        host: (Q,) quotas that the host falls under; these already count the workers.
        held: (Q,) amount that the guest holds of each quota.
        left: (Q,) of each quota; changed in place.
    """
    for q in range(left.size):
        if guest[q] and not host[q] and held[q] > left[q]:
            return False
    for q in range(left.size):
        if guest[q] and not host[q]:
            left[q] -= held[q]
    return True


@njit(cache=True)
def share(  # noqa: PLR0917  compiled functions take positions
    order: IntArray,
    profile: IntArray,
    choice: IntArray,
    start: IntArray,
    partner: IntArray,
    configuration: IntArray,
    held_types: BoolArray,
    width: int,
    blocks: BoolArray,
    uses: BoolArray,
    group: IntArray,
    member: BoolArray,
    held: IntArray,
    left: FloatArray,
) -> tuple[IntArray, IntArray]:
    """Let waiting jobs, in order, join the running jobs with which sharing gains most.

    Args:
        order: (N,) positions of the jobs, the first to be served first.
        profile: (N,) row of the tables.
        choice: (N,) configuration that each job runs in, -1 if it waits.
        start: (U + 1,) first offer to each profile; best offers first.
        partner: (E,) profile of the host that an offer needs.
        configuration: (E,) configuration that the host must run in.
        held_types: (E, T) worker types that an offer holds.
        width: J, the configurations of a profile.
        blocks: (N,) whether this job, if it finds no host, keeps later jobs off the worker types
            that it can use.
        uses: (U, T) worker types that a job can use.
        group: (N,) row of ``member``.
        member: (G, Q) quotas that jobs fall under.
        held: (E, Q) amount of each quota that a job under it holds by an offer.
        left: (Q,) of each quota; changed in place.

    Returns:
        (N,) the host that each waiting job joins, -1 for none, and (N,) the offer that it uses.
        Among equal hosts the one that was served last is joined, since sharing slows the host down.
    """
    n = order.size
    host = np.full(n, -1, np.int64)
    offer = np.full(n, -1, np.int64)
    top = np.full(uses.shape[0] * width, -1, np.int64)
    closed = np.zeros(uses.shape[1], np.bool_)
    below = np.full(n, -1, np.int64)
    for i in order:
        if choice[i] >= 0:
            stack = profile[i] * width + choice[i]
            below[i] = top[stack]
            top[stack] = i
    # The number of hosts only falls, so a used offer stays used: one pass over all offers.
    next_offer = start[:-1].copy()
    for i in order:
        if choice[i] >= 0:
            continue
        u = profile[i]
        e = next_offer[u]
        no_room = False
        while e < start[u + 1]:
            stack = partner[e] * width + configuration[e]
            if top[stack] < 0:
                if e == next_offer[u]:
                    next_offer[u] += 1
                e += 1
                continue
            shut = (closed & held_types[e]).any()
            if shut or not _joins(member[group[i]], member[group[top[stack]]], held[e], left):
                no_room |= not shut
                e += 1
                continue
            host[i] = top[stack]
            offer[i] = e
            top[stack] = below[top[stack]]
            break
        if blocks[i] and host[i] < 0 and not no_room:
            closed |= uses[u]
    return host, offer
