"""The largest sum of throughputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from policies.families import WeightedSum
from policies.parameters import parameter
from policies.program import ProgramPolicy

if TYPE_CHECKING:
    from policies.families import Family
    from policies.terms import Terms
    from scheduler.domain.arrays import FloatArray


@dataclass(frozen=True, kw_only=True)
class MaxThroughput(ProgramPolicy):
    """Do as many steps per second as possible, regardless of the job.

    Program: maximise the sum over m of w_m thr(m, X) / n_m. The normaliser n_m is 1 (``none``:
    steps of unlike jobs count the same, as in Gavel), the job's throughput on an equal share
    (``equal_share``), or on its fastest workers (``best``). It does not care for fairness: jobs
    may starve.

    Source: Gavel (Narayanan et al., OSDI 2020, section 4.2, maximising total throughput).
    """

    name: ClassVar[str] = "max_throughput"

    normaliser: str = parameter(
        "none",
        choices=("none", "equal_share", "best"),
        help="Divisor of a job's throughput before the sum.",
    )

    def objective(self, terms: Terms) -> Any:
        """State the objective; see the class."""
        return (terms.count * self._coefficient(terms)) @ terms.throughput

    def family(self, terms: Terms) -> Family:
        """Return the family of the objective."""
        return WeightedSum(coefficient=np.nan_to_num(self._coefficient(terms)))

    def _coefficient(self, terms: Terms) -> FloatArray:
        if self.normaliser == "equal_share":
            return terms.weight / terms.equal_share_throughput
        if self.normaliser == "best":
            best = terms.best_throughput
            return terms.weight / np.where(best > 0, best, np.inf)
        return terms.weight
