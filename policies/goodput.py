"""Goodput: one count and one worker type per job, by a power mean of what each gains."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from policies.base import Policy
from policies.families import counted
from policies.parameters import parameter
from policies.shares import sharers
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


@dataclass(frozen=True, kw_only=True)
class Goodput(Policy):
    """Give each job one count of one worker type, so that a power mean of their gains is best.

    Program: with g_mj the gain of job m in configuration j and X in {0, 1},

        minimise    sum_m w_m (sum_j g_mj ** power X_mj + waiting * v * (1 - sum_j X_mj))

    for a power below 0, where v is the largest g ** power of any configuration; for one above 0 the
    sum of g ** power is maximised, and a job that runs counts ``waiting`` more. The further the
    power is below 0, the more the jobs count that gain least. Solved to 1e-4 by branch and bound.

    The gain is throughput over the job's smallest, times the least workers that it can run on
    (``relative_to=least``: without unit, and 1 at the least), or over its throughput on a fair
    share, 1/N of all workers on the worker types on which it can run, in proportion to their number
    (``fair_share``). Rates are steps/s; of a job whose batch may change they are its goodput, in
    steps of the initial batch (``planner.goodput``), and of another its throughput: efficiency 1.

    A restart pays if the job lives long: of a job that runs, all configurations but the one it
    holds count (T - n S) / (T + S) of their gain, with T its age, n its restarts so far and S the
    seconds of one; all of it as long as T < S.

    Among equal jobs, those that run keep what they hold; then those run that have had least.

    Source: Sia (Subramanya et al., SOSP 2023, section 3.4), where ``waiting`` is lambda and v is 1;
    power -1 and ``fair_share`` are the objective of Pollux (Qiao et al., OSDI 2021, section 4.2),
    solved exactly where it searches.
    """

    name: ClassVar[str] = "goodput"
    time_dependent: ClassVar[bool] = True

    power: float = parameter(-0.5, ge=-8.0, le=1.0, help="Of the power mean over jobs; not 0.")
    waiting: float = parameter(
        1.1, ge=1.0, help="What a job that waits costs, in the most that one that runs can cost."
    )
    relative_to: str = parameter(
        "least",
        choices=("least", "fair_share"),
        help="What a job's gain is measured by: its slowest configuration, or its fair share.",
    )

    def __post_init__(self) -> None:
        """Refuse the power 0, at which every gain counts the same."""
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
        _, warnings = counted(classes)
        allocation = classes.expand(
            choose_among_equals(classes, answer.x, worth, rank),
            answer.pair_x,
            rank=rank,
            objective=answer.value,
            solver=answer.solver,
            warnings=warnings,
        )
        return replace(allocation, by_lengths=False)

    def _worth(self, classes: ClassProblem) -> FloatArray:
        """Return (N, J) what it saves that a job runs there and does not wait; 0 if it cannot."""
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
        waits = self.waiting * costs.max()
        value = counts + self.waiting if self.power > 0 else waits - counts
        result: FloatArray = np.where(usable, np.maximum(value, 0.0), 0.0)
        return result

    def _gain(self, classes: ClassProblem) -> FloatArray:
        """Return (N, J) the gain of each configuration; 0 where the job cannot run."""
        usable = classes.usable & (classes.throughput > 0)
        rate = np.where(usable, classes.throughput, 0.0)
        workers = classes.demand[:, :, : classes.types].sum(axis=2)
        able = usable.any(axis=1)
        if self.relative_to == "least":
            smallest = np.where(usable, rate, np.inf).min(axis=1, initial=np.inf)
            fewest = np.where(usable, workers, np.inf).min(axis=1, initial=np.inf)
            unit = np.where(able, smallest, 1.0) / np.where(able, fewest, 1.0)
        else:
            unit = _on_fair_share(classes, rate, workers)
        result: FloatArray = rate / np.where(able, unit, 1.0)[:, None]
        return result


def _left(problem: Problem) -> FloatArray:
    """Return (N,) which part of its gain a job keeps that changes its workers."""
    age_s, one_s = problem.age_s, problem.restart_s
    before = np.zeros(problem.jobs) if problem.restarts is None else problem.restarts
    left = (age_s - before * one_s) / np.maximum(age_s + one_s, 1e-9)
    pays = (problem.held < 0) | (age_s < one_s) | (one_s <= 0)
    result: FloatArray = np.where(pays, 1.0, np.clip(left, LEAST_LEFT, 1.0))
    return result


def _on_fair_share(classes: ClassProblem, rate: FloatArray, workers: FloatArray) -> FloatArray:
    """Return (N,) steps/s on 1/N of all workers, on types in proportion to their number.

    On a type the largest count within the share counts, and where all are larger the smallest,
    for the part of the time that the share pays. Mixed gangs count, at each of their types, for
    jobs that no single type can run.
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
