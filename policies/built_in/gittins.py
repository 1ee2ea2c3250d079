"""The Gittins index: serve the job that is most likely to finish per unit of service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from policies.base import Policy
from policies.greedy import first_come_first_served, serve_in_order
from policies.parameters import parameter

if TYPE_CHECKING:
    from scheduler.domain.allocation import Allocation
    from scheduler.domain.arrays import FloatArray
    from scheduler.domain.problem import Problem

#: Quantiles to which a distribution is reduced; the index then costs N x 64 operations.
QUANTILES = 64
#: (8,) worker-seconds, each as likely as the service of a completed job: from two minutes to a
#: month and a half, evenly on a logarithmic scale.
PRIOR = np.geomspace(120.0, 4e6, 8)


@dataclass(frozen=True, kw_only=True)
class Gittins(Policy):
    """Serve first the job with the highest chance of finishing per unit of further service.

    Program: none; X in {0, 1}, greedily by the Gittins index. With S the service that a job needs
    in all (worker-seconds) and a the service attained,
    G(a) = max over d > 0 of P(S <= a + d | S > a) / E[min(S - a, d) | S > a].
    No job's length is looked at. The distribution of S is ``service_worker_s`` if it is given,
    else that of the jobs that completed last, beside ``PRIOR`` as if so many more had. It is
    log-uniform, so that the job with the least attained service goes first until enough have
    completed. Attained service is rounded down to multiples of ``quantum_worker_s`` so that equal
    jobs do not preempt each other in turns.

    An elastic job gets an efficient count first, and more workers if no waiting job can use them;
    see ``serve_in_order``. Its service is that of the workers that it really held.

    Source: the two-dimensional Gittins index of Tiresias (Gu et al., NSDI 2019, section 3.3), after
    Gittins (1979).
    """

    name: ClassVar[str] = "gittins"
    time_dependent: ClassVar[bool] = True

    service_worker_s: tuple[float, ...] = parameter(
        (),
        gt=0.0,
        help="A sample of the worker-seconds that jobs need; none: those of completed jobs.",
    )
    quantum_worker_s: float = parameter(
        3600.0, gt=0.0, help="Worker-seconds between two looks at a job's index."
    )

    def allocate(self, problem: Problem) -> Allocation:
        """Answer the problem; see the class."""
        attained = np.floor(problem.attained_worker_s / self.quantum_worker_s)
        index = gittins_index(attained * self.quantum_worker_s, self._sample(problem))
        order = first_come_first_served(problem, -index * problem.weight)
        return serve_in_order(problem, order, may_use_remaining_work=False)

    def _sample(self, problem: Problem) -> FloatArray:
        """Return (S,) the distribution of service, ascending, at most ``QUANTILES`` values."""
        sample = np.array(self.service_worker_s)
        if not len(sample):
            completed = problem.completed_worker_s
            sample = PRIOR if completed is None else np.concatenate((PRIOR, completed))
        if len(sample) > QUANTILES:
            middle = (np.arange(QUANTILES) + 0.5) / QUANTILES
            sample = np.quantile(sample, middle, method="inverted_cdf")
        return np.sort(sample)


def gittins_index(attained: FloatArray, sample: FloatArray) -> FloatArray:
    """Return (N,) the Gittins index of jobs under an empirical distribution.

    Args:
        attained: (N,) service received.
        sample: (S,) equally likely services, ascending.

    Returns:
        Chance of finishing per unit of service, 1 / worker-seconds; 0 beyond the largest sample.
    """
    excess = sample - attained[:, None]  # (N, S)
    alive = excess > 0
    finished = np.cumsum(alive, axis=1)
    left = finished[:, -1:] - finished if len(sample) else finished
    excess = np.where(alive, excess, 0.0)
    served = np.cumsum(excess, axis=1) + left * excess
    ratio = np.divide(finished, served, out=np.zeros_like(excess), where=alive)
    result: FloatArray = ratio.max(axis=1, initial=0.0)
    return result
