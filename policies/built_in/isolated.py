"""Static equal shares, the baseline of the fairness metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from policies.base import Policy
from policies.quotas import within_quotas
from policies.shares import best_by_type, mixed_part, part_of_cluster
from scheduler.domain.allocation import Allocation

if TYPE_CHECKING:
    from scheduler.domain.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Isolated(Policy):
    """Give every job 1/N of every worker type, as if each had its own small cluster.

    Program: none. X_mk = W_k / (N d_mk) on d_mk workers of type k: the count that does most per
    worker, or a faster one within the job's share W_k / N; of those that the job's quota has room
    for. Scaled down if a job's fractions sum to more than 1, and 0 on types that cannot run it. A
    job that runs on no type alone gets the least W_k / (N d_k) over the types that its gang holds
    d_k workers of, and at most all its time. Weights play no part, and nothing is lent to others;
    a job that a quota limits gets less. Jobs that can run nowhere now are not among the N.

    Source: the isolated baseline of Gavel (Narayanan et al., OSDI 2020, section 7).
    """

    name: ClassVar[str] = "isolated"

    def allocate(self, problem: Problem) -> Allocation:
        """Answer the problem; see the class."""
        share = part_of_cluster(problem)
        rates, choice = best_by_type(problem, share=share)
        jobs, types = np.arange(problem.jobs), len(share)
        demand = problem.demand[jobs[:, None], choice][:, :, :types]  # (N, K, K)
        mixed = np.count_nonzero(demand, axis=2) > 1
        workers = np.where((rates > 0) & ~mixed, demand.sum(axis=2), problem.scale_factor[:, None])
        part = share / workers
        part = part / np.maximum(part.sum(axis=1, keepdims=True), 1.0)
        x = np.zeros((problem.jobs, problem.table.throughput.shape[1]))
        for k, configuration in enumerate(choice.T):
            runs = rates[:, k] > 0
            several = mixed[:, k] & runs
            x[jobs[runs], configuration[runs]] = part[runs, k]
            x[jobs[several], configuration[several]] = mixed_part(problem, demand[:, k])[several]
        return within_quotas(problem, Allocation.singles(x, solver="formula"))
