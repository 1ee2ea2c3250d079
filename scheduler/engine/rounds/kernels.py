"""Compiled loops of the round mechanism."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray


@njit(cache=True)
def _fits(demand: IntArray, free: IntArray) -> bool:
    for k in range(len(demand)):  # numba compiles no generators
        if demand[k] > free[k]:
            return False
    return True


@njit(cache=True)
def _take(demand: IntArray, free: IntArray, sign: int) -> None:
    for k in range(len(demand)):
        free[k] -= sign * demand[k]


@njit(cache=True)
def choose_entitled(
    order: IntArray,
    first: IntArray,
    second: IntArray,
    demand: IntArray,
    promise: IntArray,
    urgent: BoolArray,
    free: IntArray,
    busy: BoolArray,
) -> BoolArray:
    """Choose the configurations of a round by how far each lags behind X.

    Candidates are taken in the given order while their workers last. An urgent candidate without
    room may push a chosen single job to another of its configurations, so that both run.

    Args:
        order: (C,) candidates, most deserving first.
        first: (C,) row of the (first) member.
        second: (C,) row of the second member, -1 for a single job.
        demand: (C, K) workers.
        promise: (C,) number that candidates of one job and of equal value share; -1 for
            candidates that share no number.
        urgent: (C,) candidates that may push others; urgent ones are pushed only to candidates
            of equal value.
        free: (K,) workers to give; reduced in place.
        busy: (N,) rows that already run in this round; updated in place.

    Returns:
        (C,) which candidates run.
    """
    chosen = np.zeros(len(order), dtype=np.bool_)
    for c in order:
        if busy[first[c]] or (second[c] >= 0 and busy[second[c]]):
            continue
        if not _fits(demand[c], free) and (
            not urgent[c]
            or not _make_room(c, order, first, second, demand, promise, urgent, free, chosen)
        ):
            continue
        _take(demand[c], free, 1)
        chosen[c] = True
        busy[first[c]] = True
        if second[c] >= 0:
            busy[second[c]] = True
    return chosen


@njit(cache=True)
def _make_room(
    wanted: int,
    order: IntArray,
    first: IntArray,
    second: IntArray,
    demand: IntArray,
    promise: IntArray,
    urgent: BoolArray,
    free: IntArray,
    chosen: BoolArray,
) -> bool:
    """Move one chosen single job so that ``wanted`` fits; return whether it does."""
    for here in order:
        if not chosen[here] or second[here] >= 0 or (urgent[here] and promise[here] < 0):
            continue
        _take(demand[here], free, -1)
        if _fits(demand[wanted], free):
            _take(demand[wanted], free, 1)
            for there in order:
                if (
                    there != here
                    and first[there] == first[here]
                    and second[there] < 0
                    and (not urgent[here] or promise[there] == promise[here])
                    and _fits(demand[there], free)
                ):
                    _take(demand[there], free, 1)
                    _take(demand[wanted], free, -1)
                    chosen[here] = False
                    chosen[there] = True
                    return True
            _take(demand[wanted], free, -1)
        _take(demand[here], free, 1)
    return False


@njit(cache=True)
def _equal(
    row: int, wanted: int, profile: IntArray, choice: IntArray, group: IntArray, slot: IntArray
) -> int:
    """Return the configuration of a slot with equal value to a row's choice, -1 without one."""
    u = profile[row]
    for j in range(group.shape[1]):
        if group[u, j] == group[u, choice[row]] and slot[u, j] == wanted:
            return j
    return -1


@njit(cache=True)
def _movers(
    rows: IntArray,
    profile: IntArray,
    held: IntArray,
    choice: IntArray,
    group: IntArray,
    slot: IntArray,
    slots: int,
) -> tuple[IntArray, IntArray]:
    """List the jobs that are to run in one slot and could stay in another, in order of their rows.

    Returns:
        (S, S + 1) first of each list, -1 for an empty one; jobs that could not stay are in the last
        column. And (R,) the next job after each.
    """
    head = np.full((slots, slots + 1), np.int64(-1))
    after = np.full(len(rows), np.int64(-1))
    for i in range(len(rows) - 1, -1, -1):
        row = rows[i]
        u = profile[row]
        if choice[row] == held[row]:
            continue
        home = slots
        if held[row] >= 0 and group[u, held[row]] == group[u, choice[row]]:
            home = slot[u, held[row]]
        there = slot[u, choice[row]]
        after[i] = head[there, home]
        head[there, home] = i
    return head, after


@njit(cache=True)
def swap_equals(
    rows: IntArray,
    profile: IntArray,
    held: IntArray,
    choice: IntArray,
    group: IntArray,
    slot: IntArray,
    excluded: BoolArray,
) -> None:
    """Swap the choices of two jobs while at least one of them can stay and neither loses value.

    Args:
        rows: (R,) rows that are to run another configuration than they hold.
        profile: (N,) profile of each row.
        held: (N,) configuration held, -1 for none.
        choice: (N,) configuration that each row is to run; changed in place.
        group: (U, J) number that a profile's configurations of equal value share.
        slot: (U, J) number that all configurations of one demand share.
        excluded: (N, J) configurations that rows cannot have; (0, 0) if there are no bars.
    """
    slots = slot.max() + 1 if slot.size else 0
    nothing = np.int64(-1)
    changed = True
    while changed:
        changed = False
        head, after = _movers(rows, profile, held, choice, group, slot, slots)
        for a in range(slots):
            for b in range(a):
                while head[a, b] >= 0 and head[b, a] >= 0:
                    i, j = head[a, b], head[b, a]
                    head[a, b], head[b, a] = after[i], after[j]
                    choice[rows[i]] = held[rows[i]]
                    choice[rows[j]] = held[rows[j]]
        moved = np.zeros(len(rows), dtype=np.bool_)
        for i in range(len(rows)):
            row = rows[i]
            u = profile[row]
            if moved[i] or held[row] < 0 or choice[row] == held[row]:
                continue
            if group[u, held[row]] != group[u, choice[row]]:
                continue
            given, wanted = slot[u, choice[row]], slot[u, held[row]]
            for home in range(slots + 1):
                before = nothing
                j = head[wanted, home]
                while j >= 0 and not moved[i]:
                    gets = nothing
                    if not moved[j]:
                        gets = _equal(rows[j], given, profile, choice, group, slot)
                        if gets >= 0 and excluded.shape[0] > 0 and excluded[rows[j], gets]:
                            gets = nothing
                    if gets >= 0:
                        choice[rows[j]] = gets
                        choice[row] = held[row]
                        moved[i] = moved[j] = changed = True
                    if moved[j]:  # it runs elsewhere now: out of the list
                        if before < 0:
                            head[wanted, home] = after[j]
                        else:
                            after[before] = after[j]
                    else:
                        before = j
                    j = after[j]
                if moved[i]:
                    break


@njit(cache=True)
def _sum(more: IntArray, which: BoolArray, less: IntArray) -> IntArray:
    """Return the (K,) sums of the rows of a mask, less ``less``."""
    total = -less
    for i in range(len(which)):
        if which[i]:
            for k in range(len(total)):
                total[k] += more[i, k]
    return total


@njit(cache=True)
def _exchanged(more: IntArray, loses: BoolArray, gain: FloatArray) -> BoolArray:
    """Return the jobs that must stay so that jobs that would lose all their work need not move.

    For each such job, the jobs that come for its workers stay too, the least gain first. If that
    does not balance the workers, the job moves.
    """
    stays = np.zeros(len(more), dtype=np.bool_)
    nothing = np.zeros(more.shape[1], dtype=np.int64)
    for row in range(len(more)):
        if not loses[row]:
            continue
        tried = stays.copy()
        tried[row] = True
        lacking = _sum(more, tried, nothing)
        while lacking.any():
            k = np.argmax(lacking)
            coming = -1
            for i in range(len(more)):
                if not tried[i] and more[i, k] < 0 and (coming < 0 or gain[i] < gain[coming]):
                    coming = i
            if coming < 0:
                break
            tried[coming] = True
            for h in range(len(lacking)):
                lacking[h] += more[coming, h]
        else:
            stays = tried
    return stays


@njit(cache=True)
def _drop_excess(fits: BoolArray, more: IntArray, free: IntArray) -> None:
    """Reduce a mask to changes that can be made at once: drop the last that ask too much."""
    while True:
        lacking = _sum(more, fits, free)
        k = np.argmax(lacking)
        if lacking[k] <= 0:
            break
        for i in range(len(fits) - 1, -1, -1):
            if fits[i] and more[i, k] > 0 and lacking[k] > 0:
                fits[i] = False
                lacking[k] -= more[i, k]


@njit(cache=True)
def choose_staying(
    more: IntArray,
    content: BoolArray,
    wanted: BoolArray,
    loses: BoolArray,
    gain: FloatArray,
    free: IntArray,
) -> BoolArray:
    """Choose which of the jobs that are about to move keep their workers.

    Args:
        more: (R, K) workers that each job asks for beyond those it gives up, if it stays.
        content: (R,) jobs without a certain gain from their move.
        wanted: (R,) jobs that may stay although other workers become idle by it.
        loses: (R,) jobs that lose all work when they are preempted, and have restarted before.
        gain: (R,) factor by which each job would be faster in its chosen configuration.
        free: (K,) workers that are left over; changed in place.

    Returns:
        (R,) jobs that stay.
    """
    nothing = np.zeros(len(free), dtype=np.int64)
    stays: BoolArray = _exchanged(more, loses, gain)
    same_workers = content & ~stays
    _drop_excess(same_workers, more, nothing)
    if not _sum(more, same_workers, nothing).any():
        stays |= same_workers
    others = content & wanted & ~stays
    _drop_excess(others, more, free)
    stays |= others
    free -= _sum(more, stays, nothing)
    return stays


@njit(cache=True)
def choose_leftover(
    order: IntArray,
    throughput: FloatArray,
    demand: IntArray,
    held: IntArray,
    keep_gain: FloatArray,
    free: IntArray,
) -> IntArray:
    """Offer the left-over workers to waiting jobs: to each its fastest configuration with room.

    Args:
        order: (R,) rows in the order in which they may choose.
        throughput: (N, J) steps/s.
        demand: (N, J, K) workers.
        held: (N,) configuration held now, -1 for none; a job leaves it only for a gain.
        keep_gain: (N,) factor >= 1 by which another configuration must be faster than the held one.
        free: (K,) workers to give; reduced in place.

    Returns:
        (N,) configuration that each row gets, -1 for none.
    """
    choice = np.full(throughput.shape[0], -1, dtype=np.int64)
    for i in order:
        best = -1
        best_value = 0.0
        for j in range(throughput.shape[1]):
            value = throughput[i, j]
            if value <= 0.0 or not _fits(demand[i, j], free):
                continue
            if j == held[i]:
                value *= keep_gain[i] * (1.0 + 1e-9)
            if value > best_value:
                best = j
                best_value = value
        if best >= 0:
            choice[i] = best
            _take(demand[i, best], free, 1)
    return choice


@njit(cache=True)
def price_bound(
    value: FloatArray,
    demand: FloatArray,
    begin: IntArray,
    free: FloatArray,
    target: float,
    steps: int,
) -> tuple[float, FloatArray]:
    """Return an upper bound on the value of any choice, and the prices of workers that prove it.

    At any prices p >= 0 a choice is worth at most p * free plus the largest gain of each job,
    max(0, value - p * demand), since it uses no more than the free workers and runs no job twice.
    The least such bound is that of the linear relaxation, in which workers can be divided. The
    prices are improved by subgradients with Polyak's step lengths while the bound is above
    ``target``.

    Args:
        value: (E,) value of each entry.
        demand: (E, R) amount of each resource that it takes.
        begin: (G + 1,) first entry of each job, then E.
        free: (R,) free amount of each resource.
        target: value of the best known choice.
        steps: most improvements.
    """
    resources = demand.shape[1]
    price, used = np.zeros(resources), np.zeros(resources)
    best_price = price.copy()
    best, length, stalled = np.inf, 1.0, 0
    for _ in range(steps):
        bound = 0.0
        for k in range(resources):
            bound += price[k] * free[k]
            used[k] = -free[k]
        for g in range(len(begin) - 1):
            most, at = 0.0, -1
            for e in range(begin[g], begin[g + 1]):
                gain = value[e]
                for k in range(resources):
                    gain -= price[k] * demand[e, k]
                if gain > most:
                    most, at = gain, e
            if at >= 0:
                bound += most
                for k in range(resources):
                    used[k] += demand[at, k]
        stalled = 0 if bound < 0.999 * best else stalled + 1
        if bound < best:
            best = bound
            best_price[:] = price
        norm = 0.0
        for k in range(resources):
            if price[k] <= 0.0 and used[k] < 0.0:
                used[k] = 0.0  # no price is below 0
            norm += used[k] * used[k]
        if norm == 0.0 or best <= target * (1.0 + 1e-4):
            break
        if stalled >= 4:
            length, stalled = 0.6 * length, 0
            price[:] = best_price
            continue
        for k in range(resources):
            price[k] = max(0.0, price[k] + length * (bound - target) / norm * used[k])
    return best, best_price


@njit(cache=True)
def search_core(
    loss: FloatArray,
    demand: IntArray,
    begin: IntArray,
    free: IntArray,
    price: FloatArray,
    most: float,
    steps: int,
) -> tuple[IntArray, float, bool]:
    """Choose one option for each job with the least loss against the bound by prices.

    The search goes depth first. It leaves a branch as soon as the branch has lost as much as the
    best known choice. Workers that stay free at the end are lost at their price.

    Args:
        loss: (E,) loss of each option, ascending for each job; waiting is one of the options.
        demand: (E, R) amount of each resource that an option takes.
        begin: (G + 1,) first option of each job, then E.
        free: (R,) free amount of each resource; unchanged after a complete search.
        price: (R,) price of each resource.
        most: a choice must lose less than this.
        steps: most steps of the search.

    Returns:
        (G,) the options of the best choice, or -1 each if none loses less; its loss; and whether
        the search is complete.
    """
    jobs, resources = len(begin) - 1, demand.shape[1]
    at = begin[:-1] - 1
    lost = np.zeros(jobs + 1)
    best = np.full(jobs, np.int64(-1))
    g = 0
    for _ in range(steps):
        if at[g] >= begin[g]:
            _take(demand[at[g]], free, -1)
        at[g] += 1
        while at[g] < begin[g + 1]:
            if lost[g] + loss[at[g]] >= most:
                at[g] = begin[g + 1]
            elif _fits(demand[at[g]], free):
                break
            else:
                at[g] += 1
        if at[g] >= begin[g + 1]:
            at[g] = begin[g] - 1
            g -= 1
            if g < 0:
                return best, most, True
            continue
        _take(demand[at[g]], free, 1)
        lost[g + 1] = lost[g] + loss[at[g]]
        if g < jobs - 1:
            g += 1
            continue
        total = lost[jobs]
        for k in range(resources):
            total += price[k] * free[k]
        if total < most:
            most = total
            best[:] = at
    return best, most, False


@njit(cache=True)
def group_alike(
    order: IntArray,
    steps: FloatArray,
    workers: IntArray,
    price: FloatArray,
    margin: FloatArray,
    doubt: FloatArray,
    group: IntArray,
) -> None:
    """Group the configurations of each profile that are of equal value, see ``Alike``.

    Args:
        order: (U, J) configurations of each profile, the fastest first.
        steps: (U, J) steps/s.
        workers: (U, J) workers of each configuration.
        price: (U, J) USD per hour.
        margin: (2,) the most by which logarithms of throughputs of equal value differ, and the
            allowance for rounding; see ``scheduler.domain.configuration.margin``.
        doubt: (U, J) of each throughput.
        group: (U, J) -1; becomes the first configuration of equal value if the job can run
            there.
    """
    for u in range(len(steps)):
        # The fastest leads, so that each member differs from it by at most the doubt.
        for j in order[u]:
            if steps[u, j] <= 0.0 or group[u, j] >= 0:
                continue
            first = -1
            for i in range(steps.shape[1]):
                if group[u, i] >= 0 or steps[u, i] <= 0.0 or workers[u, i] != workers[u, j]:
                    continue
                if i != j:
                    both = np.hypot(doubt[u, i], doubt[u, j])
                    apart = np.log(steps[u, j] / steps[u, i])
                    if not np.isfinite(both) or apart > min(2.0 * both, margin[0]) + margin[1]:
                        continue
                    if not abs(price[u, i] - price[u, j]) <= 1e-9 * abs(price[u, j]):
                        continue
                if first < 0:
                    first = i
                group[u, i] = first


@njit(cache=True)
def find_wait_reasons(
    profile: IntArray,
    shares: BoolArray,
    planned: BoolArray,
    x_only: BoolArray,
    before: IntArray,
    throughput: FloatArray,
    demand: IntArray,
    idle: IntArray,
    bits: IntArray,
) -> tuple[BoolArray, IntArray]:
    """Find why jobs wait, by the policy's answer and the workers that a decision left idle.

    Args:
        profile: (R,) row of the configuration table.
        shares: (R,) jobs to which X gives time.
        planned: (R,) jobs that begin with the next round.
        x_only: (R,) jobs that get no left-over workers.
        before: (R,) bits so far.
        throughput: (U, J) steps/s.
        demand: (U, J, K) workers.
        idle: (K,) idle workers.
        bits: bits for: no answer of the policy includes the job, it has no share, workers are kept
            idle on purpose, no workers fit it at the moment, other jobs go first.

    Returns:
        (R,) jobs that are not planned and for which idle workers would be enough; (R,) bits.
    """
    known = np.full(throughput.shape[0], -1, dtype=np.int64)
    startable = np.zeros(len(profile), dtype=np.bool_)
    found = np.empty(len(profile), dtype=np.int64)
    for r in range(len(profile)):
        u = profile[r]
        if known[u] < 0:
            known[u] = 0
            for j in range(throughput.shape[1]):
                asks = demand[u, j].sum() > 0
                if throughput[u, j] > 0.0 and asks and _fits(demand[u, j], idle):
                    known[u] = 1
                    break
        startable[r] = known[u] == 1 and not planned[r]
        if before[r] & bits[0]:
            found[r] = bits[0]
        elif startable[r] and x_only[r]:
            found[r] = bits[2]
        elif not shares[r]:
            found[r] = bits[1]
        elif startable[r]:
            found[r] = bits[3]
        else:
            found[r] = bits[4]
    return startable, found
