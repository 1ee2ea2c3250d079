"""Static equal shares, the baseline of every fairness claim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from policies.base import Policy
from policies.quotas import within_quotas
from policies.shares import best_by_type, mixed_part, sharers
from scheduler.domain.allocation import Allocation

if TYPE_CHECKING:
    from scheduler.domain.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Isolated(Policy):
    """Give every job 1/N of every worker type, as if each had its own small cluster.

    Program: none. X_mk = W_k / (N s_m) in the configuration that does most per worker on type k, of
    those that the job's quota has room for; scaled down where a job's fractions sum to more than 1,
    and 0 on types that cannot run it. A job that runs on no type alone gets the least
    W_k / (N d_k) over the types that its gang holds d_k workers of, and at most all its time.
    Weights play no part, and nothing is lent to others; whom a quota holds down gets less. Jobs
    that can run nowhere at present are not among the N.

    Source: the isolated baseline of Gavel (Narayanan et al., OSDI 2020, section 7).
    """

    name: ClassVar[str] = "isolated"

    def allocate(self, problem: Problem) -> Allocation:
        """Answer the problem; see the class."""
        rates, choice = best_by_type(problem, thrifty=True)
        jobs = np.arange(problem.jobs)
        share = problem.capacity / (sharers(problem) * problem.scale_factor[:, None])  # (N, K)
        share = share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)
        x = np.zeros((problem.jobs, problem.table.throughput.shape[1]))
        for k, configuration in enumerate(choice.T):
            demand = problem.demand[jobs, configuration]
            more = np.maximum(demand.sum(axis=1), 1) / problem.scale_factor
            part = np.where(
                np.count_nonzero(demand, axis=1) > 1,
                mixed_part(problem, demand),
                share[:, k] / more,
            )
            runs = rates[:, k] > 0
            x[jobs[runs], configuration[runs]] = part[runs]
        return within_quotas(problem, Allocation.singles(x, solver="formula"))
