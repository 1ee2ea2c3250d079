"""Build the interior-point kernel's arrays for a program, and choose its starting point."""

from __future__ import annotations

import numpy as np
from numba import njit

from policies.kernels.interior import AA, BV, CC, EE, RD, SLABS, WW, XX, R, S, U, Y

# ruff: noqa: C901, PLR0912, PLR0917 (compiled functions take positions, and loop by hand)


@njit(cache=True, error_model="numpy")
def lay_out(
    throughput: np.ndarray,
    demand: np.ndarray,
    usable: np.ndarray,
    count: np.ndarray,
    capacity: np.ndarray,
    gain: np.ndarray,
    near: np.ndarray,
    mix: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Fill the kernel's arrays; x is half of an even split, less on types that are full.

    Args:
        throughput: (M, J) steps/s.
        demand: (M, J, K) workers of one job.
        usable: (M, J).
        count: (M,) jobs.
        capacity: (K,) workers.
        gain: (M,) factor of the level rows.
        near: (M, J) a feasible point to start nearer to, or (0, J).
        mix: the weight of the even split beside ``near``.

    Returns:
        V, X, D (L, M), first (J + 1,), col (L,), q (K,) and the level rows' values (M,).
    """
    M, J = throughput.shape
    K = len(capacity)
    pattern = np.zeros((J, K), dtype=np.bool_)
    for m in range(M):
        for j in range(J):
            for k in range(K):
                if usable[m, j] and demand[m, j, k] > 0:
                    pattern[j, k] = True
    first = np.zeros(J + 1, dtype=np.int64)
    col = np.zeros(pattern.sum(), dtype=np.int64)
    number = 0
    for j in range(J):
        for k in range(K):
            if pattern[j, k]:
                col[number] = k
                number += 1
        first[j + 1] = number
    V = np.zeros((BV + 2 * K, M))
    X = np.zeros((SLABS, J, M))
    D = np.zeros((number, M))
    load = np.zeros(K)
    for m in range(M):
        ways = max(1, usable[m].sum())
        for j in range(J):
            if not usable[m, j]:
                X[XX, j, m] = 1.0
                continue
            X[EE, j, m] = 1.0
            X[XX, j, m] = 0.5 / ways
            X[AA, j, m] = throughput[m, j] * gain[m]
            for i in range(first[j], first[j + 1]):
                D[i, m] = demand[m, j, col[i]] * count[m] / max(capacity[col[i]], 1.0)
                load[col[i]] += D[i, m] * X[XX, j, m]
    q = np.ones(K)
    reached = np.zeros(M)
    for m in range(M):
        rest = 1.0
        for j in range(J):
            if not usable[m, j]:
                continue
            thin = 1.0
            for i in range(first[j], first[j + 1]):
                thin = min(thin, 0.5 / load[col[i]] if load[col[i]] > 0.5 else 1.0)
            x = X[XX, j, m] * thin
            if len(near):
                x = mix * x + (1.0 - mix) * near[m, j]
            X[XX, j, m] = x
            rest -= x
            reached[m] += X[AA, j, m] * x
            for i in range(first[j], first[j + 1]):
                q[col[i]] -= D[i, m] * x
        V[R, m] = rest
        V[Y, m] = 1.0
        V[S, m] = 1.0
    return V, X, D, first, col, q, reached


@njit(cache=True, error_model="numpy")
def first_prices(
    V: np.ndarray,
    X: np.ndarray,
    D: np.ndarray,
    first: np.ndarray,
    col: np.ndarray,
    q: np.ndarray,
    mu: float,
) -> np.ndarray:
    """Choose prices of time and workers that are dual feasible or nearly so; sets U, W and RD.

    Args:
        V: with Y and R set.
        X: with AA, CC, EE and XX set.
        D: see ``lay_out``.
        first: see ``lay_out``.
        col: see ``lay_out``.
        q: (K,) slack of the capacity.
        mu: the complementarity to start at.

    Returns:
        (K,) worker prices.
    """
    J, M = X.shape[1], X.shape[2]
    p = np.full(len(q), 1.0 / len(q))
    for m in range(M):
        most = 0.0
        for j in range(J):
            profit = X[AA, j, m] * V[Y, m] + X[CC, j, m]
            for i in range(first[j], first[j + 1]):
                profit -= D[i, m] * p[col[i]]
            X[RD, j, m] = profit
            most = max(most, profit)
        V[U, m] = mu / V[R, m] + most
        for j in range(J):
            if X[EE, j, m] == 0.0:
                X[WW, j, m] = 1.0
                X[RD, j, m] = 0.0
                continue
            profit = X[RD, j, m] - V[U, m]
            X[WW, j, m] = max(-profit, mu / X[XX, j, m])
            X[RD, j, m] = profit + X[WW, j, m]
    return p
