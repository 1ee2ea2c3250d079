"""A policy of your own: the least total delay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import cvxpy as cp

from policies.parameters import parameter
from policies.program import ProgramPolicy

if TYPE_CHECKING:
    from policies.terms import Terms


@dataclass(frozen=True, kw_only=True)
class TotalDelay(ProgramPolicy):
    """Minimise the weighted sum of the times that the jobs still need.

    Program: minimise the sum over m of w_m (remaining_m / thr(m, X)) ^ power.
    """

    name: ClassVar[str] = "total_delay"
    time_dependent: ClassVar[bool] = True
    reads: ClassVar[tuple[str, ...]] = ("remaining_steps",)

    power: float = parameter(1.0, gt=0.0, le=4.0, help="Above 1, long delays count for more.")

    def objective(self, terms: Terms) -> Any:
        """State the objective; see the class."""
        mean = (terms.count @ terms.remaining_steps) / terms.count.sum()
        pace = mean / terms.remaining_steps  # keeps the numbers near 1
        speed = cp.multiply(pace, terms.throughput)
        return cp.Minimize((terms.weight * terms.count) @ cp.power(speed, -self.power))
