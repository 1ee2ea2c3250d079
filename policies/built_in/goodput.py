"""Goodput: one count and one worker type per job, by a power mean of the jobs' gains."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from policies.base import Policy
from policies.parameters import parameter
from policies.shares import sharers
from policies.solving.answers import counted_classes
from policies.solving.classes import ClassProblem
from policies.solving.integral import solve_whole
from policies.solving.ties import choose_among_equals
from scheduler.errors import ParameterError

if TYPE_CHECKING:
    from scheduler.domain.allocation import Allocation
    from scheduler.domain.arrays import FloatArray
    from scheduler.domain.problem import Problem

#: Part of a configuration's throughput that restarts leave at least.
LEAST_LEFT = 0.05
#: Rounds by which the time of a job may be behind its allocation.
LAG_ROUNDS = 2
#: A running job gives way to a job that has run this many times less of its life. At 1 there are
#: three to five times as many preemptions, and at 4 gangs wait long.
TURN = 2.0


@dataclass(frozen=True, kw_only=True)
class Goodput(Policy):
    """Give each job one count of one worker type, so that a power mean of their gains is best.

    Program: with g_mj the gain of job m in configuration j and X in {0, 1},

        minimise    sum_m w_m (sum_j g_mj ** power X_mj
                               + waiting * v * s_m ** power * (1 - sum_j X_mj))

    for a power below 0, where v is the largest g ** power of any configuration; for one above 0 the
    sum of g ** power is maximised, and a job that runs counts ``waiting * s_m ** -power`` more. The
    further the power is below 0, the more the jobs count that gain least. Solved to 1e-4.

    For a power below 0, from ``waiting`` = 2 on, a job that starts saves no less than another of
    its weight can by having more workers. So jobs wait only if they do not all fit, restarts apart.

    s_m <= 1 is the part of its life that the job has run. It is its worker-seconds so far, over the
    least workers that it can run on and over its age; two rounds are added to its time and its age,
    as rounds may be so far behind X. For a job that runs it counts half. The longer a job waits,
    the dearer that is, without a limit. So every job gets its turn: with more jobs than workers
    they take turns. A turn ends when another job has had less than half as much of its life.

    The gain is throughput over the job's smallest, times the least workers that it can run on
    (``relative_to=least``: without unit, and 1 at the least), or over its throughput on a fair
    share, 1/N of all workers on the worker types on which it can run, in proportion to their number
    (``fair_share``). Rates are steps/s; of a job with a variable batch they are its goodput, in
    steps of the initial batch (``planner.learning.goodput``), and of another its throughput:
    efficiency 1.

    A restart pays if the job lives long: of a job that has run, all configurations but the one it
    holds count (T - n S) / (T + S) of their gain, with T its age, n its restarts so far and S the
    seconds of one; all of it as long as T < S.

    Among equal jobs, those that run keep what they hold; then those that have had least run.

    Source: Sia (Subramanya et al., SOSP 2023, section 3.4), where ``waiting`` is lambda = 1.1, v
    and s are 1, and a running job may grow while another waits. 1 / s is the response ratio of
    Brinch Hansen (SOSP 1971), with the service so far in place of the whole. Power -1 and
    ``fair_share`` are the objective of Pollux (Qiao et al., OSDI 2021, section 4.2), solved exactly
    instead of by search.
    """

    name: ClassVar[str] = "goodput"
    time_dependent: ClassVar[bool] = True

    power: float = parameter(-0.5, ge=-8.0, le=1.0, help="Of the power mean over jobs; not 0.")
    waiting: float = parameter(
        2.0, ge=1.0, help="Cost of a waiting job, relative to the largest cost of a running job."
    )
    relative_to: str = parameter(
        "least",
        choices=("least", "fair_share"),
        help="Measure of a job's gain: its slowest configuration, or its fair share.",
    )

    def __post_init__(self) -> None:
        """Refuse the power 0, which gives every gain the same value."""
        super().__post_init__()
        if self.power == 0.0:
            raise ParameterError(
                "policy 'goodput': parameter 'power' has the value 0.0; at 0 every gain counts the "
                "same: give one below 0 (-0.5), or above"
            )

    def allocate(self, problem: Problem) -> Allocation:
        """Answer the problem; see the class."""
        classes = ClassProblem.build(problem, (problem.job_number.astype(float),))
        worth = self._worth(classes) * problem.weight[:, None]
        answer = solve_whole(classes, worth, np.zeros(len(classes.pair_index)))
        rank = problem.attained_worker_s / problem.weight
        _, warnings = counted_classes(classes)
        allocation = classes.expand(
            choose_among_equals(classes, answer.x, worth, rank),
            answer.pair_x,
            rank=rank,
            objective=answer.value,
            solver=answer.solver,
            warnings=warnings,
        )
        return replace(allocation, may_use_remaining_work=False)

    def _worth(self, classes: ClassProblem) -> FloatArray:
        """Return (N, J) the saving if a job runs there instead of waiting; 0 if it cannot run."""
        gain = self._gain(classes)
        usable = gain > 0
        if not usable.any():
            return gain
        costs = np.power(gain, self.power, where=usable, out=np.zeros(gain.shape))
        moved = np.power(
            gain * _left(classes.problem)[:, None],
            self.power,
            where=usable,
            out=np.zeros(gain.shape),
        )
        stays = np.arange(gain.shape[1]) == classes.problem.held[:, None]
        counts = np.where(stays, costs, moved)
        waits = self.waiting * _part_run(classes)[:, None] ** -abs(self.power)
        value = counts + waits if self.power > 0 else waits * costs.max() - counts
        result: FloatArray = np.where(usable, np.maximum(value, 0.0), 0.0)
        return result

    def _gain(self, classes: ClassProblem) -> FloatArray:
        """Return (N, J) the gain of each configuration; 0 if the job cannot run."""
        usable = classes.usable & (classes.throughput > 0)
        rate = np.where(usable, classes.throughput, 0.0)
        able = usable.any(axis=1)
        if self.relative_to == "least":
            smallest = np.where(usable, rate, np.inf).min(axis=1, initial=np.inf)
            unit = np.where(able, smallest, 1.0) / _fewest(classes)
        else:
            unit = _on_fair_share(classes, rate, classes.demand[:, :, : classes.types].sum(axis=2))
        result: FloatArray = rate / np.where(able, unit, 1.0)[:, None]
        return result


def _fewest(classes: ClassProblem) -> FloatArray:
    """Return (N,) the least workers on which a job can run; 1 if it cannot."""
    workers = classes.demand[:, :, : classes.types].sum(axis=2)
    usable = classes.usable & (classes.throughput > 0)
    fewest = np.where(usable, workers, np.inf).min(axis=1, initial=np.inf)
    result: FloatArray = np.where(np.isfinite(fewest), fewest, 1.0)
    return result


def _part_run(classes: ClassProblem) -> FloatArray:
    """Return (N,) in (0, 1] the part of its life that a job has run, halved if it runs now."""
    problem = classes.problem
    lag_s = LAG_ROUNDS * max(problem.round_length_s, 1.0)
    ran_s = problem.attained_worker_s / _fewest(classes)
    part = np.minimum((ran_s + lag_s) / (problem.age_s + lag_s), 1.0)
    result: FloatArray = np.where(problem.held >= 0, part / TURN, part)
    return result


def _left(problem: Problem) -> FloatArray:
    """Return (N,) the part of its gain that a job keeps if it changes its workers."""
    age_s, one_s = problem.age_s, problem.restart_s
    before = np.zeros(problem.jobs) if problem.restarts is None else problem.restarts
    left = (age_s - before * one_s) / np.maximum(age_s + one_s, 1e-9)
    fresh = (problem.held < 0) & (problem.attained_worker_s <= 0)
    pays = fresh | (age_s < one_s) | (one_s <= 0)
    result: FloatArray = np.where(pays, 1.0, np.clip(left, LEAST_LEFT, 1.0))
    return result


def _on_fair_share(classes: ClassProblem, rate: FloatArray, workers: FloatArray) -> FloatArray:
    """Return (N,) steps/s on 1/N of all workers, on types in proportion to their number.

    On a type the largest count within the share counts. If all counts are larger, the smallest
    counts, for the part of the time that the share pays. For jobs that no single type can run,
    mixed gangs count at each of their types.
    """
    held = classes.demand[:, :, : classes.types]
    alone = np.where(np.count_nonzero(held, axis=2) == 1, rate, 0.0)
    rate = np.where((alone > 0).any(axis=1, keepdims=True), alone, rate)
    problem = classes.problem
    capacity = problem.capacity
    fair = max(float(np.ceil(capacity.sum() / sharers(problem))), 1.0)
    total, part = np.zeros(len(rate)), np.zeros(len(rate))
    for k in range(classes.types):
        there = (rate > 0) & (classes.demand[:, :, k] > 0)
        within = there & (workers <= fair)
        most = np.where(within, rate, 0.0).max(axis=1, initial=0.0)
        fewest = np.where(there, workers, np.inf).min(axis=1, initial=np.inf)
        least = np.where(there & (workers == fewest[:, None]), rate, 0.0).max(axis=1, initial=0.0)
        on_type = np.where(most > 0, most, least * fair / np.where(fewest < np.inf, fewest, 1.0))
        total += capacity[k] * on_type
        part += capacity[k] * (on_type > 0)
    result: FloatArray = total / np.maximum(part, 1e-300)
    return result
