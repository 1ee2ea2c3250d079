"""Alpha fairness over classes: by the kernel, or by cvxpy and Clarabel if there are pairs."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from policies.families import AlphaFair, WeightedSum
from policies.solving.answers import FamilyAnswer, counted_classes, empty_answer
from policies.solving.discipline import GAP
from policies.solving.level import LevelProgram, dual_value
from policies.solving.level_then_sum import solve_weighted_sum
from policies.solving.structured import solve_structured_utility
from scheduler.errors import SolveError

if TYPE_CHECKING:
    from policies.solving.classes import ClassProblem
    from scheduler.domain.arrays import BoolArray, FloatArray

#: Largest relative gap of an answer of the conic solver; the tangent proves less than it attains.
LOOSE = 1e-2
#: Gaps beyond this produce a warning.
USUAL = 1e-4
UNPROVEN = (
    "the utilities are proven to {:.2g} % of the optimum, and no nearer; check the problem for "
    "throughputs or weights orders of magnitude apart"
)


def solve_alpha_fair(family: AlphaFair, classes: ClassProblem) -> FamilyAnswer:
    """Maximise the sum of utilities; see ``solve_family``."""
    if family.alpha == 0:
        return solve_weighted_sum(
            WeightedSum(coefficient=family.weight * family.coefficient), classes
        )
    counts, notes = counted_classes(classes, family.coefficient, family.weight)
    if not counts.any():
        return empty_answer(classes, notes)
    if not len(classes.pair_index):
        answer = _directly(family, classes, counts, notes)
        if answer is not None:
            return answer
    near = _near(family, classes, counts)
    x, pair_x = classes.repair(*_by_cvxpy(family, classes, counts, near))
    value = utility(family, classes, counts, x, pair_x)
    if not np.isfinite(value):
        raise SolveError(
            f"alpha fairness of {classes.size} classes gave the value {value!r}: some job receives "
            "nothing; check the problem for throughputs that differ by many orders of magnitude"
        )
    bound = value + most_to_gain(family, classes, counts, x, pair_x)
    size = float((family.weight * classes.count)[counts].sum()) if family.alpha == 1 else abs(value)
    if bound - value > LOOSE * size:
        raise SolveError(
            f"alpha fairness of {classes.size} classes stopped at {value:.9g} with a bound of "
            f"{bound:.9g}; check the problem for throughputs or weights orders of magnitude apart"
        )
    if bound - value > USUAL * size:
        notes += (UNPROVEN.format(100 * (bound - value) / size),)
    return FamilyAnswer(
        x=x, pair_x=pair_x, value=value, bound=bound, solver="clarabel", warnings=notes
    )


def most_to_gain(
    family: AlphaFair,
    classes: ClassProblem,
    counts: BoolArray,
    x: FloatArray,
    pair_x: FloatArray,
) -> float:
    """Return by how much any allocation can be better, by the tangent of the objective here.

    The tangent of the concave objective is a weighted sum of throughputs. A linear program finds
    its largest value.
    """
    weight = np.where(counts, family.weight * classes.count, 0.0)
    t = np.where(counts, family.coefficient * classes.effective_throughput(x, pair_x), 1.0)
    at = t
    if family.alpha < 1:  # a job that adds almost nothing here has a useless tangent
        least = 1e-8 * float(weight @ t ** (1 - family.alpha)) / len(weight)
        safe = np.where(counts, weight, 1.0)
        at = np.maximum(t, (least / safe) ** (1 / (1 - family.alpha)))
    slope = np.where(counts, family.weight * family.coefficient * at**-family.alpha, 0.0)
    best = solve_weighted_sum(WeightedSum(coefficient=slope), classes)
    above = _utility(weight, at, family.alpha) - _utility(weight, t, family.alpha)
    return max(0.0, best.bound + above - float(weight @ (at ** (1 - family.alpha))))


def _directly(
    family: AlphaFair, classes: ClassProblem, counts: BoolArray, notes: tuple[str, ...]
) -> FamilyAnswer | None:
    """Solve with the kernel, and prove its answer by its prices; None if that fails."""
    weight = family.weight * classes.count
    solution = solve_structured_utility(weight, family.coefficient, family.alpha, classes, counts)
    if solution is None:
        return None
    x, pair_x = classes.repair(solution.x, solution.pair_x)
    value = utility(family, classes, counts, x, pair_x)
    priced = LevelProgram(
        classes=classes,
        gain=np.where(counts, family.coefficient, 0.0),
        slope=np.zeros(classes.size),
        floor=np.zeros(classes.size),
    )
    y, w = solution.row_price[counts], weight[counts]
    t = (w / y) ** (1.0 / family.alpha)
    bound = dual_value(priced, solution) - float(y @ t) + _utility(w, t, family.alpha)
    size = float(w.sum()) if family.alpha == 1 else abs(value)
    if not bound - value <= GAP * size:
        return None
    return FamilyAnswer(
        x=x, pair_x=pair_x, value=value, bound=bound, solver=solution.solver, warnings=notes
    )


def _utility(weight: FloatArray, t: FloatArray, alpha: float) -> float:
    with np.errstate(divide="ignore"):
        if alpha == 1:
            return float(weight @ np.log(t))
        return float(weight @ t ** (1 - alpha)) / (1 - alpha)


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
    return _utility(weight, t, family.alpha)


def _near(family: AlphaFair, classes: ClassProblem, counts: BoolArray) -> FloatArray:
    """Return (M,) steps/s near the optimum: that without pairs, or else the largest possible."""
    weight = family.weight * classes.count
    alone = counts & classes.usable.any(axis=1)
    if not alone.any():
        return classes.fastest
    found = solve_structured_utility(weight, family.coefficient, family.alpha, classes, alone)
    if found is None:
        return classes.fastest
    thr = classes.effective_throughput(*classes.repair(found.x, np.zeros(len(classes.pair_index))))
    return np.where(thr > 0, thr, classes.fastest)


def _by_cvxpy(
    family: AlphaFair, classes: ClassProblem, counts: BoolArray, near: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Solve with Clarabel, in units of (M,) steps/s near the optimum for better precision."""
    import cvxpy as cp  # noqa: PLC0415 (slow to import)

    m, j, k = classes.demand.shape
    x = cp.Variable((m, j), nonneg=True)
    pairs = len(classes.pair_index)
    pair_x = cp.Variable(pairs, nonneg=True) if pairs else None
    best = np.where(counts, near * family.coefficient, 1.0)
    scale = np.where(counts, 1.0 / np.where(counts, near, 1.0), 0.0)
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
    # At its default of 1e-8 the utility comes out 1e-5 short of the optimum.
    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-10)
    try:
        with warnings.catch_warnings():  # "may be inaccurate": the caller checks the gap
            warnings.simplefilter("ignore")
            program.solve(solver=cp.CLARABEL, **tight)
    except cp.error.SolverError as error:
        raise SolveError(f"Clarabel failed on alpha fairness of {m} classes: {error}") from None
    if x.value is None:
        raise SolveError(
            f"Clarabel ended with status '{program.status}' on alpha fairness of {m} classes; "
            "check the problem for extreme weights or throughputs"
        )
    return np.asarray(x.value), np.zeros(0) if pair_x is None else np.asarray(pair_x.value)
