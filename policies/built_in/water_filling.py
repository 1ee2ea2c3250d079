"""Lexicographic max-min fairness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from policies.base import Policy
from policies.built_in.max_min_fairness import coefficient
from policies.solving.max_min import water_fill
from policies.terms import Terms

if TYPE_CHECKING:
    from scheduler.domain.allocation import Allocation
    from scheduler.domain.problem import Problem


@dataclass(frozen=True, kw_only=True)
class WaterFilling(Policy):
    """Lift the job that is worst off, then the next worst off, and so on to the best.

    Program: the lexicographic maximum of the sorted s_m thr(m, X) / (w_m thr(m, equal share)). All
    jobs rise together; jobs that cannot rise further stay, and the others go on. The value
    is the first level, that of ``max_min_fairness``.

    Source: Gavel (Narayanan et al., OSDI 2020, section 4.3), with one linear program per level
    in place of an integer program.
    """

    name: ClassVar[str] = "water_filling"

    def allocate(self, problem: Problem) -> Allocation:
        """Answer the problem; see the class."""
        terms = Terms.build(problem, reads=(), policy=self.name)
        answer = water_fill(terms.classes, coefficient(terms))
        return terms.classes.expand(
            answer.x,
            answer.pair_x,
            objective=answer.value,
            solver=answer.solver,
            warnings=answer.warnings,
        )
