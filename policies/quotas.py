"""Quotas for policies that state no program: what goes beyond them is cut."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scheduler.domain.allocation import Allocation
    from scheduler.domain.problem import Problem

#: By how much an answer of a solver may be beyond a quota, relatively.
_NOISE = 1e-9


def within_quotas(problem: Problem, answer: Allocation) -> Allocation:
    """Return an allocation that keeps the quotas: jobs under one that is exceeded get less.

    All of them get less in the same proportion; of what can never run under its quota, nothing
    is left. The answer itself where it keeps them.
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
