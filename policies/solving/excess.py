"""How much worse an answer is than the known bound: the check of every fallback answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from policies.families import AlphaFair, FinishTime, MaxMin, WeightedSum
from policies.solving.alpha_fair import most_to_gain, utility
from policies.solving.answers import counted_classes
from policies.solving.finish_time import largest_rho

if TYPE_CHECKING:
    from policies.families import Family
    from policies.solving.classes import ClassProblem
    from scheduler.domain.arrays import BoolArray, FloatArray


def relative_excess(
    family: Family, classes: ClassProblem, bound: float, x: FloatArray, pair_x: FloatArray
) -> float:
    """Return by how much, relatively, an answer is worse than the best bound known.

    Args:
        family: the objective.
        classes: rows and capacity.
        bound: bound on the objective, in the family's units; nan if unknown.
        x: (M, J) single fractions of a feasible answer.
        pair_x: (P,) its pair fractions.

    Returns:
        0 or less for an optimum; nan if no bound is known; inf if the objective is not finite
        because a job receives nothing.
    """
    alone = classes.usable.any(axis=1)  # the cvxpy programs cover only these
    thr = classes.effective_throughput(x, pair_x)
    if isinstance(family, MaxMin):
        counts = counted_classes(classes, family.coefficient)[0] & alone
        level = (np.where(counts, family.coefficient, 0.0) * thr)[counts].min(initial=np.inf)
        return _relative(bound - float(level), bound)
    if isinstance(family, FinishTime):
        counts = counted_classes(classes, family.remaining, family.isolated_time)[0] & alone
        return _relative(largest_rho(family, classes, x, pair_x, counts) - bound, bound)
    if isinstance(family, WeightedSum):
        worth = np.nan_to_num(family.coefficient, posinf=0.0) * classes.count
        total = float(worth @ thr)
        if family.cost is not None:
            total -= float(classes.count @ (family.cost * x).sum(axis=1))
        if family.pair_cost is not None and len(pair_x):
            total -= float(family.pair_cost @ pair_x)
        return _relative(bound - total, bound)
    counts = counted_classes(classes, family.coefficient, family.weight)[0] & alone
    return _of_utility(family, classes, counts, x, pair_x)


def _relative(worse: float, bound: float) -> float:
    if bound == 0.0:
        return np.inf if worse > 0 else 0.0
    return worse / abs(bound)


def _of_utility(
    family: AlphaFair,
    classes: ClassProblem,
    counts: BoolArray,
    x: FloatArray,
    pair_x: FloatArray,
) -> float:
    """Return the possible gain by the answer's own tangent, which is tighter than another's."""
    if not counts.any():
        return 0.0
    value = utility(family, classes, counts, x, pair_x)
    if not np.isfinite(value):
        return np.inf
    size = float((family.weight * classes.count)[counts].sum()) if family.alpha == 1 else abs(value)
    return most_to_gain(family, classes, counts, x, pair_x) / size
