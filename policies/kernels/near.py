"""Search for whole answers near the prices: which jobs move from the place with no loss.

Each job has one place with loss 0 and others with a loss. The cost of an answer is the losses of
its jobs plus the price of the workers that stay free. If every job has loss 0, some worker types
are too full and others not full. A few moves repair that, and expensive moves are not among them.
The search goes through the jobs by their cheapest move. For each number of free workers by type it
keeps the cheapest way there (Pisinger, Oper. Res. 1997, has one knapsack).
"""

from __future__ import annotations

import numpy as np
from numba import njit

#: Largest number of workers with a bound on the cost to free or take them; more are not cheaper.
WINDOW = 64
#: Residues of free workers that count separately at most (8 of each of four types), and times jobs.
MOST_RESIDUES, MOST_ENTRIES = 4096, 1 << 21
#: Nodes of a search at first, in all and at a time; most need few.
FIRST_NODES, WIDTH, WIDER = 40_000, 200, 8
#: If nodes must be dropped, each missing worker counts this part of the slack in their order.
NEARER = 1e-3
#: Types above which there is one residue only.
MOST_TYPES = 12
#: Rows of a type that ``_type_bounds`` may have at most.
MOST_ROWS = 100_000
#: Moves that a search tries at most, in all of its passes: about 0.3 s.
MOST_TRIES = 3_000_000

# ruff: noqa: C901, PLR0912, PLR0915, PLR0917 (kernels are long and read as formulas)


@njit(cache=True, error_model="numpy")
def _find_modulus(change: np.ndarray, jobs: int) -> tuple[int, int]:
    """Return the unit of all moves, and the modulus in units by which free workers count."""
    types = change.shape[1]
    unit = 0
    for a in range(len(change)):
        for k in range(types):
            step = abs(int(change[a, k]))
            while step:
                unit, step = step, unit % step
    size = 1
    while types <= MOST_TYPES and (2 * size) ** types <= min(
        MOST_RESIDUES, MOST_ENTRIES // (jobs + 1)
    ):
        size *= 2
    return max(unit, 1), size


@njit(cache=True, error_model="numpy")
def _idle_costs(p: np.ndarray, unit: int, size: int) -> np.ndarray:
    """Return (size ** K,) the least price of the free workers, by free workers modulo."""
    result = np.empty(size ** len(p))
    for at in range(len(result)):
        rest, cost = at, 0.0
        for k in range(len(p)):
            cost += p[k] * unit * (rest % size)
            rest //= size
        result[at] = cost
    return result


@njit(cache=True, error_model="numpy")
def _residue_index(free: np.ndarray, unit: int, size: int) -> int:
    """Return the index of free workers in arrays by free workers modulo.

    A quota's limit may not be a whole number. The fraction is never used, so it is dropped.
    """
    at, step = 0, 1
    for k in range(len(free)):
        at += (int(np.floor(free[k])) // unit & (size - 1)) * step
        step *= size
    return at


@njit(cache=True, error_model="numpy")
def _repeat_rows(least: np.ndarray, twice: np.ndarray, size: int) -> None:
    """Write each row of ``size`` numbers twice, so that a rotated row is contiguous."""
    for row in range(len(least) // size):
        for r in range(size):
            twice[2 * row * size + r] = least[row * size + r]
            twice[(2 * row + 1) * size + r] = least[row * size + r]


@njit(cache=True, error_model="numpy")
def _apply_move(
    twice: np.ndarray,
    change: np.ndarray,
    loss: float,
    unit: int,
    size: int,
    start: np.ndarray,
    least: np.ndarray,
) -> None:
    """Lower the entries of ``least`` for which a move is cheaper.

    Args:
        twice: the least losses before, each row twice.
        change: (K,) workers that the move takes.
        loss: of the move.
        unit: all moves are multiples of it.
        size: the modulus, in units.
        start: scratch, one per row.
        least: by free workers modulo; changed in place.
    """
    start[0] = -(int(change[0]) // unit) & (size - 1)
    rows = 1
    for k in range(1, len(change)):
        by = int(change[k]) // unit
        for r in range(size - 1, -1, -1):
            to = 2 * (r - by & (size - 1)) * rows * size
            for row in range(rows):
                start[r * rows + row] = start[row] + to
        rows *= size
    for row in range(rows):
        source = twice[start[row] : start[row] + size]
        target = least[row * size : (row + 1) * size]
        for r in range(size):
            target[r] = min(target[r], loss + source[r])


@njit(cache=True, error_model="numpy")
def least_lack(
    free: np.ndarray, p: np.ndarray, change: np.ndarray, loss: np.ndarray, jobs: int
) -> float:
    """Return the least cost of every answer: moves, and the price of the free workers.

    Free workers count modulo a few units, and a job may make several moves. This relaxation
    (Gomory, Linear Algebra Appl. 1969) sees that gangs of 16 cannot fill a gap of 2. It closes
    nearly all of the gap of the prices.

    Args:
        free: (K,) free workers before any move.
        p: (K,) price of a worker.
        change: (A, K) workers that a move takes.
        loss: (A,) >= 0, ascending.
        jobs: how many jobs have a move.
    """
    unit, size = _find_modulus(change, jobs)
    least = _idle_costs(p, unit, size)
    twice, start = np.empty(2 * len(least)), np.empty(len(least) // size, dtype=np.int64)
    at = _residue_index(free, unit, size)
    for a in range(len(change)):
        if loss[a] >= least[at]:
            break
        _repeat_rows(least, twice, size)
        _apply_move(twice, change[a], loss[a], unit, size, start, least)
    found: float = least[at]
    return found


@njit(cache=True, error_model="numpy")
def _residue_bounds(
    first: np.ndarray, change: np.ndarray, loss: np.ndarray, p: np.ndarray, unit: int, size: int
) -> np.ndarray:
    """Return (I + 1, size ** K) the least costs of the jobs from each on, as in ``least_lack``."""
    jobs = len(first) - 1
    last = _idle_costs(p, unit, size)
    least = np.empty((jobs + 1, len(last)))
    least[jobs] = last
    twice, start = np.empty(2 * len(last)), np.empty(len(last) // size, dtype=np.int64)
    for i in range(jobs - 1, -1, -1):
        least[i] = least[i + 1]
        _repeat_rows(least[i + 1], twice, size)
        for a in range(first[i], first[i + 1]):
            _apply_move(twice, change[a], loss[a], unit, size, start, least[i])
    return least


@njit(cache=True, error_model="numpy")
def _type_bounds(
    first: np.ndarray, change: np.ndarray, loss: np.ndarray, p: np.ndarray
) -> np.ndarray:
    """Return (I + 1, 2, K, WINDOW + 1) the least losses of the jobs from each on to repair a type.

    Row 0: to free at least so many workers. Row 1: to take so many, or pay for the ones left. Each
    type is considered alone.
    """
    jobs, types = len(first) - 1, len(p)
    ahead = np.empty((jobs + 1, 2, types, WINDOW + 1))
    ahead[jobs, 0] = np.inf
    for k in range(types):
        ahead[jobs, 0, k, 0] = 0.0
        for e in range(WINDOW + 1):
            ahead[jobs, 1, k, e] = p[k] * e
    for i in range(jobs - 1, -1, -1):
        ahead[i] = ahead[i + 1]
        for a in range(first[i], first[i + 1]):
            for k in range(types):
                step = int(change[a, k])
                if step == 0:
                    continue
                side = 0 if step < 0 else 1
                step = abs(step)
                for e in range(1, WINDOW + 1):
                    cost = loss[a] + ahead[i + 1, side, k, max(e - step, 0)]
                    ahead[i, side, k, e] = min(ahead[i, side, k, e], cost)
    return ahead


@njit(cache=True, error_model="numpy")
def _lower_bound(
    free: np.ndarray, ahead: np.ndarray, residue: np.ndarray, unit: int, size: int, single: bool
) -> float:
    """Return the least loss of the remaining jobs, given the free and the missing workers.

    Args:
        free: (K,) free workers.
        ahead: (2, K, WINDOW + 1) of ``_type_bounds``, from the next job on.
        residue: (size ** K,) of ``_residue_bounds``, from the next job on.
        unit: all moves are multiples of it.
        size: the modulus, in units; a power of 2.
        single: whether a move frees workers of one type at most and takes of one at most.
    """
    freeing, taking = 0.0, 0.0
    for k in range(len(free)):
        if free[k] < 0:
            cost = ahead[0, k, min(int(-free[k]), WINDOW)]
            freeing = freeing + cost if single else max(freeing, cost)
        elif free[k] > 0:
            cost = ahead[1, k, min(int(free[k]), WINDOW)]
            taking = taking + cost if single else max(taking, cost)
    needed: float = max(freeing, taking, residue[_residue_index(free, unit, size)])
    return needed


@njit(cache=True, error_model="numpy")
def _search_moves(
    free: np.ndarray,
    p: np.ndarray,
    first: np.ndarray,
    change: np.ndarray,
    loss: np.ndarray,
    ahead: np.ndarray,
    residue: np.ndarray,
    unit: int,
    size: int,
    single: bool,
    limit: float,
    slack: float,
    most_nodes: int,
    width: int,
    tries: int,
) -> tuple[np.ndarray, float, bool, int]:
    """Search as ``near_prices`` does, with so many nodes at a time and so many tries at most.

    Returns:
        Moves, their cost, whether every cheaper candidate was examined, and the tries left.
    """
    jobs, types = len(first) - 1, len(free)
    slots = 1
    while slots < 2 * most_nodes:
        slots *= 2
    table = np.full(slots, -1, dtype=np.int32)
    at = np.empty((most_nodes, types))
    cost = np.empty(most_nodes)
    parent = np.full(most_nodes, -1, dtype=np.int32)
    move = np.full(most_nodes, -1, dtype=np.int32)
    dead = np.full(most_nodes, jobs, dtype=np.int32)
    active = np.empty(most_nodes, dtype=np.int32)
    lacks = np.empty(most_nodes)
    at[0], cost[0], active[0] = free, 0.0, 0
    nodes, alive = 1, 1
    best, best_node, best_move = np.inf, -1, -1
    now = np.empty(types)
    feasible, total = True, 0.0
    for k in range(types):
        feasible = feasible and free[k] >= 0
        total += p[k] * free[k]
    if feasible:
        best, best_node = total, 0
    complete, full = True, False
    for i in range(jobs):
        cap = min(limit, best - slack)
        least = loss[first[i]]
        kept = 0
        for n in range(alive):
            v = active[n]
            if dead[v] < i or cost[v] + least > cap:
                continue
            tries -= 1
            lack = cost[v] + _lower_bound(at[v], ahead[i], residue[i], unit, size, single)
            if lack <= cap:
                missing = 0.0
                for k in range(types):
                    missing += max(-at[v, k], 0.0)
                active[kept], lacks[kept] = v, lack + missing * slack * NEARER
                kept += 1
        if kept > width:
            complete = False
            most = np.partition(lacks[:kept], width)[width]
            alive, kept = kept, 0
            for n in range(alive):
                if lacks[n] <= most and kept < width:
                    active[kept] = active[n]
                    kept += 1
        alive = kept
        next_least = loss[first[i + 1]] if i + 1 < jobs else np.inf
        for n in range(kept):
            v = active[n]
            for a in range(first[i], first[i + 1]):
                tries -= 1
                paid = cost[v] + loss[a]
                if paid > min(limit, best - slack):
                    break
                feasible, total = True, paid
                for k in range(types):
                    now[k] = at[v, k] - change[a, k]
                    feasible = feasible and now[k] >= 0
                    total += p[k] * now[k]
                if feasible and total < best:
                    best, best_node, best_move = total, v, a
                left = min(limit, best - slack) - paid
                if left < next_least:
                    continue
                j = i + 1
                if left < _lower_bound(now, ahead[j], residue[j], unit, size, single):
                    continue
                hashed = np.uint64(0)
                for k in range(types):
                    hashed = (hashed ^ np.uint64(np.int64(now[k]))) * np.uint64(0x9E3779B97F4A7C15)
                    hashed ^= hashed >> np.uint64(29)
                slot = np.int64(hashed & np.uint64(slots - 1))
                found = -1
                while table[slot] >= 0:
                    other = table[slot]
                    same = True
                    for k in range(types):
                        same = same and at[other, k] == now[k]
                    if same:
                        found = other
                        break
                    slot = (slot + 1) & (slots - 1)
                if found >= 0 and cost[found] <= paid:
                    continue
                if nodes == most_nodes:
                    full = True
                    break
                if found >= 0:
                    dead[found] = i
                for k in range(types):
                    at[nodes, k] = now[k]
                cost[nodes], parent[nodes], move[nodes] = paid, v, a
                table[slot] = nodes
                active[alive] = nodes
                nodes, alive = nodes + 1, alive + 1
            if full:
                break
        if full or tries < 0:
            full = True
            break
    path = np.empty(jobs + 1, dtype=np.int64)
    steps = 0
    if best_move >= 0:
        path[0], steps = best_move, 1
    v = best_node
    while v >= 0 and move[v] >= 0:
        path[steps] = move[v]
        steps += 1
        v = parent[v]
    return path[:steps], best, complete and not full, tries


@njit(cache=True, error_model="numpy")
def near_prices(
    free: np.ndarray,
    p: np.ndarray,
    first: np.ndarray,
    change: np.ndarray,
    loss: np.ndarray,
    limit: float,
    slack: float,
    most_nodes: int,
) -> tuple[np.ndarray, float, float]:
    """Find the cheapest moves that make an answer feasible.

    Args:
        free: (K,) free workers before any move, < 0 if there are too few.
        p: (K,) >= 0 price of a worker.
        first: (I + 1,) first move of each job; jobs by the loss of their first move.
        change: (A, K) workers that a move takes.
        loss: (A,) >= 0, ascending within a job.
        limit: the search does not look for answers that cost more, but may find some.
        slack: the search may miss an answer that is cheaper by this or less.
        most_nodes: largest number of nodes.

    Returns:
        The moves of the cheapest answer found, its cost (infinite without one), and the cost up to
        which all answers were examined; -1 if there were too many.
    """
    jobs, types = len(first) - 1, len(free)
    if (jobs + 1) * types > MOST_ROWS:
        return np.empty(0, dtype=np.int64), np.inf, -1.0
    ahead = _type_bounds(first, change, loss, p)
    unit, size = _find_modulus(change, jobs)
    residue = _residue_bounds(first, change, loss, p, unit, size)
    single = True
    for a in range(len(change)):
        frees, takes = 0, 0
        for k in range(types):
            frees += change[a, k] < 0
            takes += change[a, k] > 0
        single = single and frees <= 1 and takes <= 1
    must = _lower_bound(free, ahead[0], residue[0], unit, size, single)
    margin, nodes, width, tries = slack, min(FIRST_NODES, most_nodes), WIDTH, MOST_TRIES
    while True:
        cap = min(limit, must + margin)
        path, best, complete, tries = _search_moves(
            *(free, p, first, change, loss, ahead, residue, unit, size, single),
            *(cap, slack, nodes, width, tries),
        )
        if best <= must + slack:
            return path, best, min(limit, must)
        if complete and (cap >= min(limit, best - slack)):
            return path, best, cap
        if complete:
            margin *= 4.0
        elif width < nodes and tries > 0:
            width *= WIDER
            nodes = min(4 * nodes, most_nodes)
            if nodes == most_nodes:
                width = nodes
        else:
            return path, best, -1.0


@njit(cache=True)
def fill(
    first: np.ndarray, second: np.ndarray, demand: np.ndarray, free: np.ndarray, jobs: int
) -> np.ndarray:
    """Return the columns that fit one after the other.

    Args:
        first: (C,) job of each column.
        second: (C,) its second job; -1 for none.
        demand: (C, K) workers.
        free: (K,) workers; changed in place.
        jobs: how many there are.
    """
    number, types = demand.shape
    busy = np.zeros(jobs, dtype=np.bool_)
    chosen = np.empty(number, dtype=np.int64)
    taken = 0
    smallest = np.inf
    for c in range(number):
        smallest = min(smallest, demand[c].sum())
    for c in range(number):
        if busy[first[c]] or (second[c] >= 0 and busy[second[c]]):
            continue
        fits = True
        for k in range(types):
            fits = fits and demand[c, k] <= free[k]
        if not fits:
            continue
        chosen[taken] = c
        taken += 1
        left = 0.0
        for k in range(types):
            free[k] -= demand[c, k]
            left += free[k]
        busy[first[c]] = True
        if second[c] >= 0:
            busy[second[c]] = True
        if left < smallest:
            break
    return chosen[:taken]
