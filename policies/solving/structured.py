"""Level programs, finish-time fairness and alpha fairness without pairs: scaling for the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from policies.kernels import interior as ip
from policies.kernels import level as kernel
from policies.kernels.starting import first_prices, lay_out
from policies.solving.level import LevelProgram, LevelSolution

if TYPE_CHECKING:
    from policies.solving.classes import ClassProblem
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray

#: Relative gap at which the kernel stops; the checks ask for 1e-6.
TOLERANCE = 1e-9
#: Above this gap the answer is not worth checking.
ACCEPTABLE = 1e-5
#: Iterations at most; 8 to 25 are usual.
LIMIT = 100
#: How far a start near a known point stays away from it, and from the bounds.
MIX = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class _Start:
    """A scaled program and a starting point.

    Attributes:
        V: the kernel's vectors.
        X: the kernel's slabs.
        D: (L, M) demand over capacity, counted, for the L patterns that occur.
        first: (J + 1,) where each configuration's patterns start.
        col: (L,) worker type of each pattern.
        q: (K,) slack of the capacity at the start.
        reached: (M,) gain * throughput at the start.
    """

    V: FloatArray
    X: FloatArray
    D: FloatArray
    first: IntArray
    col: IntArray
    q: FloatArray
    reached: FloatArray


def _start(classes: ClassProblem, gain: FloatArray) -> _Start:
    """Build the arrays and choose x: half of an even split, less on types that are full.

    Args:
        classes: rows and capacity.
        gain: (M,) factor of the level rows.
    """
    return _Start(
        *lay_out(
            *(classes.throughput, classes.demand, classes.usable, classes.count),
            *(classes.capacity, gain, classes.throughput[:0], MIX),
        )
    )


def _prices(start: _Start, mu: float) -> FloatArray:
    """Choose time and worker prices near complementarity, and set U and W; returns (K,) p."""
    prices: FloatArray = first_prices(
        *(start.V, start.X, start.D, start.first, start.col, start.q, mu),
    )
    return prices


def solve_structured(program: LevelProgram, near: FloatArray | None = None) -> LevelSolution | None:
    """Solve a level program, leaving out its pairs, by the interior-point kernel.

    Args:
        program: the program.
        near: (M, J) a feasible point to start nearer to, or None.

    Returns:
        Primal and dual answer, or None if the kernel did not converge.
    """
    classes = program.classes
    none = classes.throughput[:0]
    gap, level, x, row_price, worker_price, time_price = kernel.solve(
        *(classes.throughput, classes.demand, classes.usable, classes.count, classes.capacity),
        *(program.gain, program.slope, program.floor),
        *(none if program.cost is None else program.cost, none if near is None else near),
        *(program.price, MIX, TOLERANCE, LIMIT),
    )
    if not gap < ACCEPTABLE:
        return None
    return LevelSolution(
        x=x,
        pair_x=np.zeros(0),
        level=level,
        row_price=row_price,
        worker_price=worker_price,
        time_price=time_price,
        solver="interior",
    )


def solve_structured_finish(
    age: FloatArray,
    remaining: FloatArray,
    isolated_time: FloatArray,
    classes: ClassProblem,
    counts: BoolArray,
) -> tuple[LevelSolution, float] | None:
    """Minimise the largest rho in one solve: the kernel handles the curved rows directly.

    Args:
        age: (M,) as in ``families.FinishTime``.
        remaining: (M,) as in ``families.FinishTime``.
        isolated_time: (M,) as in ``families.FinishTime``.
        classes: rows and capacity.
        counts: (M,) which classes count.

    Returns:
        The solution, with row prices of the rows thr_m >= remaining / (rho isolated_time - age),
        and rho; or None if the kernel did not converge.
    """
    start = _start(classes, np.ones(classes.size))
    V, X = start.V, start.X
    safe = np.where(counts, isolated_time, 1.0)
    scale = np.where(counts, 1.0 / np.where(counts, start.reached, 1.0), 0.0)
    relative_age = np.where(counts, age / safe, 0.0)
    needed = np.where(counts, remaining / safe, 0.0) * scale
    rho = 2.0 * float((relative_age + needed).max())
    X[ip.AA] *= scale
    V[ip.ON] = counts
    V[ip.ISO], V[ip.AGE], V[ip.REQ] = rho, relative_age, needed
    ip.relevel(V, -1.0, True, 1.0)
    s = np.where(counts, 1.0 - V[ip.GV], 1.0)
    V[ip.S] = s
    mu = 1.0 / float((V[ip.GS] / s).sum())
    V[ip.Y] = mu / s
    p = _prices(start, mu)
    pole = float(relative_age.max()) / rho
    z, gap, _ = ip.interior(
        *(V, X, start.D, start.first, start.col, p, start.q),
        *(-1.0, 1.0, True, pole, 1.0, TOLERANCE, LIMIT),
    )
    if not gap < ACCEPTABLE:
        return None
    return _solution(classes, start, p, scale=scale * rho, size=1.0 / rho), -z * rho


def solve_structured_utility(
    weight: FloatArray,
    coefficient: FloatArray,
    alpha: float,
    classes: ClassProblem,
    counts: BoolArray,
) -> LevelSolution | None:
    """Maximise sum_m weight_m U(coefficient_m thr_m); see ``families.AlphaFair``.

    Args:
        weight: (M,) counted: of a whole class.
        coefficient: (M,) > 0 if a class counts.
        alpha: > 0.
        classes: rows and capacity.
        counts: (M,) which classes count.

    Returns:
        The solution, with row prices y of coefficient_m thr_m, or None without convergence.
    """
    gain = np.where(counts, coefficient, 0.0)
    start = _start(classes, gain)
    V, X = start.V, start.X
    reached = np.where(counts, start.reached, 1.0)
    scale = np.where(counts, 1.0 / reached, 0.0)
    scaled = np.where(counts, weight * reached ** (1.0 - alpha), 0.0)
    size = 1.0 / float(scaled.sum())
    X[ip.AA] *= scale
    V[ip.ON] = counts
    V[ip.WT] = scaled * size
    V[ip.Y] = np.where(counts, V[ip.WT], 1.0)
    p = _prices(start, 1.0 / (float(X[ip.EE].sum()) + classes.size))
    _, gap, _ = ip.interior(
        *(V, X, start.D, start.first, start.col, p, start.q),
        *(0.0, 0.0, False, 0.0, alpha, TOLERANCE, LIMIT),
    )
    if not gap < ACCEPTABLE:
        return None
    return _solution(classes, start, p, scale=scale / size, size=size)


def _solution(
    classes: ClassProblem,
    start: _Start,
    p: FloatArray,
    *,
    scale: FloatArray,
    size: float,
) -> LevelSolution:
    """Read the kernel's answer in the units of the program.

    Args:
        classes: the classes.
        start: the arrays, which now hold the answer.
        p: (K,) prices.
        scale: (M,) row scale over objective scale.
        size: objective scale.
    """
    V, X = start.V, start.X
    return LevelSolution(
        x=np.where(X[ip.EE] > 0, X[ip.XX], 0.0).T.copy(),
        pair_x=np.zeros(0),
        level=0.0,
        row_price=V[ip.Y] * V[ip.ON] * scale,
        worker_price=p / np.maximum(classes.capacity, 1.0) / size,
        time_price=V[ip.U] / size,
        solver="interior",
    )
