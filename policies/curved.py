"""Alpha fairness over classes by cvxpy and Clarabel: the reference that kernels fall back on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from policies.families import AlphaFair, FamilyAnswer, counted, nothing
from scheduler.errors import SolveError

if TYPE_CHECKING:
    from policies.classes import ClassProblem
    from scheduler.domain.arrays import BoolArray, FloatArray


def solve_alpha_fair(family: AlphaFair, classes: ClassProblem) -> FamilyAnswer:
    """Maximise the sum of utilities; see ``families.solve_family``."""
    counts, warnings = counted(classes, family.coefficient, family.weight)
    if not counts.any():
        return nothing(classes, warnings)
    x, pair_x = _by_cvxpy(family, classes, counts)
    x, pair_x = classes.repair(x, pair_x)
    value = utility(family, classes, counts, x, pair_x)
    if not np.isfinite(value):
        raise SolveError(
            f"alpha fairness of {classes.size} classes gave the value {value!r}: some job receives "
            "nothing; check the problem for throughputs that differ by many orders of magnitude"
        )
    return FamilyAnswer(
        x=x, pair_x=pair_x, value=value, bound=value, solver="clarabel", warnings=warnings
    )


def utility(
    family: AlphaFair,
    classes: ClassProblem,
    counts: BoolArray,
    x: FloatArray,
    pair_x: FloatArray,
) -> float:
    """Return the objective of an allocation."""
    t = (family.coefficient * classes.effective_throughput(x, pair_x))[counts]
    weight = (family.weight * classes.count)[counts]
    with np.errstate(divide="ignore"):
        if family.alpha == 1:
            return float(weight @ np.log(t))
        return float(weight @ t ** (1 - family.alpha)) / (1 - family.alpha)


def _by_cvxpy(
    family: AlphaFair, classes: ClassProblem, counts: BoolArray
) -> tuple[FloatArray, FloatArray]:
    import cvxpy as cp  # noqa: PLC0415 (slow to import)

    m, j, k = classes.demand.shape
    x = cp.Variable((m, j), nonneg=True)
    pairs = len(classes.pair_index)
    pair_x = cp.Variable(pairs, nonneg=True) if pairs else None
    best = np.where(counts, (classes.throughput * family.coefficient[:, None]).max(axis=1), 1.0)
    scale = np.where(best > 0, family.coefficient / np.where(best > 0, best, 1.0), 0.0)
    thr: Any = cp.sum(cp.multiply(classes.throughput * scale[:, None], x), axis=1)
    time: Any = cp.sum(x, axis=1)
    held = (classes.demand * classes.count[:, None, None]).reshape(m * j, k)
    used: Any = held.T @ cp.reshape(x, (m * j,), order="C")
    if pair_x is not None:
        for side in (0, 1):
            member = classes.pair_classes[:, side]
            spread = np.zeros((m, pairs))
            spread[member, np.arange(pairs)] = 1.0 / classes.count[member]
            rate = spread * classes.pair_throughput[:, side] * scale[:, None]
            thr = thr + rate @ pair_x
            time = time + spread @ pair_x
        used = used + classes.pair_demand.T @ pair_x
    t = thr[np.flatnonzero(counts)]
    weight = (family.weight * classes.count)[counts]
    if family.alpha == 1:
        objective: Any = weight @ cp.log(t)
    else:
        weight = weight * best[counts] ** (1 - family.alpha)
        objective = (weight / weight.max()) @ cp.power(t, 1 - family.alpha) / (1 - family.alpha)
    rows = [time <= 1, used / classes.capacity <= 1, cp.multiply(~classes.usable, x) == 0]
    program = cp.Problem(cp.Maximize(objective), rows)
    program.solve(solver=cp.CLARABEL)
    if x.value is None:
        raise SolveError(
            f"Clarabel ended with status '{program.status}' on alpha fairness of {m} classes; "
            "check the problem for extreme weights or throughputs"
        )
    return np.asarray(x.value), np.zeros(0) if pair_x is None else np.asarray(pair_x.value)
