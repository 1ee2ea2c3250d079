"""Families of common objectives; a direct kernel solves each, see ``policies.solving``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from scheduler.domain.arrays import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MaxMin:
    """Maximise the smallest coefficient_m * thr_m.

    Least attained service (Gavel, OSDI'20, section 4.1) has the coefficient
    scale factor / (weight * throughput on an equal share); the makespan (section 4.2) has
    1 / remaining steps, and its value is 1 / makespan.

    Attributes:
        coefficient: (M,) > 0.
        worth: (M,) > 0, of a step/s in the sum that decides among the optima; the coefficient if
            None. A weight belongs in the coefficient alone, since 1 / weight is not an importance.
    """

    coefficient: FloatArray
    worth: FloatArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightedSum:
    """Maximise sum_m count_m (coefficient_m thr_m - sum_j cost_mj x_mj) - sum_p pair_cost_p X_p.

    Attributes:
        coefficient: (M,) >= 0; values that are not finite count as 0.
        cost: (M, J) cost of one job's time in a configuration, or None.
        pair_cost: (P,) cost of one job pair's time, or None.
        required: (M,) steps/s that a job must reach; 0 or -inf if nothing is required. None for
            no requirement at all.
    """

    coefficient: FloatArray
    cost: FloatArray | None = None
    pair_cost: FloatArray | None = None
    required: FloatArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FinishTime:
    """Minimise the largest rho_m = (age_m + remaining_m / thr_m) / isolated_time_m.

    Finish-time fairness (Themis, NSDI'20; Gavel, section 4.2).

    Attributes:
        age: (M,) seconds since arrival, >= 0.
        remaining: (M,) steps to go, > 0.
        isolated_time: (M,) seconds from arrival to the end on an isolated 1/n share, > 0.
    """

    age: FloatArray
    remaining: FloatArray
    isolated_time: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AlphaFair:
    """Maximise sum_m count_m weight_m U(coefficient_m thr_m).

    U(t) = log t for alpha = 1, and t^(1 - alpha) / (1 - alpha) else (Mo and Walrand, 2000).

    Attributes:
        weight: (M,) > 0.
        coefficient: (M,) > 0.
        alpha: >= 0; 0 is the sum, 1 proportional fairness, and larger values approach max-min.
    """

    weight: FloatArray
    coefficient: FloatArray
    alpha: float = 1.0


Family: TypeAlias = MaxMin | WeightedSum | FinishTime | AlphaFair
