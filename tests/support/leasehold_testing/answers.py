"""Plain answers to allocation problems: no solver, no optimum, but always feasible."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.allocation import Allocation

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.problem import Problem


def equal_shares(problem: Problem) -> Allocation:
    """Split every job's time over the configurations that fit, scaled down to the capacity."""
    return Allocation.singles(_spread(problem, np.ones(problem.jobs)), solver="equal_shares")


def paired_shares(problem: Problem) -> Allocation:
    """Let neighbours that may share workers spend half of their time as a pair, else alone."""
    jobs, index = _neighbours(problem)
    pair_x = np.full(len(index), 0.5)
    used = pair_x @ problem.table.pair_demand[index]
    # Pairs may use half of each type, so that a share is left for jobs that run alone.
    room = np.divide(0.5 * problem.capacity, used, out=np.ones_like(used), where=used > 0)
    holds = problem.table.pair_demand[index] > 0
    pair_x *= np.where(holds, np.minimum(room, 1.0), 1.0).min(axis=1, initial=1.0)
    alone = np.ones(problem.jobs)
    np.subtract.at(alone, jobs.ravel(), np.repeat(pair_x, 2))
    left = problem.capacity - pair_x @ problem.table.pair_demand[index]
    return Allocation(
        x=_spread(problem, alone, capacity=left),
        pair_jobs=jobs,
        pair_index=index,
        pair_x=pair_x,
        solver="paired_shares",
    )


def _spread(
    problem: Problem, time: FloatArray, *, capacity: FloatArray | None = None
) -> FloatArray:
    """Return (N, J) fractions: each job's time evenly over its configurations that fit."""
    room = problem.capacity if capacity is None else capacity
    fits: BoolArray = (problem.throughput > 0) & (problem.demand <= problem.capacity).all(axis=2)
    ways = np.maximum(fits.sum(axis=1), 1)
    x = fits * (time / ways)[:, None]
    used = np.einsum("nj,njk->k", x, problem.demand)
    scale = np.divide(room, used, out=np.ones_like(used), where=used > 0).clip(max=1.0)
    result: FloatArray = x * np.where(problem.demand > 0, scale, 1.0).min(axis=2)
    return result


def _neighbours(problem: Problem) -> tuple[IntArray, IntArray]:
    """Return (Q, 2) positions and (Q,) pair rows of neighbours in job order that may share."""
    rows = {
        (int(a), int(b)): p
        for p, ((a, b), demand) in enumerate(
            zip(problem.table.pair_profiles, problem.table.pair_demand, strict=True)
        )
        if (demand <= problem.capacity).all()
    }
    jobs: list[tuple[int, int]] = []
    index: list[int] = []
    i = 0
    while i + 1 < problem.jobs:
        first, second = sorted((i, i + 1), key=lambda n: int(problem.profile[n]))
        row = rows.get((int(problem.profile[first]), int(problem.profile[second])))
        if row is not None:
            jobs.append((first, second))
            index.append(row)
            i += 1
        i += 1
    return np.array(jobs, dtype=np.int64).reshape(-1, 2), np.array(index, dtype=np.int64)
