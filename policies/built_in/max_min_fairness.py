"""Max-min fairness over normalised throughput: least attained service."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from policies.families import MaxMin
from policies.program import ProgramPolicy
from policies.shares import usage_factors, usage_half_life

if TYPE_CHECKING:
    from policies.families import Family
    from policies.terms import Terms
    from scheduler.domain.allocation import Allocation
    from scheduler.domain.arrays import FloatArray
    from scheduler.domain.problem import Problem


@dataclass(frozen=True, kw_only=True)
class MaxMinFairness(ProgramPolicy):
    """Lift the job that is worst off: maximise the smallest normalised throughput.

    Program: maximise min over m of s_m thr(m, X) / (w_m thr(m, equal share)), with s_m the scale
    factor, w_m the weight, and the equal share W_k / N of every worker type (scaled to sum to at
    most 1). The value is at least 1 for single-worker jobs of weight 1, since the equal share
    itself is feasible. Among the optima the one that also maximises the sum of
    s_m thr(m, X) / thr(m, equal share) is taken, without weights; jobs that differ in weight alone
    share what they get of it in proportion to weight.

    With a half-life, w_m is multiplied by the factor of the job's entity: jobs of an entity that
    has recently used more than its share count for less, see ``scheduler.domain.fair_share``.

    Source: the least-attained-service objective of Gavel (Narayanan et al., OSDI 2020, section
    4.1).
    """

    name: ClassVar[str] = "max_min_fairness"

    usage_half_life_s: float = usage_half_life()

    def __post_init__(self) -> None:
        """Make the policy time-dependent if past usage decays."""
        super().__post_init__()
        if self.usage_half_life_s:
            object.__setattr__(self, "time_dependent", True)

    def allocate(self, problem: Problem) -> Allocation:
        """Answer the problem, with weights adjusted by past usage; see the class."""
        if problem.entity_usage_s is not None:
            by_entity = usage_factors(problem, [entity.weight for entity in problem.entities])
            problem = replace(problem, weight=problem.weight * by_entity[problem.entity])
        return super().allocate(problem)

    def objective(self, terms: Terms) -> Any:
        """State the objective; see the class."""
        import cvxpy as cp  # noqa: PLC0415  takes a second to import

        return cp.min(cp.multiply(coefficient(terms), terms.throughput))

    def family(self, terms: Terms) -> Family:
        """Return the family of the objective."""
        heaviest = terms.weight.max(initial=0.0)  # equal weights keep the coefficient
        worth = terms.scale_factor / (heaviest * terms.equal_share_throughput)
        return MaxMin(coefficient=coefficient(terms), worth=worth)


def coefficient(terms: Terms) -> FloatArray:
    """Return (M,) the coefficient of a class's steps/s in units of its weighted equal share."""
    result: FloatArray = terms.scale_factor / (terms.weight * terms.equal_share_throughput)
    return result
