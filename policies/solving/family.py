"""Choose the solver for each family of objectives."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from policies.families import FinishTime, MaxMin, WeightedSum
from policies.solving.alpha_fair import solve_alpha_fair
from policies.solving.finish_time import solve_finish_time
from policies.solving.level_then_sum import solve_max_min, solve_weighted_sum
from policies.solving.max_min import water_fill
from scheduler.errors import SolveError

if TYPE_CHECKING:
    from policies.families import Family
    from policies.solving.answers import FamilyAnswer
    from policies.solving.classes import ClassProblem


def solve_family(family: Family, classes: ClassProblem, *, canonical: bool = True) -> FamilyAnswer:
    """Solve a family of objectives.

    Args:
        family: the objective; its arrays have one entry per class.
        classes: rows, capacity and pairs.
        canonical: among the optima of ``MaxMin`` and ``FinishTime``, return one that also maximises
            the sum over jobs of worth * thr (1 / remaining is the worth of ``FinishTime``; jobs
            that need less than 1e-6 of their time count less, as if they needed that), which makes
            the answer Pareto efficient. The value is kept to 1e-7. Jobs that differ only in weight
            share their time in proportion to what each needs at least.

    Returns:
        An answer that is feasible and proven to 1e-6 relative. Jobs that no configuration can run
        get zeros, do not count in the objective, and are named in a warning.

    Raises:
        UnprovenError: no solver's answer passed its checks; it holds the bound.
        SolveError: no solver's answer passed its checks, and no bound is known; or a number of the
            family is NaN.
    """
    able = classes.runnable
    # In a weighted sum a coefficient that is not finite counts as 0.
    for field in () if isinstance(family, WeightedSum) else fields(family):
        values = getattr(family, field.name)
        if isinstance(values, np.ndarray) and np.isnan(values[able]).any():
            raise SolveError(f"'{field.name}' of its family is not a number for every job")
    if isinstance(family, MaxMin) and classes.capped:
        # A job that its quota limits must not limit the other jobs, or decide their shares.
        return water_fill(classes, family.coefficient)
    if isinstance(family, MaxMin):
        return solve_max_min(family, classes, canonical=canonical)
    if isinstance(family, WeightedSum):
        return solve_weighted_sum(family, classes)
    if isinstance(family, FinishTime):
        return solve_finish_time(family, classes, canonical=canonical)
    return solve_alpha_fair(family, classes)
