"""Break ties between jobs that the objective does not distinguish.

Jobs may differ only in weight. A sum over jobs does not depend on which of them runs, so a solver
may give the lighter job more. ``share_out`` divides their common time in proportion to the need of
each at the level that all reach.

Jobs may be equal in a whole answer. ``choose_among_equals`` decides which of them run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from policies.solving.classes import ClassProblem
from scheduler.domain.arrays import distinct_columns

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray

#: How far, relatively, a class may fall below its need by rounding.
ROUNDING = 1e-9
#: Halvings of the interval of a group's factor: about as many as a double has binary digits.
HALVINGS = 60
#: Digits to which losses are equal, of the largest worth.
EQUAL_DIGITS = 12


def share_out(
    classes: ClassProblem, x: FloatArray, pair_x: FloatArray, need: FloatArray, worth: FloatArray
) -> FloatArray:
    """Return fractions that give jobs that differ only in weight a common factor c of their need.

    The total of such jobs and the sum of worth * thr do not change. Classes that would get less
    than they need keep their fractions: they need faster workers than the others.

    Args:
        classes: the classes.
        x: (M, J) feasible fractions.
        pair_x: (P,) feasible fractions; not changed.
        need: (M,) steps/s that the level requires of a class.
        worth: (M,) of a step/s in the sum.
    """
    group = _alike(classes, worth)
    shared = (need > 0) & np.isfinite(need) & (x.sum(axis=1) + need > 0)
    thr = classes.effective_throughput(x, pair_x)
    while True:
        shared &= np.bincount(group, shared)[group] > 1
        if not shared.any():
            return x
        moved = _moved(classes, x, pair_x, need=need, group=group, shared=shared)
        reached = classes.effective_throughput(moved, pair_x)
        short = shared & (reached < np.minimum(need, thr) * (1.0 - ROUNDING))
        if not short.any():
            return moved
        shared &= ~short


def _alike(classes: ClassProblem, worth: FloatArray) -> IntArray:
    """Return (M,) the group of each class: same rows, quotas and worth."""
    caps = classes.problem.caps
    falls = np.zeros(classes.size) if caps is None else caps.group[classes.representative]
    keys = np.stack((classes.profile, falls, np.nan_to_num(worth)))
    return distinct_columns(keys)[1]


def _moved(
    classes: ClassProblem,
    x: FloatArray,
    pair_x: FloatArray,
    *,
    need: FloatArray,
    group: IntArray,
    shared: BoolArray,
) -> FloatArray:
    """Return fractions in which each group's time is shared out, as far as time allows."""
    count = np.where(shared, classes.count, 0.0)
    held = np.zeros((int(group.max()) + 1, x.shape[1]))
    np.add.at(held, group, count[:, None] * x)
    total = held.sum(axis=1)
    shared = shared & (total[group] > 0)
    mix = held[group] / np.where(shared, total[group], 1.0)[:, None]
    rate = np.where(shared, (classes.throughput * mix).sum(axis=1), 1.0)
    alone = np.zeros_like(x)
    beside = classes.effective_throughput(alone, pair_x)
    room = np.maximum(1.0 - classes.time_fraction(alone, pair_x), 0.0)
    low, high = np.zeros(len(total)), np.zeros(len(total))
    safe = np.where(shared, need, 1.0)
    np.maximum.at(high, group, (rate * room + beside) / safe)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        time = np.clip((middle[group] * safe - beside) / rate, 0.0, room)
        enough = np.bincount(group, count * time, minlength=len(total)) >= total
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    time = np.clip((high[group] * safe - beside) / rate, 0.0, room)
    return np.where(shared[:, None], time[:, None] * mix, x)


def choose_among_equals(
    classes: ClassProblem, x: FloatArray, worth: FloatArray, rank: FloatArray
) -> FloatArray:
    """Return a whole answer of the same worth in which ties between equal jobs are decided.

    Jobs of the same profile, weight and quotas are equal if they have the same worths. Among equal
    jobs, those that run now come first, then those of the lowest rank. Jobs that run may swap
    configurations if their worths differ by the same in each. Each of these keeps its present
    configuration if the answer uses it; the lowest ranks get the most valuable of the rest.

    Args:
        classes: every class a single job.
        x: (N, J) zeros and ones.
        worth: (N, J) of running a job in a configuration; 0 if it cannot.
        rank: (N,) ascending.
    """
    choice = np.where(x.any(axis=1), x.argmax(axis=1), -1)
    _deal(classes, choice, worth, rank, worth)
    lacks = np.where(worth > 0, worth.max(axis=1, initial=0.0)[:, None] - worth, np.inf)
    lacks = np.round(lacks / max(worth.max(initial=0.0), 1e-300), EQUAL_DIGITS)
    _deal(classes, choice, worth, rank, np.column_stack((lacks, choice < 0)))
    result: FloatArray = (np.arange(x.shape[1]) == choice[:, None]).astype(float)
    return result


def _deal(
    classes: ClassProblem, choice: IntArray, worth: FloatArray, rank: FloatArray, key: FloatArray
) -> None:
    """Distribute the configurations of jobs with equal rows of ``key`` among these jobs.

    Args:
        classes: every class a single job.
        choice: (N,) configuration, -1 to wait; changed in place.
        worth: (N, J).
        rank: (N,) ascending.
        key: (N, L).
    """
    held = classes.problem.held
    alike = ClassProblem.build(
        classes.problem, tuple(np.ascontiguousarray(column, dtype=float) for column in key.T)
    )
    order = np.lexsort((rank, held < 0, alike.class_of))
    ends = np.cumsum(alike.count).astype(np.int64)
    for jobs in np.split(order, ends[:-1]):
        given = choice[jobs]
        if (given == given[0]).all():
            continue
        value = np.where(given >= 0, worth[jobs[0], given], -np.inf)
        free = given[np.lexsort((given, -value))].tolist()
        others = []
        for job in jobs:
            if held[job] >= 0 and held[job] in free:
                choice[job] = held[job]
                free.remove(held[job])
            else:
                others.append(job)
        choice[others] = free
