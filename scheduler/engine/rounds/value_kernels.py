"""Compiled loops over candidates: the value of each in a round, and the entries of each job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray


@njit(cache=True, error_model="numpy")
def worth_of_round(
    first: IntArray,
    second: IntArray,
    held: BoolArray,
    always: BoolArray,
    deficit_s: FloatArray,
    workers: IntArray,
    left_s: FloatArray,
    restart_s: FloatArray,
    length_s: float,
    keep_bonus_s: float,
    head_start_s: float,
    most_s: float,
    least_s: float,
    granted: float,
    trace_s: float,
    least_urgent: float,
) -> tuple[BoolArray, FloatArray, FloatArray, FloatArray]:
    """Rate candidates by the rules of ``urgency.rate_candidates``.

    Args:
        first: (C,) row of the (first) member.
        second: (C,) row of the second member, -1 for a single job.
        held: (C,) whether it runs now.
        always: (C,) whether X gives it nearly all the time.
        deficit_s: (C,) seconds by which it would lag behind X.
        workers: (C,) workers that it takes.
        left_s: (N,) seconds that jobs are expected to go on.
        restart_s: (N,) seconds that each would lose by moving.
        length_s: seconds of the round.
        keep_bonus_s: credit for candidates that run now.
        head_start_s: credit for candidates to which X gives nearly all the time.
        most_s: a candidate with a larger lag is urgent, however much work it has left.
        least_s: a candidate is also urgent if it lags by more than this and ``granted`` together.
        granted: seconds of lag that are allowed for each second of work left.
        trace_s: smaller lags count as 0.
        least_urgent: least value of a worker of an urgent candidate.

    Returns:
        (C,) urgent candidates; (C,) seconds of credit; (C,) seconds of lag with that credit; (C,)
        value of the round to each.
    """
    count = len(first)
    urgent = np.zeros(count, dtype=np.bool_)
    bonus_s, lag_s, value = np.zeros(count), np.zeros(count), np.zeros(count)
    for c in range(count):
        kept_s = keep_bonus_s + min(restart_s[first[c]], length_s) if held[c] else 0.0
        ahead_s = head_start_s if always[c] else 0.0
        work_s = left_s[first[c]]
        if second[c] >= 0:
            work_s = min(work_s, left_s[second[c]])
        allowed_s = min(most_s, least_s + granted * work_s) + trace_s
        urgent[c] = always[c] or deficit_s[c] > allowed_s
        bonus_s[c] = kept_s + ahead_s
        lag_s[c] = deficit_s[c] + bonus_s[c]
        if urgent[c]:
            # At an equal lag a job with less work left is more urgent: it has less time left.
            late = max(deficit_s[c] - allowed_s + ahead_s, 0.0) / length_s
            value[c] = workers[c] * (least_urgent + late)
        else:
            value[c] = length_s / max(work_s, length_s)
        value[c] *= 1.0 + kept_s / length_s
    return urgent, bonus_s, lag_s, value


@njit(cache=True)
def _may_run(
    first: int, second: int, demand: IntArray, value: float, free: IntArray, busy: BoolArray
) -> bool:
    if not value > 0.0 or busy[first] or (second >= 0 and busy[second]):
        return False
    for k in range(len(demand)):  # numba compiles no generators
        if demand[k] > free[k]:
            return False
    return True


@njit(cache=True)
def entries_of_jobs(
    first: IntArray,
    second: IntArray,
    demand: IntArray,
    value: FloatArray,
    free: IntArray,
    busy: BoolArray,
) -> tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray, FloatArray]:
    """List the entries of each job, in order of the jobs; each member of a pair has half of it.

    Args:
        first: (C,) row of the (first) member of each candidate.
        second: (C,) row of the second member, -1 for a single job.
        demand: (C, K) workers.
        value: (C,) value of each; candidates of value 0 are left out.
        free: (K,) free workers.
        busy: (N,) rows that run already.

    Returns:
        Candidates that can run; (E,) position of each entry among them; (G + 1,) first entry of
        each job that has any, then E; (E,) part of the candidate that an entry is; (E,) its value;
        (E, K) its workers.
    """
    columns = np.empty(len(first), dtype=np.int64)
    start = np.zeros(len(busy) + 1, dtype=np.int64)
    able = 0
    for c in range(len(first)):
        if not _may_run(first[c], second[c], demand[c], value[c], free, busy):
            continue
        columns[able] = c
        able += 1
        start[first[c] + 1] += 1
        if second[c] >= 0:
            start[second[c] + 1] += 1
    begin = np.zeros(len(start), dtype=np.int64)
    jobs = 0
    for row in range(len(busy)):
        if start[row + 1] > 0:
            jobs += 1
            begin[jobs] = begin[jobs - 1] + start[row + 1]
        start[row + 1] += start[row]
    count = begin[jobs]
    entry, part = np.empty(count, dtype=np.int64), np.empty(count)
    worth, takes = np.empty(count), np.empty((count, demand.shape[1]))
    for second_members in (False, True):
        for at in range(able):
            c = columns[at]
            if second_members and second[c] < 0:
                continue
            row = second[c] if second_members else first[c]
            e = start[row]
            start[row] += 1
            entry[e], part[e] = at, 0.5 if second[c] >= 0 else 1.0
            worth[e] = value[c] * part[e]
            for k in range(demand.shape[1]):
                takes[e, k] = demand[c, k] * part[e]
    return columns[:able].copy(), entry, begin[: jobs + 1].copy(), part, worth, takes
