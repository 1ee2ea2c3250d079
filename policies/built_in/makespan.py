"""The shortest makespan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from policies.families import MaxMin
from policies.program import ProgramPolicy

if TYPE_CHECKING:
    from policies.families import Family
    from policies.terms import Terms


@dataclass(frozen=True, kw_only=True)
class Makespan(ProgramPolicy):
    """Be done with all present jobs as early as possible.

    Program: minimise max over m of remaining_m / thr(m, X), the seconds until the last job ends;
    that is, maximise the smallest thr(m, X) / remaining_m. Weights play no part.

    Source: Gavel (Narayanan et al., OSDI 2020, section 4.2).
    """

    name: ClassVar[str] = "makespan"
    time_dependent: ClassVar[bool] = True
    reads: ClassVar[tuple[str, ...]] = ("remaining_steps",)

    def objective(self, terms: Terms) -> Any:
        """State the objective; see the class."""
        import cvxpy as cp  # noqa: PLC0415  takes a second to import

        to_go = cp.multiply(terms.remaining_steps, cp.inv_pos(terms.throughput))
        return cp.Minimize(cp.max(to_go))

    def family(self, terms: Terms) -> Family:
        """Return the family of the objective; its value is 1 / makespan."""
        return MaxMin(coefficient=1.0 / terms.remaining_steps)

    def reported(self, value: float) -> float:
        """Return the makespan in seconds."""
        return 1.0 / value if value > 0 else float("inf")
