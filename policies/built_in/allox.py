"""AlloX: the matching that minimises the mean completion time on unlike workers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from policies.base import Policy
from policies.greedy import first_come_first_served, serve_in_order
from policies.parameters import parameter
from policies.shares import best_by_type

if TYPE_CHECKING:
    from scheduler.domain.allocation import Allocation
    from scheduler.domain.arrays import FloatArray, IntArray
    from scheduler.domain.problem import Problem


@dataclass(frozen=True, kw_only=True)
class AlloX(Policy):
    """Queue every job on the worker type where all jobs together end soonest.

    Program: minimise the sum over matched (job m, worker of type k, place q from the last) of
    p_mk (1 + s_m (q - 1)): a job that is q-th from the last on its worker adds its time p_mk (with
    the restart, if it leaves its type) to its own end and to that of the q - 1 behind it. For
    single-worker jobs this matching minimises the mean completion time exactly. A gang of s
    workers, be they alike or not, is matched to one worker and counts s times for those behind it.
    Then each worker's first job runs; leftover workers go to the others in the same order.
    Weights play no part.

    An elastic job is matched at its fastest efficient count on each worker type, and s is that
    count. It gets more workers if no waiting job can use them; see ``serve_in_order``.

    Source: AlloX (Le et al., EuroSys 2020, sections 3 and 4).
    """

    name: ClassVar[str] = "allox"
    time_dependent: ClassVar[bool] = False

    alpha: float = parameter(
        1.0,
        gt=0.0,
        le=1.0,
        help="Share of the jobs that is matched, those with the least service first; below 1 no "
        "job starves behind shorter ones.",
    )

    def allocate(self, problem: Problem) -> Allocation:
        """Answer the problem; see the class."""
        rates, choice = best_by_type(problem, share=None)
        seconds = _processing_s(problem, rates, choice)
        able = np.flatnonzero(np.isfinite(seconds).any(axis=1))
        if len(able) > (least := math.ceil(self.alpha * problem.jobs)):
            by_service = np.argsort(problem.attained_worker_s[able], kind="stable")
            able = np.sort(able[by_service[:least]])
        preferred = np.full(problem.jobs, -1, dtype=np.int64)
        place = np.zeros(problem.jobs)
        if len(able):
            workers = np.take_along_axis(problem.demand.sum(axis=2), choice, axis=1)
            worker_type, place[able] = match(seconds[able], workers[able], problem.capacity)
            preferred[able] = choice[able, worker_type]
        order = first_come_first_served(problem, -place)
        return serve_in_order(problem, order, preferred=preferred)


def match(
    seconds: FloatArray, workers: IntArray, capacity: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Match jobs to worker types and places in their queues.

    Places are offered in as many layers as needed. If a type has an empty place in its last layer,
    deeper layers cost more and cannot improve the matching.

    Args:
        seconds: (N, K) processing time, inf if the job does not run.
        workers: (N, K) that the job holds.
        capacity: (K,) workers.

    Returns:
        (N,) worker type and (N,) place from the last, 1 for the last.
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415  0.2 s to import

    slots = np.maximum(capacity.astype(np.int64), 0)
    layers = 1 + math.ceil(1.2 * len(seconds) / slots.sum())
    deepest = math.ceil(len(seconds) / max(slots[slots > 0].min(), 1))
    while True:
        layers = min(layers, deepest)
        worker_type = np.repeat(np.arange(len(slots)), slots * layers)
        place = np.concatenate([np.repeat(np.arange(1.0, layers + 1), n) for n in slots])
        costs = seconds[:, worker_type] * (1.0 + workers[:, worker_type] * (place - 1.0))
        try:
            rows, columns = linear_sum_assignment(costs)
        except ValueError:  # more jobs need a type than it has places: offer more
            complete = False
        else:
            last = place[columns] == layers
            used = np.bincount(worker_type[columns[last]], minlength=len(slots))
            complete = len(rows) == len(seconds) and bool((used < slots)[slots > 0].all())
        if complete or layers == deepest:
            return worker_type[columns], place[columns]
        layers *= 2


def _processing_s(problem: Problem, rates: FloatArray, choice: IntArray) -> FloatArray:
    """Return (N, K) remaining seconds on each worker type, with the restart if the job moves."""
    runs = rates > 0
    seconds = np.where(runs, problem.remaining_steps[:, None] / np.where(runs, rates, 1.0), np.inf)
    moves = (problem.held[:, None] >= 0) & (problem.held[:, None] != choice)
    result: FloatArray = seconds + np.where(moves, problem.restart_s[:, None], 0.0)
    return result
