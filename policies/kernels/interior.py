"""An interior-point method for level programs without pairs, in O(M J K) per iteration.

The program over M classes, with rows scaled by the caller:

    maximise    price z + sum_mj c_mj x_mj + sum_m (utility of s_m in concave rows)
    subject to  sum_j a_mj x_mj - s_m - g_m(z) = 0      dual y_m
                sum_j x_mj + r_m              = 1       dual u_m
                sum_mj D_mjk x_mj + q_k       = 1       dual p_k
                x, s, r, q >= 0                         w, y, u, p >= 0 with w x = ... = mu

Mehrotra's predictor and corrector (SIAM J. Optim. 1992) on the perturbed optimality conditions.
Newton's system has a 2 x 2 block (y_m, u_m) per class that couples to the others only through the K
prices p and the level z, so that it collapses to a K x K system after one pass over the classes.

Layout: vectors over classes are rows of V (one per constant below), matrices over configurations
and classes are slabs of X, so that every inner loop runs over adjacent numbers and is vectorised.
Blocks of classes keep the working set in the first-level cache.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# ruff: noqa: PLR0917, C901, PLR0912, PLR0915, E741 (kernels are long and read as formulas)

BLOCK = 256

# Rows of V, each (M,)
Y, S, U, R = 0, 1, 2, 3  # level dual and slack, time dual and slack
DY, DS, DU, DR = 4, 5, 6, 7  # their steps
IP, IQ, SH = 8, 9, 10  # inverse pivots of y and u, and the shift of a that eliminating u leaves
E1, E2 = 11, 12  # right sides of y (after eliminating u) and of u
GV, GS, GB = 13, 14, 15  # g, its slope and its curvature
ON = 16  # 1 if the class has a level row
TAU = 17  # target of a concave row's s for its y: (weight / y)^(1 / alpha); 0 in others
WT = 18  # weight of a concave row, 0 in others
ISO, AGE, REQ = 19, 20, 21  # finish-time rows: g(z) = REQ / (-z ISO - AGE)
T1, T2, T3, T4 = 22, 23, 24, 25  # scratch
BV = 26  # number of rows; then K rows B1 and K rows B2

# Slabs of X, each (J, M)
XX, WW, DX, DW, TH, RHO = 0, 1, 2, 3, 4, 5
AA, CC, EE = 6, 7, 8  # level row, cost, 1 if usable
RD = 9  # dual residual c + a y - u - D p + w at the start
SLABS = 10

# Without reference counts: every view of a row changes them, and over a few dozen classes they cost
# as much as the arithmetic. Functions that make no arrays do not need them.
_UNCOUNTED = {"cache": True, "error_model": "numpy", "_nrt": False}

# No fastmath: with it a freshly compiled kernel and a cached one differ in the last digits, and
# equal inputs no longer give equal bytes. It saved no measurable time.


@njit(**_UNCOUNTED)
def assemble(
    V: np.ndarray,
    X: np.ndarray,
    D: np.ndarray,
    first: np.ndarray,
    col: np.ndarray,
    left: float,
    alpha: float,
    out: np.ndarray,
) -> None:
    """Build the reduced system and the predictor's right side in one pass.

    Args:
        V: vectors; reads Y, S, U, R, G*, ON, TAU; writes IP, IQ, SH, E1, E2, B rows.
        X: slabs; reads XX, WW, AA, CC, EE; writes TH, RHO.
        D: (L, M) demand of the L (configuration, worker type) patterns that occur.
        first: (J + 1,) where each configuration's patterns start.
        col: (L,) worker type of each pattern.
        left: remaining share of the first dual residual. Newton's steps shrink it by a known
            factor; computing it again would lose the small w in rounding noise.
        alpha: exponent of the concave rows.
        out: (K + 3, at least 3 and K) accumulates K rows of matrix, the column v of the level, the
            right side, and in the last row the level's pivot t, its right side, and sum y g'.
    """
    M = V.shape[1]
    J = X.shape[1]
    K = len(out) - 3
    out[:] = 0.0
    for lo in range(0, M, BLOCK):
        hi = min(lo + BLOCK, M)
        n = hi - lo
        y, s, u, r = V[Y, lo:hi], V[S, lo:hi], V[U, lo:hi], V[R, lo:hi]
        on, tau = V[ON, lo:hi], V[TAU, lo:hi]
        e1, e2 = V[E1, lo:hi], V[E2, lo:hi]
        ip, iq, shift = V[IP, lo:hi], V[IQ, lo:hi], V[SH, lo:hi]
        total, pivot = V[T1, lo:hi], V[T2, lo:hi]
        gs, gb = V[GS, lo:hi], V[GB, lo:hi]
        ds, dr = V[DS, lo:hi], V[DR, lo:hi]
        for i in range(n):
            ds[i] = 0.0
            dr[i] = 0.0
            total[i] = 0.0
            shift[i] = 0.0
            e1[i] = V[GV, lo + i] + tau[i]
            e2[i] = -1.0
        for k in range(2 * K):
            b = V[BV + k, lo:hi]
            for i in range(n):
                b[i] = 0.0
        for j in range(J):
            x, w, a, e = X[XX, j, lo:hi], X[WW, j, lo:hi], X[AA, j, lo:hi], X[EE, j, lo:hi]
            th, rho, rd = X[TH, j, lo:hi], X[RHO, j, lo:hi], X[RD, j, lo:hi]
            dw = X[DW, j, lo:hi]
            for i in range(n):
                dw[i] = 0.0
                th[i] = e[i] * x[i] / w[i]
                rho[i] = left * rd[i] - w[i]
                total[i] += th[i]
                shift[i] += a[i] * th[i]
        for i in range(n):
            # u first and then y: with the time row's multiple taken out of the level row, the
            # steps of x are sums of small numbers. Inverting the 2 x 2 block instead loses every
            # digit if a job's level row and time row bind the same configuration.
            # A row that is off (on = 0) has a = 0 and an identity in its place.
            rest = r[i] / u[i]
            iq[i] = 1.0 / (total[i] + rest)
            shift[i] *= iq[i]
            pivot[i] = on[i] * s[i] / (alpha * y[i]) + (1.0 - on[i]) + rest * shift[i] ** 2
            e1[i] -= shift[i]
        for j in range(J):
            x, w, a, e = X[XX, j, lo:hi], X[WW, j, lo:hi], X[AA, j, lo:hi], X[EE, j, lo:hi]
            th, rho = X[TH, j, lo:hi], X[RHO, j, lo:hi]
            for i in range(n):
                off = a[i] - shift[i]
                both = e[i] * x[i] + th[i] * rho[i]
                pivot[i] += th[i] * off**2
                e1[i] -= off * both
                e2[i] += both
            for l in range(first[j], first[j + 1]):
                d = D[l, lo:hi]
                b1, b2 = V[BV + col[l], lo:hi], V[BV + K + col[l], lo:hi]
                acc = 0.0
                for i in range(n):
                    held = d[i] * th[i]
                    b1[i] += (a[i] - shift[i]) * held
                    b2[i] += held
                    acc += d[i] * (th[i] * rho[i] + e[i] * x[i])
                out[K + 1, col[l]] += acc
                for l2 in range(first[j], l + 1):
                    d2 = D[l2, lo:hi]
                    acc = 0.0
                    for i in range(n):
                        acc += d[i] * d2[i] * th[i]
                    out[col[l], col[l2]] += acc
                    if l2 != l:
                        out[col[l2], col[l]] += acc
        acc_t = 0.0
        acc_f = 0.0
        acc_y = 0.0
        for i in range(n):
            ip[i] = 1.0 / pivot[i]
            e1[i] *= on[i]
            acc_t += gs[i] * gs[i] * ip[i] + y[i] * gb[i]
            acc_f -= gs[i] * (ip[i] * e1[i] + y[i])
            acc_y += gs[i] * y[i]
        out[K + 2, 0] += acc_t
        out[K + 2, 2] += acc_y
        _collect(V, out, K, lo, hi, acc_f)
        for k in range(K):
            b1, b2 = V[BV + k, lo:hi], V[BV + K + k, lo:hi]
            acc = 0.0
            for i in range(n):
                acc += gs[i] * ip[i] * b1[i]
            out[K, k] += acc
            for h in range(k + 1):
                c1, c2 = V[BV + h, lo:hi], V[BV + K + h, lo:hi]
                acc = 0.0
                for i in range(n):
                    acc += ip[i] * b1[i] * c1[i] + iq[i] * b2[i] * c2[i]
                out[k, h] -= acc
                if h != k:
                    out[h, k] -= acc


@njit(**_UNCOUNTED)
def _collect(V: np.ndarray, out: np.ndarray, K: int, lo: int, hi: int, acc_f: float) -> None:
    """Add the contribution of the blocks' right sides E1, E2 to the reduced right side."""
    e1, e2 = V[E1, lo:hi], V[E2, lo:hi]
    ip, iq = V[IP, lo:hi], V[IQ, lo:hi]
    n = hi - lo
    out[K + 2, 1] += acc_f
    for k in range(K):
        b1, b2 = V[BV + k, lo:hi], V[BV + K + k, lo:hi]
        acc = 0.0
        for i in range(n):
            acc += b1[i] * ip[i] * e1[i] - b2[i] * iq[i] * e2[i]
        out[K + 1, k] += acc


@njit(**_UNCOUNTED)
def correct(
    V: np.ndarray,
    X: np.ndarray,
    D: np.ndarray,
    first: np.ndarray,
    col: np.ndarray,
    alpha: float,
    mu: float,
    second: float,
    out: np.ndarray,
) -> None:
    """Add the centring and second-order terms to RHO, E1, E2 and the reduced right side.

    Args:
        V: vectors; reads the predictor's steps.
        X: slabs; reads the predictor's steps.
        D: as in ``assemble``.
        first: as in ``assemble``.
        col: as in ``assemble``.
        alpha: exponent of the concave rows.
        mu: the complementarity to aim at.
        second: factor of the second-order terms.
        out: as in ``assemble``; adds to the right sides.
    """
    M = V.shape[1]
    J = X.shape[1]
    K = len(out) - 3
    for lo in range(0, M, BLOCK):
        hi = min(lo + BLOCK, M)
        n = hi - lo
        on, tau = V[ON, lo:hi], V[TAU, lo:hi]
        y, u = V[Y, lo:hi], V[U, lo:hi]
        dy, ds, du, dr = V[DY, lo:hi], V[DS, lo:hi], V[DU, lo:hi], V[DR, lo:hi]
        add1, add2, old1, old2 = V[T1, lo:hi], V[T2, lo:hi], V[T3, lo:hi], V[T4, lo:hi]
        e1, e2, shift, ip = V[E1, lo:hi], V[E2, lo:hi], V[SH, lo:hi], V[IP, lo:hi]
        for i in range(n):
            aim = mu if tau[i] == 0.0 else 0.0
            turn = second if tau[i] == 0.0 or alpha == 1.0 else 0.0
            old1[i] = (aim - turn * ds[i] * dy[i]) / y[i]
            old2[i] = (mu - second * dr[i] * du[i]) / u[i]
            add1[i] = old1[i] + shift[i] * old2[i]
            add2[i] = old2[i]
        for j in range(J):
            x, a, e = X[XX, j, lo:hi], X[AA, j, lo:hi], X[EE, j, lo:hi]
            dx, dw = X[DX, j, lo:hi], X[DW, j, lo:hi]
            th, rho = X[TH, j, lo:hi], X[RHO, j, lo:hi]
            for i in range(n):
                more = e[i] * (mu - second * dx[i] * dw[i]) / x[i]
                rho[i] += more
                add1[i] -= (a[i] - shift[i]) * th[i] * more
                add2[i] += th[i] * more
                dw[i] = more
                dx[i] = th[i] * more
            for l in range(first[j], first[j + 1]):
                d = D[l, lo:hi]
                acc = 0.0
                for i in range(n):
                    acc += d[i] * dx[i]
                out[K + 1, col[l]] += acc
        acc_f = 0.0
        gs = V[GS, lo:hi]
        for i in range(n):
            add1[i] *= on[i]
            acc_f -= gs[i] * ip[i] * add1[i]
            # the full right sides wait in DY, DU while the additions are collected
            dy[i] = e1[i] + add1[i]
            du[i] = e2[i] + add2[i]
            e1[i] = add1[i]
            e2[i] = add2[i]
        _collect(V, out, K, lo, hi, acc_f)
        for i in range(n):
            e1[i] = dy[i]
            e2[i] = du[i]
            ds[i] = old1[i]
            dr[i] = old2[i]


@njit(**_UNCOUNTED)
def directions(
    V: np.ndarray,
    X: np.ndarray,
    D: np.ndarray,
    first: np.ndarray,
    col: np.ndarray,
    dp: np.ndarray,
    dz: float,
    alpha: float,
    sums: np.ndarray,
) -> None:
    """Substitute back: compute the steps of all class variables, and how long they may be.

    Args:
        V: vectors; DS, DR hold the corrector's targets (or 0); writes DY, DS, DU, DR.
        X: slabs; DW holds the corrector's targets (or 0); writes DX, DW.
        D: as in ``assemble``.
        first: as in ``assemble``.
        col: as in ``assemble``.
        dp: (K,) step of the prices.
        dz: step of the level.
        alpha: exponent of the concave rows.
        sums: (8,) writes the largest -dx/x, the largest -dw/w, the sums of w x, w dx, x dw, dx dw
            over all complementary pairs of linear rows, the sum of c x, and the largest relative
            distance of a concave row from its target.
    """
    M = V.shape[1]
    J = X.shape[1]
    K = len(dp)
    top_p = 0.0
    top_d = 0.0
    s0 = 0.0
    s1 = 0.0
    s2 = 0.0
    s3 = 0.0
    worth = 0.0
    off = 0.0
    for lo in range(0, M, BLOCK):
        hi = min(lo + BLOCK, M)
        n = hi - lo
        y, s, u, r = V[Y, lo:hi], V[S, lo:hi], V[U, lo:hi], V[R, lo:hi]
        on, tau, gs = V[ON, lo:hi], V[TAU, lo:hi], V[GS, lo:hi]
        dy, ds, du, dr = V[DY, lo:hi], V[DS, lo:hi], V[DU, lo:hi], V[DR, lo:hi]
        ip, iq, shift = V[IP, lo:hi], V[IQ, lo:hi], V[SH, lo:hi]
        h1, h2 = V[T1, lo:hi], V[T2, lo:hi]
        for i in range(n):
            h1[i] = V[E1, lo + i] + gs[i] * dz
            h2[i] = V[E2, lo + i]
        for k in range(K):
            b1, b2 = V[BV + k, lo:hi], V[BV + K + k, lo:hi]
            step = dp[k]
            for i in range(n):
                h1[i] += b1[i] * step
                h2[i] -= b2[i] * step
        for i in range(n):
            dy[i] = on[i] * ip[i] * h1[i]
            h2[i] *= iq[i]
            du[i] = shift[i] * dy[i] + h2[i]
            ds[i] = on[i] * (ds[i] + tau[i] - s[i] - s[i] / (alpha * y[i]) * dy[i])
            dr[i] = dr[i] - r[i] - r[i] / u[i] * du[i]
        for i in range(n):
            top_p = max(top_p, -ds[i] / s[i], -dr[i] / r[i])
            top_d = max(top_d, -dy[i] / y[i], -du[i] / u[i])
        for i in range(n):
            f = on[i] if tau[i] == 0.0 else 0.0
            off = max(off, (on[i] - f) * abs(tau[i] - s[i]) / s[i])
            s0 += f * s[i] * y[i] + r[i] * u[i]
            s1 += f * ds[i] * y[i] + dr[i] * u[i]
            s2 += f * s[i] * dy[i] + r[i] * du[i]
            s3 += f * ds[i] * dy[i] + dr[i] * du[i]
        for j in range(J):
            x, w, a, e = X[XX, j, lo:hi], X[WW, j, lo:hi], X[AA, j, lo:hi], X[EE, j, lo:hi]
            dx, dw, th = X[DX, j, lo:hi], X[DW, j, lo:hi], X[TH, j, lo:hi]
            rho, c = X[RHO, j, lo:hi], X[CC, j, lo:hi]
            for i in range(n):
                h1[i] = (a[i] - shift[i]) * dy[i] - h2[i]
            for l in range(first[j], first[j + 1]):
                d = D[l, lo:hi]
                step = dp[col[l]]
                for i in range(n):
                    h1[i] -= d[i] * step
            for i in range(n):
                g = h1[i] + rho[i]
                dx[i] = th[i] * g
                dw[i] = e[i] * (dw[i] - w[i] - g)
            for i in range(n):
                top_p = max(top_p, -dx[i] / x[i])
                top_d = max(top_d, -dw[i] / w[i])
                s0 += e[i] * x[i] * w[i]
                s1 += dx[i] * w[i]
                s2 += e[i] * x[i] * dw[i]
                s3 += dx[i] * dw[i]
                worth += c[i] * x[i]
    sums[0], sums[1], sums[2], sums[3], sums[4], sums[5] = top_p, top_d, s0, s1, s2, s3
    sums[6], sums[7] = worth, off


@njit(**_UNCOUNTED)
def relevel(V: np.ndarray, z: float, finish: bool, alpha: float) -> None:
    """Update g, its slope and curvature, and the targets of concave rows.

    Args:
        V: vectors; reads Y, WT, ISO, AGE, REQ; writes GV, GS, GB (finish-time rows) and TAU.
        z: the level, which is -rho in finish-time rows.
        finish: whether the level rows are finish-time rows.
        alpha: exponent of the concave rows.
    """
    M = V.shape[1]
    if finish:
        iso, age, req, on = V[ISO], V[AGE], V[REQ], V[ON]
        gv, gs, gb = V[GV], V[GS], V[GB]
        for i in range(M):
            span = 1.0 / (-z * iso[i] - age[i])
            gv[i] = on[i] * req[i] * span
            gs[i] = gv[i] * iso[i] * span
            gb[i] = 2.0 * gs[i] * iso[i] * span
    if alpha > 0.0:
        for i in range(M):
            if V[WT, i] > 0.0:
                V[TAU, i] = (V[WT, i] / V[Y, i]) ** (1.0 / alpha)


@njit(**_UNCOUNTED)
def advance(V: np.ndarray, X: np.ndarray, step_p: float, step_d: float) -> None:
    """Take the steps of all class variables."""
    for m in range(V.shape[1]):
        V[Y, m] += step_d * V[DY, m]
        V[U, m] += step_d * V[DU, m]
        V[S, m] += step_p * V[DS, m]
        V[R, m] += step_p * V[DR, m]
    for j in range(X.shape[1]):
        for m in range(V.shape[1]):
            X[XX, j, m] += step_p * X[DX, j, m]
            X[WW, j, m] += step_d * X[DW, j, m]


@njit(**_UNCOUNTED)
def factor(A: np.ndarray) -> bool:
    """Replace a symmetric matrix by its Cholesky factor; False when a number is not finite."""
    n = len(A)
    for i in range(n):
        largest = A[i, i]
        for k in range(i):
            A[i, i] -= A[i, k] ** 2
        if not np.isfinite(A[i, i]):
            return False
        # A type without competition has no curvature left: pin its price by a huge pivot.
        if A[i, i] <= 1e-15 * largest:
            A[i, i] = 1e128
        A[i, i] = np.sqrt(A[i, i])
        for h in range(i + 1, n):
            for k in range(i):
                A[h, i] -= A[h, k] * A[i, k]
            A[h, i] /= A[i, i]
    return True


@njit(**_UNCOUNTED)
def substitute(A: np.ndarray, b: np.ndarray) -> None:
    """Solve with a Cholesky factor, in place."""
    n = len(b)
    for i in range(n):
        for k in range(i):
            b[i] -= A[i, k] * b[k]
        b[i] /= A[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            b[i] -= A[k, i] * b[k]
        b[i] /= A[i, i]


@njit(cache=True, error_model="numpy")
def interior(
    V: np.ndarray,
    X: np.ndarray,
    D: np.ndarray,
    first: np.ndarray,
    col: np.ndarray,
    p: np.ndarray,
    q: np.ndarray,
    z: float,
    price: float,
    finish: bool,
    pole: float,
    alpha: float,
    tolerance: float,
    limit: int,
) -> tuple[float, float, int]:
    """Iterate from a starting point until the gap is closed.

    Args:
        V: vectors; Y, S, U, R hold a positive starting point and the solution afterwards.
        X: slabs; XX, WW hold a positive starting point and the solution afterwards.
        D: (L, M) demand patterns over capacity, counted.
        first: (J + 1,) see ``assemble``.
        col: (L,) see ``assemble``.
        p: (K,) starting prices, and the solution.
        q: (K,) starting slacks of the capacity, and the solution.
        z: starting level.
        price: worth of the level; 0 without one.
        finish: whether level rows are finish-time rows.
        pole: -z must stay above it in finish-time rows.
        alpha: exponent of concave rows.
        tolerance: relative gap to stop at.
        limit: iterations at most.

    Returns:
        The level, the relative gap, and the number of iterations.
    """
    K = len(p)
    M, J = V.shape[1], X.shape[1]
    out = np.zeros((K + 3, max(K, 3)))
    A = np.zeros((K, K))
    sums = np.zeros(8)
    dp = np.zeros(K)
    dq = np.zeros(K)
    extra = np.zeros(K)
    pairs = 0.0
    for m in range(M):
        pairs += 1.0
        if V[ON, m] > 0 and V[WT, m] == 0.0:
            pairs += 1.0
        for j in range(J):
            pairs += X[EE, j, m]
    pairs += K
    concave = V[WT].max() > 0.0
    left_p = 1.0
    left_d = 1.0
    gap = np.inf
    best = np.inf
    stalled = 0
    for iteration in range(limit):
        relevel(V, z, finish, alpha)
        assemble(V, X, D, first, col, left_d, alpha, out)
        t = out[K + 2, 0]
        leveled = price > 0.0 and t > 0.0
        for k in range(K):
            for h in range(K):
                A[k, h] = out[k, h]
                if leveled:
                    A[k, h] += out[K, k] * out[K, h] / t
            A[k, k] += q[k] / p[k]
        if not factor(A):
            return z, np.inf, iteration
        extra[:] = 0.0
        mu = 0.0
        for corrector in range(2):
            if corrector:
                correct(V, X, D, first, col, alpha, mu, 1.0, out)
                for k in range(K):
                    extra[k] = (mu - dq[k] * dp[k]) / p[k]
            f2 = out[K + 2, 1] + price
            for k in range(K):
                dp[k] = out[K + 1, k] - 1.0 + extra[k]
                if leveled:
                    dp[k] += out[K, k] * f2 / t
            substitute(A, dp)
            dz = 0.0
            if leveled:
                dz = f2
                for k in range(K):
                    dz -= out[K, k] * dp[k]
                dz /= t
            directions(V, X, D, first, col, dp, dz, alpha, sums)
            for k in range(K):
                dq[k] = extra[k] - q[k] - q[k] / p[k] * dp[k]
                sums[0] = max(sums[0], -dq[k] / q[k])
                sums[1] = max(sums[1], -dp[k] / p[k])
                sums[2] += q[k] * p[k]
                sums[3] += dq[k] * p[k]
                sums[4] += q[k] * dp[k]
                sums[5] += dq[k] * dp[k]
            reach_p = 1.0 / max(sums[0], 1e-300)
            reach_d = 1.0 / max(sums[1], 1e-300)
            if finish:
                if dz > 0.0:
                    reach_p = min(reach_p, (-z - pole) / dz)
                reach_p = min(reach_p, reach_d)
                reach_d = reach_p
            if corrector == 0:
                size = abs(price * z) + abs(sums[6])
                gap = sums[2] / max(size, 1e-12)
                if concave:
                    gap = max(sums[2] / pairs, sums[7])
                worst = max(left_p, left_d)
                if finish:  # curved rows: the level's dual residual does not shrink by the step
                    worst = max(worst, abs(out[K + 2, 2] - price))
                if not np.isfinite(gap):
                    return z, np.inf, iteration
                if gap <= tolerance and worst <= tolerance * 10:
                    return z, gap, iteration
                if max(gap, worst) < 0.7 * best:
                    best = max(gap, worst)
                    stalled = 0
                else:
                    stalled += 1
                    if stalled > 12:
                        return z, gap, iteration
                a_p = min(1.0, reach_p)
                a_d = min(1.0, reach_d)
                after = sums[2] + a_p * sums[3] + a_d * sums[4] + a_p * a_d * sums[5]
                ratio = max(after, 0.0) / sums[2]
                mu = sums[2] / pairs * ratio**3
        keep = max(0.9, 1.0 - 0.1 * gap) if gap < 1.0 else 0.9
        keep = min(keep, 0.9999)
        step_p = min(1.0, keep * reach_p)
        step_d = min(1.0, keep * reach_d)
        advance(V, X, step_p, step_d)
        for k in range(K):
            p[k] += step_d * dp[k]
            q[k] += step_p * dq[k]
        z += step_p * dz
        if price > 0.0 and not finish:
            for m in range(M):
                V[GV, m] += step_p * dz * V[GS, m]
        left_p *= 1.0 - step_p
        left_d *= 1.0 - step_d
    return z, gap, limit
