"""What answers of policies hold of quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scheduler.domain.allocation import Allocation
    from scheduler.domain.arrays import FloatArray
    from scheduler.domain.problem import Problem


def held_of_quotas(problem: Problem, answer: Allocation) -> FloatArray:
    """Return (Q,) workers that an allocation holds of each quota on average."""
    caps = problem.caps
    if caps is None:
        return np.zeros(0)
    used: FloatArray = np.einsum("nj,njq->q", answer.x, caps.held(caps.group, problem.demand))
    if len(answer.pair_x):
        groups = caps.group[answer.pair_jobs]
        demand = problem.table.pair_demand[answer.pair_index]
        used = used + answer.pair_x @ caps.held_by_pairs(groups[:, 0], groups[:, 1], demand)
    return used
