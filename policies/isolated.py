"""Static equal shares, the baseline of every fairness claim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from policies.base import Policy
from policies.quotas import within_quotas
from policies.shares import thriftiest_by_type
from scheduler.domain.allocation import Allocation

if TYPE_CHECKING:
    from scheduler.domain.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Isolated(Policy):
    """Give every job 1/N of every worker type, as if each had its own small cluster.

    Program: none. X_mk = W_k / (N s_m) in the configuration that does most per worker on type k,
    scaled down where a job's fractions sum to more than 1; 0 on types that cannot run it. Weights
    play no part, and nothing is lent to others; whom a quota holds down gets less. Jobs that can
    run nowhere at present are not among the N.

    Source: the isolated baseline of Gavel (Narayanan et al., OSDI 2020, section 7).
    """

    name: ClassVar[str] = "isolated"

    def allocate(self, problem: Problem) -> Allocation:
        """Answer the problem; see the class."""
        rates, choice, more = thriftiest_by_type(problem)
        able = rates.max(axis=1, initial=0.0)[problem.profile] > 0
        sharers = max(int(np.count_nonzero(able)), 1)
        share = problem.capacity / (sharers * problem.scale_factor[:, None])  # (N, K)
        share = share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)
        share = np.where(rates[problem.profile] > 0, share, 0.0)
        x = np.zeros((problem.jobs, problem.table.throughput.shape[1]))
        rows = np.arange(problem.jobs)
        for k, configuration in enumerate(choice[problem.profile].T):
            x[rows, configuration] += share[:, k] / more[problem.profile, k]
        return within_quotas(problem, Allocation.singles(x, solver="formula"))
