"""Tiresias: least attained service in discrete queues."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from policies.base import Policy
from policies.greedy import first_come_first_served, serve_in_order, usual_way
from policies.parameters import parameter
from scheduler.errors import ParameterError

if TYPE_CHECKING:
    from scheduler.domain.allocation import Allocation
    from scheduler.domain.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Tiresias(Policy):
    """Serve jobs with little attained service first, without knowing how long they are.

    Program: none; X in {0, 1}, greedily. A job's service is its workers times the time that it held
    them. Thresholds on it (over the weight) cut the jobs into queues; lower queues go first and
    each queue is first in, first out, so that jobs of one queue do not preempt each other in turns.
    ``promote`` keeps long jobs from starving: a job that has waited longer than that many times the
    time it has run goes back to the first queue.

    An elastic job gets an efficient count first, and more workers if no waiting job can use them;
    see ``serve_in_order``. Its service is that of the workers that it really held. The time it has
    run is taken as if it had held its fastest efficient count.

    Source: the discretised two-dimensional least-attained-service policy of Tiresias (Gu et al.,
    NSDI 2019, section 3.3). The default thresholds, one and ten worker-hours, are ours.
    """

    name: ClassVar[str] = "tiresias"
    time_dependent: ClassVar[bool] = True

    thresholds_worker_s: tuple[float, ...] = parameter(
        (3600.0, 36000.0), gt=0.0, help="Worker-seconds at which a job moves to the next queue."
    )
    promote: float | None = parameter(
        None, gt=0.0, help="Waiting time over run time at which a job goes back to the first queue."
    )

    def __post_init__(self) -> None:
        """Refuse thresholds that do not ascend."""
        super().__post_init__()
        if any(a >= b for a, b in pairwise(self.thresholds_worker_s)):
            raise ParameterError(
                f"policy 'tiresias': parameter 'thresholds_worker_s' has the value "
                f"{self.thresholds_worker_s!r}; the numbers must ascend"
            )

    def allocate(self, problem: Problem) -> Allocation:
        """Answer the problem; see the class."""
        service = problem.attained_worker_s / problem.weight
        queue = np.searchsorted(self.thresholds_worker_s, service, side="right").astype(float)
        if self.promote is not None:
            run_s = problem.attained_worker_s / usual_way(problem)[1]
            queue[problem.age_s - run_s > self.promote * run_s] = 0.0
        order = first_come_first_served(problem, queue)
        return serve_in_order(problem, order, may_use_remaining_work=False)
