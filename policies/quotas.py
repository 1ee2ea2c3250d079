"""Quotas for policies that state no program: scale down the jobs that exceed them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scheduler.domain.allocation import Allocation
    from scheduler.domain.problem import Problem

#: How far a solver's answer may exceed a quota, relatively.
_NOISE = 1e-9


def within_quotas(problem: Problem, answer: Allocation) -> Allocation:
    """Return an allocation that keeps the quotas: jobs under an exceeded quota get less.

    All jobs under it get less in the same proportion. Configurations that can never run under their
    quota get 0. If the answer keeps all quotas, it is returned unchanged.
    """
    caps = problem.caps
    if caps is None:
        return answer
    alone = caps.held(caps.group, problem.demand)
    x = np.where((alone <= caps.limit).all(axis=2), answer.x, 0.0)
    groups = caps.group[answer.pair_jobs]
    together = caps.held_by_pairs(
        groups[:, 0], groups[:, 1], problem.table.pair_demand[answer.pair_index]
    )
    pair_x = np.where((together <= caps.limit).all(axis=1), answer.pair_x, 0.0)
    for q in range(caps.size):
        used = float((x * alone[:, :, q]).sum() + pair_x @ together[:, q])
        if used > caps.limit[q] * (1.0 + _NOISE):
            part = caps.limit[q] / used
            x = np.where(alone[:, :, q] > 0, part * x, x)
            pair_x = np.where(together[:, q] > 0, part * pair_x, pair_x)
    same = np.array_equal(x, answer.x) and np.array_equal(pair_x, answer.pair_x)
    return answer if same else replace(answer, x=x, pair_x=pair_x)
