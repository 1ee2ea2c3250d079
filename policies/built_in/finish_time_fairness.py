"""Finish-time fairness."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from policies.families import FinishTime
from policies.program import ProgramPolicy

if TYPE_CHECKING:
    from policies.families import Family
    from policies.terms import Terms
    from scheduler.domain.allocation import Allocation
    from scheduler.domain.arrays import FloatArray
    from scheduler.domain.problem import Problem


@dataclass(frozen=True, kw_only=True)
class FinishTimeFairness(ProgramPolicy):
    """No job should finish much later than on its own share of the cluster.

    Program: minimise max over m of rho_m, with
    rho_m = (age_m + remaining_m / thr(m, X)) / (total_m / (w_m thr(m, isolated))):
    the time from arrival to the end, over the time that the whole job takes on 1/N of the cluster.
    A job of weight w is promised an end w times as soon. With weight 1 this is the objective of
    Themis and Gavel, which know no weights; Gavel adds up the isolated time as it goes by, where
    this takes today's N for all of it, so that the answer depends on the problem alone.

    Source: Themis (Mahajan et al., NSDI 2020, section 3); Gavel (Narayanan et al., OSDI 2020,
    section 4.2).
    """

    name: ClassVar[str] = "finish_time_fairness"
    time_dependent: ClassVar[bool] = True
    reads: ClassVar[tuple[str, ...]] = ("remaining_steps", "total_steps", "age_s")

    def objective(self, terms: Terms) -> Any:
        """State the objective; see the class."""
        import cvxpy as cp  # noqa: PLC0415  takes a second to import

        promised = promised_time_s(terms)
        to_go = cp.multiply(terms.remaining_steps / promised, cp.inv_pos(terms.throughput))
        return cp.Minimize(cp.max(terms.age_s / promised + to_go))

    def allocate(self, problem: Problem) -> Allocation:
        """Answer as other programs do, but without a band: one job decides the objective."""
        return replace(super().allocate(problem), follow_exactly=True)

    def family(self, terms: Terms) -> Family:
        """Return the family of the objective."""
        return FinishTime(
            age=terms.age_s, remaining=terms.remaining_steps, isolated_time=promised_time_s(terms)
        )


def promised_time_s(terms: Terms) -> FloatArray:
    """Return (M,) seconds from arrival to the end that a job is entitled to."""
    result: FloatArray = terms.total_steps / (terms.weight * terms.isolated_throughput)
    return result
