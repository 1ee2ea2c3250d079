"""Shortest remaining job first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from policies.base import Policy
from policies.greedy import (
    first_come_first_served,
    remaining_time_s,
    serve_in_order,
    usual_way,
)
from policies.parameters import parameter

if TYPE_CHECKING:
    from scheduler.domain.allocation import Allocation
    from scheduler.domain.problem import Problem


@dataclass(frozen=True, kw_only=True)
class ShortestJobFirst(Policy):
    """Serve the jobs with the least time to go first, preempting the others.

    Program: none; X in {0, 1}, greedily by the remaining steps over the throughput on the job's
    fastest workers, divided by its weight. ``gang_power`` > 0 counts gangs as longer: the time is
    multiplied by workers ** gang_power (1: the shortest remaining service first). An elastic job
    then counts with its fastest efficient count.

    An elastic job gets an efficient count first, and more workers if no waiting job can use them;
    see ``serve_in_order``. Its length is that at its fastest count all the same.

    The order is computed again at arrivals and completions: between them a running job only comes
    nearer to its end, so that no waiting job overtakes it.

    Source: the shortest job first of Gavel (Narayanan et al., OSDI 2020, section 4.3); on one
    machine the rule of Schrage (1968), which minimises the mean time in the system.
    """

    name: ClassVar[str] = "shortest_job_first"

    gang_power: float = parameter(
        0.0, ge=0.0, help="Exponent of the scale factor in the length of a job."
    )

    def allocate(self, problem: Problem) -> Allocation:
        """Answer the problem; see the class."""
        length = remaining_time_s(problem) / problem.weight
        if self.gang_power:
            rate, workers = usual_way(problem)
            with np.errstate(divide="ignore"):
                length = problem.remaining_steps / rate / problem.weight * workers**self.gang_power
        return serve_in_order(problem, first_come_first_served(problem, length))
