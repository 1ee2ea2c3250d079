"""The level program: the linear program that all families of objectives reduce to.

    maximise    price * z + sum_mj cost_mj x_mj + sum_p pair_cost_p X_p
    subject to  gain_m thr_m - slope_m z >= floor_m     (rows with a finite floor)
                time of one job of class m     <= 1
                workers of type k in use       <= W_k
                x, X >= 0

z is the common level of all jobs. Max-min fairness has slope 1 and floor 0. The sum of throughputs
has no level rows. A second stage holds the level by a floor and slope 0. Finish-time fairness is a
short sequence of level programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from policies.kernels.pricing import price_pairs

if TYPE_CHECKING:
    from policies.solving.classes import ClassProblem
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LevelProgram:
    """A level program over classes. Letters as in ``ClassProblem``.

    Attributes:
        classes: rows and capacity.
        gain: (M,) factor of each class's throughput, finite and >= 0.
        slope: (M,) how fast a class's floor rises with the level, >= 0.
        floor: (M,) floor at level 0; -inf if a class has no level row.
        cost: (M, J) gain in the objective of a whole class's time in a configuration; None for 0.
        pair_cost: (P,) gain in the objective of one job pair's time; None for 0.
        price: worth of a unit of the level, >= 0; 0 if the program has no level.
        scale: errors of the level are relative to this, if it is more than the level.
    """

    classes: ClassProblem
    gain: FloatArray
    slope: FloatArray
    floor: FloatArray
    cost: FloatArray | None = None
    pair_cost: FloatArray | None = None
    price: float = 0.0
    scale: float = 0.0

    @property
    def leveled(self) -> BoolArray:
        """(M,) whether a class has a level row."""
        result: BoolArray = np.isfinite(self.floor)
        return result

    def value(self, solution: LevelSolution) -> float:
        """Return the objective of a solution."""
        total = self.price * solution.level if self.price else 0.0
        if self.cost is not None:
            total += float((self.cost * solution.x).sum())
        if self.pair_cost is not None and len(solution.pair_x):
            total += float(self.pair_cost @ solution.pair_x)
        return total


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LevelSolution:
    """Primal and dual answer to a level program.

    Attributes:
        x: (M, J) fractions of one job.
        pair_x: (P,) fractions summed over the job pairs of a class pair.
        level: z; 0 without a level.
        row_price: (M,) dual of the level rows, >= 0.
        worker_price: (K,) dual of the capacity, >= 0.
        time_price: (M,) dual of the jobs' time, >= 0; only read if there are pairs.
        solver: name of the solver that gave the answer.
        columns: the class pairs that were offered to the solver; None for all.
    """

    x: FloatArray
    pair_x: FloatArray
    level: float
    row_price: FloatArray
    worker_price: FloatArray
    time_price: FloatArray
    solver: str
    columns: IntArray | None = None


def dual_value(program: LevelProgram, solution: LevelSolution) -> float:
    """Return the bound that the prices prove: the largest worth of workers' and jobs' time.

    For any row prices y >= 0 and worker prices p >= 0 every feasible allocation satisfies

        sum cost x + sum_m y_m gain_m thr_m  <=  sum_k p_k W_k + sum_m u_m,

    with u_m the profit of a class's time. The profits are computed here and not taken from the
    solver, so the bound holds even if the solver is wrong.
    """
    classes = program.classes
    y = np.maximum(solution.row_price, 0.0)
    p = np.maximum(solution.worker_price, 0.0)
    m, j, k = classes.demand.shape
    rent = (classes.demand.reshape(m * j, k) @ p).reshape(m, j) * classes.count[:, None]
    profit = (y * program.gain)[:, None] * classes.throughput - rent
    if program.cost is not None:
        profit = profit + program.cost
    u = np.where(classes.usable, profit, 0.0).max(axis=1, initial=0.0)
    if len(classes.pair_index):
        u = _raise_for_pairs(program, np.maximum(u, solution.time_price), y, p)
    return float(p @ classes.capacity + u.sum())


def _raise_for_pairs(
    program: LevelProgram, u: FloatArray, y: FloatArray, p: FloatArray
) -> FloatArray:
    """Return (M,) profits that also cover every class pair."""
    classes = program.classes
    rows, throughput, rent = classes.pair_prices(p)
    best, _ = price_pairs(
        *(classes.pair_classes, rows, throughput),
        *(rent, y * program.gain / classes.count, u / classes.count),
        np.empty(0) if program.pair_cost is None else program.pair_cost,
        0,
    )
    result: FloatArray = u + np.maximum(best[:, 0], 0.0) * classes.count
    return result
