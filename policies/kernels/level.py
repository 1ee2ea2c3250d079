"""Solve, check and scale level programs without pairs, each in one compiled call.

With a few hundred classes the overhead of numpy calls exceeds the computation.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from policies.kernels.interior import AA, CC, EE, GS, GV, ON, XX, S, U, Y, interior
from policies.kernels.starting import first_prices, lay_out

# ruff: noqa: C901, PLR0912, PLR0915, PLR0917 (compiled functions take positions, and loop by hand)


@njit(cache=True, error_model="numpy")
def block_sum(values: np.ndarray, first: int, last: int) -> float:
    """Return the sum of a few values, in eight rows."""
    result, at = 0.0, first
    if last - first >= 8:
        rows = values[first : first + 8].copy()
        at += 8
        while at + 8 <= last:
            for i in range(8):
                rows[i] += values[at + i]
            at += 8
        half = (rows[0] + rows[1]) + (rows[2] + rows[3])
        result = float(half + ((rows[4] + rows[5]) + (rows[6] + rows[7])))
    for i in range(at, last):
        result += float(values[i])
    return result


@njit(cache=True, error_model="numpy")
def total(values: np.ndarray) -> float:
    """Return the sum, pairwise as in numpy: rounding grows slowly with the length.

    Uses a stack, since numba cannot cache a recursive kernel.
    """
    if len(values) <= 128:
        return float(block_sum(values, 0, len(values)))
    todo = np.empty((128, 2), dtype=np.int64)  # ranges; (-1, -1) adds up the two newest sums
    sums = np.empty(128)
    todo[0, 0], todo[0, 1] = 0, len(values)
    left, done = 1, 0
    while left:
        left -= 1
        first, last = todo[left, 0], todo[left, 1]
        if first < 0:
            done -= 1
            sums[done - 1] += sums[done]
        elif last - first <= 128:
            sums[done] = block_sum(values, first, last)
            done += 1
        else:
            half = (last - first) // 2
            half -= half % 8
            todo[left] = -1
            todo[left + 1, 0], todo[left + 1, 1] = first + half, last
            todo[left + 2, 0], todo[left + 2, 1] = first, first + half
            left += 3
    return float(sums[0])


@njit(cache=True, error_model="numpy")
def solve(
    throughput: np.ndarray,
    demand: np.ndarray,
    usable: np.ndarray,
    count: np.ndarray,
    capacity: np.ndarray,
    gain: np.ndarray,
    slope: np.ndarray,
    floor: np.ndarray,
    cost: np.ndarray,
    near: np.ndarray,
    price: float,
    mix: float,
    tolerance: float,
    limit: int,
) -> tuple[float, float, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Scale a level program, solve it, and return the answer in the program's units.

    Args:
        throughput: (M, J) steps/s of one job.
        demand: (M, J, K) workers of one job.
        usable: (M, J).
        count: (M,) jobs of each class.
        capacity: (K,) workers.
        gain: (M,) factor of the level rows.
        slope: (M,) how fast the floors rise with the level.
        floor: (M,) at level 0; -inf without a row.
        cost: (M, J) of a whole class's time, or (0, J).
        near: (M, J) a feasible point to start nearer to, or (0, J).
        price: of the level.
        mix: the weight of the even split beside ``near``.
        tolerance: relative gap to stop at.
        limit: iterations at most.

    Returns:
        The relative gap, inf without an answer; the level; (M, J) fractions; (M,) prices of the
        level rows; (K,) of workers; (M,) of time.
    """
    V, X, D, first, col, q, reached = lay_out(
        throughput, demand, usable, count, capacity, gain, near, mix
    )
    M, J = throughput.shape
    scale = np.zeros(M)
    ways = 0.0
    for m in range(M):
        for j in range(J):
            ways += X[EE, j, m]
        if not (np.isfinite(floor[m]) and reached[m] > 0.0):
            for j in range(J):
                X[AA, j, m] = 0.0
            continue
        least = 0.0 if slope[m] > 0.0 else max(floor[m], 0.0)
        scale[m] = 1.0 / max(reached[m], least)
        V[ON, m] = 1.0
        V[GV, m] = floor[m] * scale[m]
        V[GS, m] = slope[m] * scale[m]
        for j in range(J):
            X[AA, j, m] *= scale[m]
    none = np.inf, 0.0, throughput, gain, capacity, count  # placeholders
    mu = 1.0 / (ways + 2.0 * M)
    unit, z = 1.0, 0.0
    if price > 0.0:
        unit, least, most = np.inf, np.inf, 0.0
        for m in range(M):
            if V[GS, m] > 0.0:
                unit = min(unit, (1.0 - V[GV, m]) / V[GS, m])
                least = min(least, abs(V[GV, m] / V[GS, m]))
                most = max(most, V[GS, m])
        if most == 0.0:
            return none
        unit = max(unit, 0.1 * least, 1e-12 / most)
        z = 0.5
    steep = np.zeros(M)
    for m in range(M):
        V[GS, m] *= unit
        V[S, m] = 1.0
        if V[ON, m] > 0.0:
            V[S, m] = max(reached[m] * scale[m] - V[GV, m] - V[GS, m] * z, 0.1)
        V[GV, m] += V[GS, m] * z
        steep[m] = V[GS, m] / V[S, m]
    if price > 0.0:
        mu = 1.0 / total(steep)
    for m in range(M):
        V[Y, m] = mu / V[S, m]
    size = 1.0
    if len(cost):
        worth_of = np.zeros(J * M)
        for j in range(J):
            for m in range(M):
                X[CC, j, m] = cost[m, j] * X[EE, j, m]
                worth_of[j * M + m] = abs(X[CC, j, m]) * X[XX, j, m]
        at_start = total(worth_of)
        if at_start > 0.0:
            size = 1.0 / at_start
    if price > 0.0:
        size = 1.0 / (price * unit)
    if len(cost):
        X[CC] *= size
    p = first_prices(V, X, D, first, col, q, mu)
    worth = 1.0 if price > 0.0 else 0.0
    z, gap, _ = interior(V, X, D, first, col, p, q, z, worth, False, 0.0, 1.0, tolerance, limit)
    if not np.isfinite(gap):
        return none
    x = np.zeros((M, J))
    row_price, time_price = np.zeros(M), np.zeros(M)
    for m in range(M):
        row_price[m] = V[Y, m] * V[ON, m] * (scale[m] / size)
        time_price[m] = V[U, m] / size
        for j in range(J):
            if X[EE, j, m] > 0.0:
                x[m, j] = X[XX, j, m]
    worker_price = p / np.maximum(capacity, 1.0) / size
    return gap, z * unit, x, row_price, worker_price, time_price


@njit(cache=True, error_model="numpy")
def needs(
    gain: np.ndarray,
    slope: np.ndarray,
    floor: np.ndarray,
    fastest: np.ndarray,
    level: float,
    tiny: float,
) -> tuple[bool, np.ndarray]:
    """Find the least fraction of its time in which a job of each class reaches a level.

    Arrays (M,) as in ``solve``; ``fastest`` holds steps/s of one job in its fastest configuration.

    Returns:
        Whether a job's need is above 0 and below ``tiny``; (M,) the fractions, at most ``tiny``,
        which also stands for no need.
    """
    result = np.full(len(gain), tiny)
    found = False
    for m in range(len(gain)):
        target = floor[m] + slope[m] * level
        reach = gain[m] * fastest[m]
        if 0.0 < target < tiny * reach:
            found = True
            result[m] = min(target / reach, tiny)
    return found, result


@njit(cache=True, error_model="numpy")
def zero_level(
    gain: np.ndarray, slope: np.ndarray, floor: np.ndarray, alone: np.ndarray, least: float
) -> float:
    """Return the scale of a level that comes out near 0; see ``solving.discipline.zero_level``.

    Arrays (M,) as in ``solve``; ``alone`` holds steps/s of one job in its fastest configuration of
    its own. The scale is at least ``least``, if a row rises.
    """
    lowest, most, rises = np.inf, np.inf, False
    for m in range(len(gain)):
        if np.isfinite(floor[m]) and slope[m] > 0.0:
            rises = True
            lowest = min(lowest, abs(floor[m]) / slope[m])
            most = min(most, gain[m] * alone[m] / slope[m])
    return max(lowest + 1e-3 * most, least) if rises else 0.0


@njit(cache=True, error_model="numpy")
def fit(x: np.ndarray, count: np.ndarray, demand: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """Scale (M, J) fractions >= 0 down to jobs' time and to the capacity; see ``solve``."""
    M, J = x.shape
    fitted, held = x.copy(), np.zeros(len(capacity))
    for m in range(M):
        time = total(x[m])
        for j in range(J):
            if time > 1.0:
                fitted[m, j] *= 1.0 / time
            for k in range(len(capacity)):
                held[k] += fitted[m, j] * count[m] * demand[m, j, k]
    scale = 1.0
    for k in range(len(capacity)):
        if held[k] > capacity[k]:
            scale = min(scale, capacity[k] / held[k])
    if scale < 1.0:
        fitted *= scale
    return fitted


@njit(cache=True, error_model="numpy")
def examine(
    throughput: np.ndarray,
    demand: np.ndarray,
    usable: np.ndarray,
    count: np.ndarray,
    capacity: np.ndarray,
    gain: np.ndarray,
    slope: np.ndarray,
    floor: np.ndarray,
    cost: np.ndarray,
    price: float,
    least_scale: float,
    raw: np.ndarray,
    level: float,
    row_price: np.ndarray,
    worker_price: np.ndarray,
    noise: float,
    tiny: float,
    gap: float,
    miss: float,
    rounding: float,
) -> tuple[bool, np.ndarray, float, float, float, np.ndarray, float]:
    """Clip and scale an answer so that it is feasible; recompute its value and its bound.

    This is ``solving.discipline.check_solution`` without pairs and with the usual noise, plus the
    verdict.

    Args:
        throughput: (M, J) steps/s of one job; this and all up to ``price`` as in ``solve``.
        demand: (M, J, K) workers of one job.
        usable: (M, J).
        count: (M,) jobs of each class.
        capacity: (K,) workers.
        gain: (M,) factor of the level rows.
        slope: (M,) how fast the floors rise with the level.
        floor: (M,) at level 0; -inf without a row.
        cost: (M, J) of a whole class's time, or (0, J).
        price: of the level.
        least_scale: errors of the level are relative to this, at least.
        raw: (M, J) fractions, nearly feasible.
        level: that they reach.
        row_price: (M,) of the level rows.
        worker_price: (K,) of workers.
        noise: fractions below it are noise.
        tiny: a job that needs less of its time than this has a smaller noise threshold.
        gap: between value and bound, relatively, at most.
        miss: how much of its floor, relatively, a class may miss.
        rounding: the part of the largest numbers to which a difference of them is proven.

    Returns:
        Whether the answer passes and no job has a tiny need; (M, J) fractions; the level reached;
        the value; the bound; (M,) prices of the level rows; the factor of the prices.
    """
    M, J = throughput.shape
    K = len(capacity)
    x = np.zeros((M, J))
    thr, alone, slopes, of_ways = np.zeros(M), np.zeros(M), np.zeros(M), np.zeros(J)
    y, p = np.zeros(M), np.maximum(worker_price, 0.0)
    for m in range(M):
        for j in range(J):
            alone[m] = max(alone[m], throughput[m, j])
            if usable[m, j] and raw[m, j] > noise:
                x[m, j] = raw[m, j]
        if np.isfinite(floor[m]):
            y[m] = max(row_price[m], 0.0)
            slopes[m] = y[m] * slope[m]
    if needs(gain, slope, floor, alone, level, tiny)[0]:
        return False, x, level, 0.0, 0.0, y, 1.0
    x = fit(x, count, demand, capacity)
    for m in range(M):
        for j in range(J):
            of_ways[j] = throughput[m, j] * x[m, j]
        thr[m] = total(of_ways)
    scale = 1.0
    if price > 0.0:
        sloping = total(slopes)
        scale = price / sloping if sloping > 0.0 else 1.0
        level = np.inf
        for m in range(M):
            if slope[m] > 0.0:
                level = min(level, (gain[m] * thr[m] - floor[m]) / slope[m])
    y *= scale
    p *= scale
    value = price * level if price > 0.0 else 0.0
    bound, floors, largest, short = 0.0, 0.0, 0.0, -np.inf
    for k in range(K):
        bound += p[k] * capacity[k]
    for m in range(M):
        profit = 0.0
        for j in range(J):
            if len(cost):
                largest = max(largest, abs(cost[m, j]))
                value += cost[m, j] * x[m, j]
            if not usable[m, j]:
                continue
            rent = 0.0
            for k in range(K):
                rent += demand[m, j, k] * p[k]
            mine = y[m] * gain[m] * throughput[m, j] - rent * count[m]
            if len(cost):
                mine += cost[m, j]
            profit = max(profit, mine)
        bound += profit
        if not np.isfinite(floor[m]):
            continue
        bound -= y[m] * floor[m]
        floors += y[m] * abs(floor[m])
        if slope[m] == 0.0 or price <= 0.0:
            missed = floor[m] - gain[m] * thr[m]
            short = max(short, missed / max(abs(floor[m]), 1e-300))
    size = max(abs(value), abs(bound))
    if price > 0.0:
        size = max(size, price * zero_level(gain, slope, floor, alone, least_scale))
    if len(cost):
        size = max(size, rounding * max(largest, floors))
    stands = np.isfinite(size) and short <= miss and bound - value <= gap * size
    return stands, x, level, value, bound, y, scale
